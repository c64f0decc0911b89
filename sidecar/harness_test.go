package sidecar

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"log/slog"
	"net/http"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
	"github.com/sluicemq/sluice/upstream"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test; nothing takes nearly as long.
const patience = 30 * time.Second

// await returns once the condition holds. It looks again every few
// milliseconds, for what announces nothing.
func await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// setup is what a test may change of a sidecar before it starts.
type setup struct {
	Options
	Spool spool.Options
}

// instance is a running sidecar on a store of its own.
type instance struct {
	t       testing.TB
	spool   *spool.Spool
	sidecar *Sidecar
	http    string // http://host:port
	stop    func() // stops it cleanly; once, and at the test's end at the latest
}

// start runs a sidecar in dir with both doors open. Its upstreams are given by
// name; one lane takes every topic to each of them.
func start(t testing.TB, dir string, ups map[string]upstream.Sender, change func(*setup)) *instance {
	t.Helper()
	s := setup{
		Options: Options{
			Dir: dir, RocketMQ: RocketMQDoor{Listen: "127.0.0.1:0"}, HTTP: HTTPDoor{Listen: "127.0.0.1:0"},
			Upstreams: map[string]Upstream{}, Logger: slog.New(slog.DiscardHandler),
		},
		Spool: spool.Options{Dir: dir, SegmentBytes: 1 << 20, MaxMessageBytes: 256 << 10, KeepUnread: true},
	}
	for name, sender := range ups {
		s.Upstreams[name] = Upstream{
			Name: name, Sender: sender, Limit: spool.Limit{Messages: 100, Bytes: 1 << 20},
			Backoff: upstream.Backoff{Min: time.Millisecond, Max: 10 * time.Millisecond},
		}
		s.Lanes = append(s.Lanes, LaneRule{Topics: []string{"*"}, Upstream: name})
	}
	if change != nil {
		change(&s)
	}
	sp, err := spool.Open(s.Spool)
	if err != nil {
		t.Fatal(err)
	}
	sc, err := New(s.Options, sp)
	if err != nil {
		_ = sp.Close()
		t.Fatal(err)
	}
	i := &instance{t: t, spool: sp, sidecar: sc, http: "http://" + sc.HTTPAddr()}
	i.run()
	return i
}

func (i *instance) run() {
	roles, stopRoles := context.WithCancel(context.Background())
	stores, stopStores := context.WithCancel(context.Background())
	var serving, storing sync.WaitGroup
	storing.Go(func() {
		if err := i.spool.Run(stores); err != nil {
			i.t.Errorf("spool: %v", err)
		}
	})
	serving.Go(func() {
		if err := i.sidecar.Run(roles); err != nil {
			i.t.Errorf("sidecar: %v", err)
		}
	})
	i.stop = sync.OnceFunc(func() {
		stopRoles()
		serving.Wait()
		stopStores()
		storing.Wait()
	})
	i.t.Cleanup(i.stop)
}

// post sends a request to the HTTP door and returns status and body.
func (i *instance) post(path, contentType, body string, headers ...string) (int, string) {
	i.t.Helper()
	req, err := http.NewRequest(http.MethodPost, i.http+path, strings.NewReader(body))
	if err != nil {
		i.t.Fatal(err)
	}
	if contentType != "" {
		req.Header.Set("Content-Type", contentType)
	}
	for n := 0; n < len(headers); n += 2 {
		req.Header.Set(headers[n], headers[n+1])
	}
	return i.do(req)
}

func (i *instance) get(path string) (int, string) {
	i.t.Helper()
	req, err := http.NewRequest(http.MethodGet, i.http+path, http.NoBody)
	if err != nil {
		i.t.Fatal(err)
	}
	return i.do(req)
}

func (i *instance) do(req *http.Request) (int, string) {
	i.t.Helper()
	transport := &http.Transport{DisableKeepAlives: true}
	resp, err := (&http.Client{Transport: transport, Timeout: patience}).Do(req)
	if err != nil {
		i.t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		i.t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// must posts one message and returns where it was stored.
func (i *instance) must(topic, body string, headers ...string) StoredMessage {
	i.t.Helper()
	status, text := i.post("/v1/topics/"+topic+"/messages", "", body, headers...)
	var stored StoredMessage
	if err := json.Unmarshal([]byte(text), &stored); status != http.StatusOK || err != nil {
		i.t.Fatalf("post to %s: %d %s", topic, status, text)
	}
	return stored
}

// mustLines posts bodies as one NDJSON batch, all with the ordering key.
func (i *instance) mustLines(topic, ordering string, bodies ...string) []StoredMessage {
	i.t.Helper()
	var lines bytes.Buffer
	for _, body := range bodies {
		line, err := json.Marshal(map[string]string{"body": body, "ordering_key": ordering})
		if err != nil {
			i.t.Fatal(err)
		}
		lines.Write(append(line, '\n'))
	}
	status, text := i.post("/v1/topics/"+topic+"/messages", "application/x-ndjson", lines.String())
	var stored struct{ Messages []StoredMessage }
	if err := json.Unmarshal([]byte(text), &stored); status != http.StatusOK || err != nil || len(stored.Messages) != len(bodies) {
		i.t.Fatalf("post %d lines to %s: %d %s", len(bodies), topic, status, text)
	}
	return stored.Messages
}

// metric reads one series by its name with labels; -1 when it is not there.
func (i *instance) metric(series string) float64 {
	i.t.Helper()
	_, text := i.get("/metrics")
	for line := range strings.Lines(text) {
		var value float64
		if rest, ok := strings.CutPrefix(line, series+" "); ok {
			if _, err := fmt.Sscan(rest, &value); err != nil {
				i.t.Fatalf("metric %q: %v", line, err)
			}
			return value
		}
	}
	return -1
}

func (i *instance) backlog(upstream, topic string) float64 {
	i.t.Helper()
	return i.metric(fmt.Sprintf("sluice_lane_backlog_messages{topic=%q,upstream=%q}", topic, upstream))
}

// drained waits until an upstream has accepted everything that was stored of a
// topic. What is stored reaches the queues shortly after its acknowledgement.
func (i *instance) drained(upstream, topic string) {
	i.t.Helper()
	end := i.spool.Stats().MaxOffset
	await(i.t, "an empty backlog", func() bool {
		return i.spool.Stats().DispatchedOffset >= end && i.backlog(upstream, topic) == 0
	})
}

// local reads a local queue from its beginning to its end, as it is now.
func (i *instance) local(topic string, queue int32) []message.Message {
	i.t.Helper()
	q := i.spool.Queue(topic, queue)
	var all []message.Message
	var records spool.Records
	defer records.Release()
	for at := q.Min(); at < q.Max(); {
		r := i.spool.Read(q, at, spool.Limit{Messages: 1000}, nil, &records)
		if r.Next <= at {
			i.t.Fatalf("read %s/%d at %d: %s", topic, queue, at, r.Status)
		}
		records.Each(func(record []byte) bool {
			var m message.Message
			if err := message.Decode(record, &m); err != nil {
				i.t.Fatal(err)
			}
			all = append(all, *m.Clone())
			return true
		})
		records.Release()
		at = r.Next
	}
	return all
}

// parked waits until n messages that an upstream refused are put aside.
func (i *instance) parked(upstream string, n int) []message.Message {
	i.t.Helper()
	queue := i.spool.Queue("%DLQ%SLUICE_"+upstream, 0)
	await(i.t, "parked messages", func() bool { return queue.Max() >= int64(n) })
	all := i.local(queue.Topic(), 0)
	if len(all) != n {
		i.t.Fatalf("%d messages are parked, want %d", len(all), n)
	}
	return all
}

// newClient runs a RocketMQ client until the test ends.
func newClient(t testing.TB, nameServer string) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{NameServers: []string{nameServer}})
	if err != nil {
		t.Fatal(err)
	}
	running(t, c.Run)
	return c
}

func newProducer(t testing.TB, nameServer string) *client.Producer {
	t.Helper()
	p, err := client.NewProducer(newClient(t, nameServer), client.ProducerOptions{Group: "test"})
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// running runs something until the test ends.
func running(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	var group sync.WaitGroup
	group.Go(func() {
		if err := run(ctx); err != nil {
			t.Errorf("run: %v", err)
		}
	})
	stop = sync.OnceFunc(func() { cancel(); group.Wait() })
	t.Cleanup(stop)
	return stop
}

// request asks the RocketMQ door one question.
func (i *instance) request(code protocol.RequestCode, h protocol.Header, body []byte) *protocol.Command {
	i.t.Helper()
	c := remoting.NewClient(remoting.ClientOptions{})
	defer running(i.t, c.Run)()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := c.Call(ctx, i.sidecar.RocketMQAddr().String(), protocol.NewRequest(code, h, body))
	if err != nil {
		i.t.Fatalf("%s: %v", code, err)
	}
	return answer
}

// numbered makes bodies prefix-0, prefix-1, ….
func numbered(prefix string, n int) []string {
	bodies := make([]string, n)
	for i := range bodies {
		bodies[i] = fmt.Sprintf("%s-%d", prefix, i)
	}
	return bodies
}
