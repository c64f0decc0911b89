package client_test

import (
	"context"
	"errors"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/client/clienttest"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a client of the cluster until the test ends. halt ends it earlier
// and returns when Run has.
func start(t *testing.T, c *clienttest.Cluster, o client.Options) (cl *client.Client, halt func()) {
	t.Helper()
	o.NameServers = c.NameServers()
	cl, err := client.New(o)
	if err != nil {
		t.Fatal(err)
	}
	return cl, run(t, cl.Run)
}

// run calls f in the background until the test ends.
func run(t *testing.T, f func(context.Context) error) (halt func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	var ended atomic.Bool
	halt = func() {
		if !ended.CompareAndSwap(false, true) {
			return
		}
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(halt)
	return halt
}

func producer(t *testing.T, c *client.Client, o client.ProducerOptions) *client.Producer {
	t.Helper()
	o.Group = "producers"
	p, err := client.NewProducer(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return p
}

func textMessage(topic, body string) *message.Message {
	return &message.Message{Topic: topic, Body: []byte(body)}
}

func TestNewChecksOptions(t *testing.T) {
	for name, o := range map[string]client.Options{
		"no name server":    {},
		"no port":           {NameServers: []string{"127.0.0.1"}},
		"bad instance name": {NameServers: []string{"127.0.0.1:9876"}, InstanceName: "a@b"},
	} {
		if _, err := client.New(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}

func TestClientIDNamesHostAndInstance(t *testing.T) {
	c, err := client.New(client.Options{NameServers: []string{"127.0.0.1:9876"}, InstanceName: "one"})
	if err != nil {
		t.Fatal(err)
	}
	ip, name, ok := strings.Cut(c.ID(), "@")
	if !ok || ip == "" || name != "one" {
		t.Errorf("client id %q", c.ID())
	}
}

func TestRouteAsksForStrictJSONOfAModernVersion(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 2)
	var asked atomic.Bool
	cluster.Control(protocol.GetRouteInfoByTopic, func(r clienttest.Request) clienttest.Verdict {
		var h protocol.GetRouteInfoRequest
		if err := r.Command.DecodeHeader(&h); err == nil && h.AcceptStandardJSONOnly && r.Command.Version == 479 {
			asked.Store(true)
		}
		return clienttest.Verdict{}
	})
	c, _ := start(t, cluster, client.Options{})
	r, err := c.Route(t.Context(), "orders")
	if err != nil {
		t.Fatal(err)
	}
	if !asked.Load() {
		t.Error("acceptStandardJsonOnly or the version is missing")
	}
	if len(r.Write) != 2 || len(r.Read) != 2 || r.Write[1].QueueID != 1 {
		t.Errorf("route %+v", r)
	}
	if addr, ok := r.Master("broker-a"); !ok || addr != cluster.Broker("broker-a").Addr() {
		t.Errorf("master %q", addr)
	}
}

func TestRouteOfUnknownTopic(t *testing.T) {
	c, _ := start(t, clienttest.New(t, 1, 1), client.Options{})
	_, err := c.Route(t.Context(), "nowhere")
	var answer *protocol.Error
	if !errors.Is(err, client.ErrTopicNotFound) || !errors.As(err, &answer) || answer.Code != protocol.TopicNotExist {
		t.Errorf("got %v", err)
	}
}

func TestRouteIsKeptFresh(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 2)
	c, _ := start(t, cluster, client.Options{RouteInterval: 5 * time.Millisecond})
	if _, err := c.Route(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	cluster.Broker("broker-a").CreateTopic("orders", 5)
	clienttest.Await(t, "the new queues", func() bool {
		r, err := c.Route(t.Context(), "orders")
		return err == nil && len(r.Write) == 5
	})
}

func TestNameServerThatFailsIsLeftForTheNext(t *testing.T) {
	cluster := clienttest.New(t, 3, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	c, _ := start(t, cluster, client.Options{})
	for i := range 2 {
		cluster.StopNameServer(i)
		if _, err := c.QueryRoute(t.Context(), "orders"); err != nil {
			t.Fatalf("with %d name servers down: %v", i+1, err)
		}
	}
	cluster.StopNameServer(2)
	if _, err := c.QueryRoute(t.Context(), "orders"); !errors.Is(err, client.ErrUnavailable) {
		t.Errorf("with all name servers down: %v", err)
	}
}

func TestSilentNameServerLeavesTimeForTheNext(t *testing.T) {
	cluster := clienttest.New(t, 2, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	var asked atomic.Int32
	cluster.Control(protocol.GetRouteInfoByTopic, func(clienttest.Request) clienttest.Verdict {
		return clienttest.Verdict{Ignore: asked.Add(1) == 1}
	})
	c, _ := start(t, cluster, client.Options{})
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	if _, err := c.QueryRoute(ctx, "orders"); err != nil {
		t.Errorf("%v after %d requests", err, asked.Load())
	}
}

func TestServerGoingAwayIsAskedAgainOnANewConnection(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	conns := make(chan uint64, 2)
	cluster.Control(protocol.GetRouteInfoByTopic, func(r clienttest.Request) clienttest.Verdict {
		conns <- r.Conn.ID()
		if len(conns) == 1 {
			return clienttest.Refuse(protocol.GoAway, "please go away")
		}
		return clienttest.Verdict{}
	})
	c, _ := start(t, cluster, client.Options{})
	if _, err := c.Route(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if first, second := <-conns, <-conns; first == second {
		t.Error("asked again on the same connection")
	}
}

func TestTimedOutConnectionIsReplaced(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	conns := make(chan uint64, 2)
	cluster.Control(protocol.GetRouteInfoByTopic, func(r clienttest.Request) clienttest.Verdict {
		conns <- r.Conn.ID()
		return clienttest.Verdict{Ignore: len(conns) == 1}
	})
	c, _ := start(t, cluster, client.Options{CallTimeout: 300 * time.Millisecond})
	if _, err := c.QueryRoute(t.Context(), "orders"); !errors.Is(err, client.ErrUnavailable) {
		t.Fatalf("silent server: %v", err)
	}
	if _, err := c.QueryRoute(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	if first, second := <-conns, <-conns; first == second {
		t.Error("the dead connection was used again")
	}
}

func TestClientWithoutMembersSendsNoHeartbeat(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	c, _ := start(t, cluster, client.Options{HeartbeatInterval: time.Millisecond, RouteInterval: time.Millisecond})
	if _, err := c.Route(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	seen := cluster.Requests(protocol.GetRouteInfoByTopic)
	clienttest.Await(t, "some rounds", func() bool { return cluster.Requests(protocol.GetRouteInfoByTopic) > seen+20 })
	if n := cluster.Requests(protocol.Heartbeat); n != 0 {
		t.Errorf("%d heartbeats", n)
	}
}

func TestProducerGroupIsReportedAndUnregistered(t *testing.T) {
	cluster := clienttest.New(t, 1, 2)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	cluster.Broker("broker-b").CreateTopic("orders", 1)
	c, halt := start(t, cluster, client.Options{HeartbeatInterval: time.Millisecond})
	p := producer(t, c, client.ProducerOptions{})
	if _, err := p.Send(t.Context(), textMessage("orders", "x")); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{"broker-a", "broker-b"} {
		clienttest.Await(t, "the heartbeat at "+name, func() bool {
			m := cluster.Broker(name).Members("producer:producers")
			return len(m) == 1 && m[0] == c.ID()
		})
	}
	halt()
	for _, name := range []string{"broker-a", "broker-b"} {
		if m := cluster.Broker(name).Members("producer:producers"); len(m) != 0 {
			t.Errorf("%s still knows %v", name, m)
		}
	}
}

func TestClosedProducerIsUnregisteredWithTheLastOfItsGroup(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	c, _ := start(t, cluster, client.Options{})
	first, second := producer(t, c, client.ProducerOptions{}), producer(t, c, client.ProducerOptions{})
	if _, err := first.Send(t.Context(), textMessage("orders", "x")); err != nil {
		t.Fatal(err)
	}
	first.Close(t.Context())
	if n := cluster.Requests(protocol.UnregisterClient); n != 0 {
		t.Errorf("unregistered while another producer is there")
	}
	second.Close(t.Context())
	if n := cluster.Requests(protocol.UnregisterClient); n != 1 {
		t.Errorf("%d requests to unregister, want 1", n)
	}
}

func TestOffsets(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	b := cluster.Broker("broker-a")
	b.CreateTopic("orders", 1)
	c, _ := start(t, cluster, client.Options{})
	p := producer(t, c, client.ProducerOptions{})
	for range 5 {
		if _, err := p.Send(t.Context(), textMessage("orders", "x")); err != nil {
			t.Fatal(err)
		}
	}
	b.Expire("orders", 0, 2)
	mq := protocol.MessageQueue{Topic: "orders", BrokerName: "broker-a"}
	ctx := t.Context()
	check := func(what string, want int64) func(int64, error) {
		return func(got int64, err error) {
			t.Helper()
			if err != nil || got != want {
				t.Errorf("%s: %d, %v, want %d", what, got, err, want)
			}
		}
	}
	check("max", 5)(c.MaxOffset(ctx, mq))
	check("min", 2)(c.MinOffset(ctx, mq))
	check("by time, all newer", 2)(c.OffsetByTime(ctx, mq, time.Now().Add(-time.Hour)))
	check("by time, all older", 5)(c.OffsetByTime(ctx, mq, time.Now().Add(time.Hour)))
	if _, known, err := c.CommittedOffset(ctx, "group", mq); known || err != nil {
		t.Errorf("offset of a new group: %v, %v", known, err)
	}
	if err := c.CommitOffset(ctx, "group", mq, 4); err != nil {
		t.Fatal(err)
	}
	if offset, known, err := c.CommittedOffset(ctx, "group", mq); offset != 4 || !known || err != nil {
		t.Errorf("committed %d, %v, %v", offset, known, err)
	}
}

func TestPullStatuses(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	b := cluster.Broker("broker-a")
	b.CreateTopic("orders", 1)
	c, _ := start(t, cluster, client.Options{})
	p := producer(t, c, client.ProducerOptions{})
	for _, body := range []string{"a", "b", "c"} {
		if _, err := p.Send(t.Context(), textMessage("orders", body)); err != nil {
			t.Fatal(err)
		}
	}
	b.Expire("orders", 0, 1)
	mq := protocol.MessageQueue{Topic: "orders", BrokerName: "broker-a"}
	for _, tt := range []struct {
		offset int64
		want   client.PullStatus
		next   int64
		count  int
	}{
		{1, client.PullFound, 3, 2},
		{3, client.PullNoNew, 3, 0},
		{0, client.PullOffsetIllegal, 1, 0},
		{9, client.PullOffsetIllegal, 3, 0},
	} {
		r, err := c.Pull(t.Context(), client.PullRequest{Queue: mq, Group: "group", Offset: tt.offset})
		if err != nil || r.Status != tt.want || r.Next != tt.next || len(r.Messages) != tt.count || r.Max != 3 {
			t.Errorf("pull at %d: %+v, %v", tt.offset, r, err)
		}
	}
	r, err := c.Pull(t.Context(), client.PullRequest{Queue: mq, Group: "group", Offset: 1, Max: 1})
	if err != nil || len(r.Messages) != 1 || string(r.Messages[0].Body) != "b" || r.Messages[0].QueueOffset != 1 {
		t.Errorf("one message: %+v, %v", r, err)
	}
	cluster.Control(protocol.PullMessage, func(clienttest.Request) clienttest.Verdict {
		return clienttest.Verdict{Answer: protocol.NewResponse(protocol.PullRetryImmediately, "NO_MATCHED_MESSAGE",
			&protocol.PullMessageResponse{NextBeginOffset: 7}, nil)}
	})
	if r, err := c.Pull(t.Context(), client.PullRequest{Queue: mq, Group: "group", Offset: 1}); err != nil || r.Status != client.PullNoMatched || r.Next != 7 {
		t.Errorf("no match: %+v, %v", r, err)
	}
}
