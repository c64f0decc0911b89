package crash

import (
	"context"
	"encoding/json"
	"fmt"
	"math/rand/v2"
	"net/http"
	"testing"
	"time"
)

func TestSidecarKeepsItsPromisesWhenKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	for _, flush := range []string{"sync", "async"} {
		t.Run("flush "+flush, func(t *testing.T) {
			t.Parallel()
			killSidecar(t, flush, []victim{theSidecar, theUpstream, both, theSidecar}, 1500)
		})
	}
}

// A victim says who is killed.
type victim int

const (
	theSidecar victim = iota
	theUpstream
	both
	victims
)

func (v victim) String() string { return [...]string{"sidecar", "upstream", "both"}[v] }

// An edge is a sidecar process; its upstream is a server in another process.
type edge struct {
	t                      *testing.T
	rocketmq, http, config string
	child                  *child
}

func newEdge(t *testing.T, namesrv, flush string) *edge {
	t.Helper()
	e := &edge{t: t, rocketmq: freeAddr(t), http: freeAddr(t)}
	e.config = writeConfig(t, "sidecar", `
roles: [sidecar]
data: %s
sidecar:
  flush: %s
  max_message: 256KiB
  store: {segment: 1MiB, max_bytes: 1GiB}
  doors: {rocketmq: {listen: "%s"}, http: {listen: "%s"}}
  upstreams:
    up: {kind: rocketmq, namesrv: ["%s"], timeout: 5s, batch: {messages: 100}, backoff: {min: 20ms, max: 200ms}}
  lanes: [{topics: ["*"], upstream: up}]
`, t.TempDir(), flush, e.rocketmq, e.http, namesrv)
	return e
}

// start launches the sidecar and waits until it takes messages.
func (e *edge) start() time.Duration {
	e.t.Helper()
	e.child = launch(e.t, "sidecar", e.config)
	return e.child.ready(func(ctx context.Context) error {
		_, err := e.get(ctx, "/readyz")
		return err
	})
}

func (e *edge) get(ctx context.Context, path string) (backlog int64, err error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, "http://"+e.http+path, http.NoBody)
	if err != nil {
		return 0, err
	}
	resp, err := (&http.Client{Transport: &http.Transport{DisableKeepAlives: true}}).Do(req)
	if err != nil {
		return 0, err
	}
	defer resp.Body.Close()
	var report struct{ Backlog int64 }
	if err := json.NewDecoder(resp.Body).Decode(&report); err != nil {
		return 0, err
	}
	if resp.StatusCode != http.StatusOK {
		return 0, fmt.Errorf("%s: %s", path, resp.Status)
	}
	return report.Backlog, nil
}

// drained waits until everything is forwarded.
func (e *edge) drained() {
	e.t.Helper()
	e.child.ready(func(ctx context.Context) error {
		backlog, err := e.get(ctx, "/healthz")
		if err == nil && backlog > 0 {
			err = fmt.Errorf("%d messages wait to be forwarded", backlog)
		}
		return err
	})
}

// killSidecar loads a sidecar through both doors and kills it, its upstream or
// both, again and again.
func killSidecar(t *testing.T, flush string, kills []victim, most int) {
	s, l := newServer(t, flush), newLedger()
	s.start()
	e := newEdge(t, s.namesrv, flush)
	t.Logf("ready on an empty store after %v", e.start().Round(time.Millisecond))
	for i, kill := range kills {
		name := fmt.Sprintf("kill %d of %v", i+1, kill)
		load := startLoad(t, l, e.rocketmq, e.http)
		load.await(l.more(1 + rand.IntN(most)))
		if kill != theSidecar {
			s.child.kill()
		}
		if kill == theUpstream {
			// Local producers must not feel it.
			load.await(l.more(200))
			s.start()
			load.await(l.more(200))
		} else {
			e.child.kill()
		}
		load.end()
		if kill == both {
			s.start()
		}
		if kill != theUpstream {
			t.Logf("%s: ready after %v", name, e.start().Round(time.Millisecond))
		}
		local := readAll(t, name+": sidecar", e.rocketmq)
		l.check(t, name+": sidecar", local)
		e.drained()
		checkForwarded(t, name+": upstream", local, readAll(t, name+": upstream", s.broker))
		if t.Failed() {
			return
		}
	}
	e.child.stop()
	s.child.stop()
}

// checkForwarded demands that the upstream has every message of each local
// queue, in order once those that came again are dropped.
func checkForwarded(t *testing.T, who string, local, upstream contents) {
	t.Helper()
	places := map[string]place{}
	for queue, records := range local {
		for _, r := range records {
			places[r.key] = place{queue, r.offset}
		}
	}
	type got struct {
		upQueue int32
		next    int64 // local offset that is due
	}
	progress := map[int32]got{} // by local queue
	seen, doubles := map[string]bool{}, 0
	for upQueue, records := range upstream {
		for i, r := range records {
			at, known := places[r.key]
			if r.offset != int64(i) || !known {
				t.Fatalf("%s: queue %d has %s at offset %d, where %d is due; known to the sidecar: %v", who, upQueue, r.key, r.offset, i, known)
			}
			if seen[r.key] {
				doubles++
				continue
			}
			seen[r.key] = true
			p, begun := progress[at.queue]
			if begun && p.upQueue != upQueue {
				t.Errorf("%s: local queue %d is spread over the queues %d and %d", who, at.queue, p.upQueue, upQueue)
			}
			if at.offset != p.next {
				t.Fatalf("%s: local queue %d: offset %d came where %d is due", who, at.queue, at.offset, p.next)
			}
			progress[at.queue] = got{upQueue, at.offset + 1}
		}
	}
	for queue, records := range local {
		if next := progress[queue].next; next != int64(len(records)) {
			t.Errorf("%s: local queue %d is forwarded up to %d of %d", who, queue, next, len(records))
		}
	}
	t.Logf("%s: %d messages of %d, and %d doubles", who, len(seen), len(places), doubles)
}
