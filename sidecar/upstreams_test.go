package sidecar

import (
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluicemq/sluice/broker"
	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/namesrv"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
	"github.com/sluicemq/sluice/upstream"
)

// A cluster is a name server and a broker of ours that can stop and start again
// with its store at its port.
type cluster struct {
	t       testing.TB
	dir     string
	namesrv string
	address netip.AddrPort
	stop    func()
}

func startCluster(t testing.TB) *cluster {
	t.Helper()
	n, err := namesrv.New(namesrv.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	running(t, n.Run)
	c := &cluster{t: t, dir: t.TempDir(), namesrv: n.Addr().String(), address: netip.MustParseAddrPort("127.0.0.1:0")}
	c.start()
	return c
}

// start runs the broker and waits until the name server has it.
func (c *cluster) start() {
	c.t.Helper()
	sp, err := spool.Open(spool.Options{Dir: c.dir, SegmentBytes: 1 << 20, MaxMessageBytes: 128 << 10})
	if err != nil {
		c.t.Fatal(err)
	}
	b, err := broker.New(broker.Options{
		Listen: c.address.String(), Dir: c.dir, NameServers: []string{c.namesrv}, AutoCreateTopics: true,
		MaxMessageBytes: 64 << 10, FlushSync: true, Logger: slog.New(slog.DiscardHandler),
	}, sp)
	if err != nil {
		_ = sp.Close()
		c.t.Fatal(err)
	}
	c.address = b.Addr()
	stopStore := running(c.t, sp.Run)
	stopBroker := running(c.t, b.Run)
	c.stop = sync.OnceFunc(func() { stopBroker(); stopStore() })
	c.t.Cleanup(c.stop)
	reader := newClient(c.t, c.namesrv)
	await(c.t, "the broker's registration", func() bool {
		route, err := reader.RefreshRoute(deadline(c.t), message.TopicAutoCreate)
		return err == nil && len(route.Write) > 0
	})
}

// read returns what a topic holds, queue by queue in order.
func (c *cluster) read(topic string) map[int32][]*message.Message {
	c.t.Helper()
	reader := newClient(c.t, c.namesrv)
	route, err := reader.Route(deadline(c.t), topic)
	if err != nil {
		c.t.Fatal(err)
	}
	all := map[int32][]*message.Message{}
	for _, queue := range route.Read {
		for at := int64(0); ; {
			r, err := reader.Pull(deadline(c.t), client.PullRequest{Queue: queue, Group: "reader", Offset: at})
			if err != nil {
				c.t.Fatal(err)
			}
			all[queue.QueueID] = append(all[queue.QueueID], r.Messages...)
			if r.Status != client.PullFound {
				break
			}
			at = r.Next
		}
	}
	return all
}

// A jetStreamServer is a NATS server in this process that can stop and start
// again with its files at its port.
type jetStreamServer struct {
	t       testing.TB
	options server.Options
	stop    func()
}

func startJetStream(t testing.TB) *jetStreamServer {
	t.Helper()
	j := &jetStreamServer{t: t, options: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
	}}
	j.start()
	return j
}

func (j *jetStreamServer) start() {
	j.t.Helper()
	o := j.options
	s, err := server.NewServer(&o)
	if err != nil {
		j.t.Fatal(err)
	}
	s.Start()
	j.stop = sync.OnceFunc(func() { s.Shutdown(); s.WaitForShutdown() })
	j.t.Cleanup(j.stop)
	if !s.ReadyForConnections(patience) {
		j.t.Fatal("the NATS server does not start")
	}
	j.options.Port = o.Port
}

func (j *jetStreamServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", j.options.Port) }

// read returns what the stream holds, in order.
func (j *jetStreamServer) read(stream string) (all []*jetstream.RawStreamMsg) {
	j.t.Helper()
	nc, err := nats.Connect(j.url())
	if err != nil {
		j.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		j.t.Fatal(err)
	}
	s, err := js.Stream(deadline(j.t), stream)
	if err != nil {
		j.t.Fatal(err)
	}
	state := s.CachedInfo().State
	for seq := max(state.FirstSeq, 1); seq <= state.LastSeq; seq++ {
		m, err := s.GetMsg(deadline(j.t), seq)
		if err != nil {
			j.t.Fatal(err)
		}
		all = append(all, m)
	}
	return all
}

// sentMessage is one that a producer was told is stored, in the order of that.
type sentMessage struct{ key, body string }

// sentOrder is what was acknowledged, by local queue and there by offset.
type sentOrder map[int32][]sentMessage

func (o sentOrder) note(t *testing.T, key, body string, queue int32, offset int64) {
	t.Helper()
	if offset != int64(len(o[queue])) {
		t.Fatalf("queue %d: offset %d was given where %d is due", queue, offset, len(o[queue]))
	}
	o[queue] = append(o[queue], sentMessage{key, body})
}

// produce sends n messages through either door at random, and single ones as
// well as batches.
func (o sentOrder) produce(t *testing.T, s *instance, p *client.Producer, n int) {
	t.Helper()
	for range n {
		name := fmt.Sprintf("m-%d", rand.Uint64())
		switch rand.IntN(3) {
		case 0:
			r, err := p.Send(deadline(t), &message.Message{Topic: "orders", Body: []byte(name)})
			if err != nil {
				t.Fatal(err)
			}
			o.note(t, r.MessageID, name, r.Queue.QueueID, r.QueueOffset)
		case 1:
			at := s.must("orders", name, "X-Sluice-Ordering-Key", name[:4])
			o.note(t, at.ID, name, at.Queue, at.Offset)
		case 2:
			bodies := numbered(name, 10)
			for i, at := range s.mustLines("orders", name, bodies...) {
				o.note(t, at.ID, bodies[i], at.Queue, at.Offset)
			}
		}
	}
}

// TestRealUpstreamsGetEverythingInOrder runs one sidecar between real producers
// and both kinds of upstream, each of which is away for a while, and restarts
// the sidecar in between.
func TestRealUpstreamsGetEverythingInOrder(t *testing.T) {
	core, jet, dir := startCluster(t), startJetStream(t), t.TempDir()
	senders := func() map[string]upstream.Sender {
		toCore, err := upstream.NewRocketMQ(upstream.RocketMQOptions{NameServers: []string{core.namesrv}, Timeout: 3 * time.Second})
		if err != nil {
			t.Fatal(err)
		}
		toJet, err := upstream.NewNATS(upstream.NATSOptions{URL: jet.url(), Stream: "EDGE", Subject: "edge.{topic}", Create: &upstream.StreamOptions{}})
		if err != nil {
			t.Fatal(err)
		}
		return map[string]upstream.Sender{"core": toCore, "jet": toJet}
	}
	sent := sentOrder{}
	s := start(t, dir, senders(), nil)
	produce := func(n int) {
		t.Helper()
		sent.produce(t, s, newProducer(t, s.sidecar.RocketMQAddr().String()), n)
	}
	produce(60)
	core.stop()
	produce(60)
	jet.stop()
	produce(30)
	if status, text := s.get("/readyz"); status != 200 {
		t.Errorf("not ready although only the upstreams are away: %s", text)
	}
	s.stop()
	s = start(t, dir, senders(), nil)
	produce(30)
	core.start()
	jet.start()
	produce(60)
	s.drained("core", "orders")
	s.drained("jet", "orders")
	checkCluster(t, core.read("orders"), sent)
	checkStream(t, jet.read("EDGE"), sent)
}

// checkCluster wants each local queue in one queue upstream, in order once
// doubles are dropped by their unique keys.
func checkCluster(t *testing.T, stored map[int32][]*message.Message, sent sentOrder) {
	t.Helper()
	doubles := 0
	for queue, want := range sent {
		var got []sentMessage
		seen := map[string]bool{}
		for _, m := range stored[queue] {
			key, _ := m.Property(message.PropertyUniqueKey)
			if seen[key] {
				doubles++
				continue
			}
			seen[key] = true
			got = append(got, sentMessage{key, string(m.Body)})
		}
		if !slices.Equal(got, want) {
			t.Errorf("broker: queue %d has %d messages %.300v, want %d: %.300v", queue, len(got), got, len(want), want)
		}
	}
	t.Logf("broker: %d doubles", doubles)
}

// checkStream wants the messages of each local queue in order; the stream drops
// doubles itself.
func checkStream(t *testing.T, stored []*jetstream.RawStreamMsg, sent sentOrder) {
	t.Helper()
	got := map[int32][]sentMessage{}
	for _, m := range stored {
		local, _, _ := strings.Cut(m.Header.Get(upstream.HeaderOrigin), "/")
		queue, err := strconv.Atoi(local)
		if err != nil || m.Subject != "edge.orders" {
			t.Fatalf("stream: message %d has subject %q and headers %v", m.Sequence, m.Subject, m.Header)
		}
		got[int32(queue)] = append(got[int32(queue)], sentMessage{m.Header.Get(jetstream.MsgIDHeader), string(m.Data)})
	}
	for queue, want := range sent {
		if !slices.Equal(got[queue], want) {
			t.Errorf("stream: queue %d has %d messages %.300v, want %d: %.300v", queue, len(got[queue]), got[queue], len(want), want)
		}
	}
}

// TestBrokersRefusalsAreParked lets a real broker refuse what is larger than it
// takes.
func TestBrokersRefusalsAreParked(t *testing.T) {
	core := startCluster(t)
	sender, err := upstream.NewRocketMQ(upstream.RocketMQOptions{NameServers: []string{core.namesrv}})
	if err != nil {
		t.Fatal(err)
	}
	s := start(t, t.TempDir(), map[string]upstream.Sender{"core": sender}, oneQueue(10))
	s.mustLines("orders", "", "a", strings.Repeat("x", 100<<10), "b")
	s.drained("core", "orders")
	var got []string
	for _, queue := range core.read("orders") {
		for _, m := range queue {
			got = append(got, string(m.Body))
		}
	}
	if !slices.Equal(got, []string{"a", "b"}) {
		t.Errorf("the broker has %.100q", got)
	}
	if parked := s.parked("core", 1); len(parked[0].Body) != 100<<10 {
		t.Errorf("a message of %d bytes is parked", len(parked[0].Body))
	}
}

// TestSidecarStopsWhileItsUpstreamHangs: an upstream that takes connections and
// never answers must not keep a process from stopping.
func TestSidecarStopsWhileItsUpstreamHangs(t *testing.T) {
	up := newScript(func(int, string, []message.Message) verdict { return verdict{hang: true} })
	s := start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, nil)
	s.must("orders", "x")
	up.until(t, "a batch under way", func() bool { return up.calls > 0 })
	stopped := make(chan struct{})
	go func() { s.stop(); close(stopped) }()
	select {
	case <-stopped:
	case <-deadline(t).Done():
		t.Fatal("the sidecar does not stop")
	}
}
