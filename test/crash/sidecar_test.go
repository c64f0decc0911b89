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

func newEdge(t *testing.T, namesrv, flush, limit string) *edge {
	t.Helper()
	e := &edge{t: t, rocketmq: freeAddr(t), http: freeAddr(t)}
	e.config = writeConfig(t, "sidecar", `
roles: [sidecar]
data: %s
sidecar:
  flush: %s
  max_message: 256KiB
  store: {segment: 1MiB, max_bytes: %s}
  doors: {rocketmq: {listen: "%s"}, http: {listen: "%s"}}
  upstreams:
    up: {kind: rocketmq, namesrv: ["%s"], timeout: 5s, batch: {messages: 100}, backoff: {min: 20ms, max: 200ms}}
  lanes: [{topics: ["*"], upstream: up}]
`, t.TempDir(), flush, limit, e.rocketmq, e.http, namesrv)
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
	e := newEdge(t, s.namesrv, flush, "1GiB")
	t.Logf("ready on an empty store after %v", e.start().Round(time.Millisecond))
	for i, kill := range kills {
		name := fmt.Sprintf("kill %d of %v", i+1, kill)
		load := startLoad(t, l, e.rocketmq, e.http, nil)
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
		local := readAll(t, name+": sidecar", e.rocketmq, l.ends())
		l.check(t, name+": sidecar", local)
		e.drained()
		checkForwarded(t, name+": upstream", local.places(), true, readAll(t, name+": upstream", s.broker, nil))
		if t.Failed() {
			return
		}
	}
	e.child.stop()
	s.child.stop()
}

// checkForwarded demands that the upstream has every message of the places in the
// sidecar's queues, and each queue in order, once those that came again are
// dropped. whole says that there are no others.
func checkForwarded(t *testing.T, who string, places map[string]place, whole bool, upstream contents) {
	t.Helper()
	type progress struct {
		upQueue int32
		next    int64 // least local offset that may come
	}
	local := map[int32]progress{}
	seen, doubles, forwarded := map[string]bool{}, 0, 0
	for upQueue, records := range upstream {
		for i, r := range records {
			at, known := places[r.key]
			switch {
			case r.offset != int64(i) || whole && !known:
				t.Fatalf("%s: queue %d has %s at offset %d, where %d is due; known to the sidecar: %v", who, upQueue, r.key, r.offset, i, known)
			case seen[r.key]:
				doubles++
				continue
			}
			seen[r.key] = true
			if !known {
				continue
			}
			forwarded++
			p, begun := local[at.queue]
			if begun && p.upQueue != upQueue {
				t.Errorf("%s: local queue %d is spread over the queues %d and %d", who, at.queue, p.upQueue, upQueue)
			}
			if at.offset < p.next || whole && at.offset > p.next {
				t.Fatalf("%s: local queue %d: offset %d came where %d is due", who, at.queue, at.offset, p.next)
			}
			local[at.queue] = progress{upQueue, at.offset + 1}
		}
	}
	if forwarded != len(places) {
		t.Errorf("%s: %d messages are lost", who, len(places)-forwarded)
	}
	t.Logf("%s: %d messages of %d, and %d doubles", who, forwarded, len(places), doubles)
}

// TestFullSidecarDeletesOnlyWhatIsForwarded kills a sidecar whose spool is so
// small that it deletes all the time, and is at its limit while the upstream is
// away.
func TestFullSidecarDeletesOnlyWhatIsForwarded(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	t.Parallel()
	killFullSidecar(t, []victim{theSidecar, theUpstream, both, theSidecar}, 3000)
}

func killFullSidecar(t *testing.T, kills []victim, most int) {
	s, l := newServer(t, "async"), newLedger()
	s.start()
	e := newEdge(t, s.namesrv, "sync", "4MiB")
	e.start()
	for i, kill := range kills {
		name := fmt.Sprintf("kill %d of %v", i+1, kill)
		full := make(chan struct{})
		load := startLoad(t, l, e.rocketmq, e.http, full)
		load.await(l.more(1 + rand.IntN(most)))
		if kill != theSidecar {
			s.child.kill()
			load.await(full)
		}
		if kill == theUpstream {
			s.start()
			load.await(l.more(200)) // taken again once there is room
		}
		if kill != theUpstream {
			e.child.kill()
		}
		load.end()
		if kill == both {
			s.start()
		}
		if kill != theUpstream {
			t.Logf("%s: ready after %v", name, e.start().Round(time.Millisecond))
		}
		e.drained()
		checkForwarded(t, name, l.places(), false, readAll(t, name, s.broker, nil))
		if t.Failed() {
			return
		}
	}
	e.child.stop()
	s.child.stop()
}
