package sidecar

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/upstream"
)

func deadline(t testing.TB) context.Context {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	t.Cleanup(cancel)
	return ctx
}

// TestProducerNeedsOnlyTheSidecarsAddress uses it as a name server's.
func TestProducerNeedsOnlyTheSidecarsAddress(t *testing.T) {
	s, up := upstreamOf(t, oneQueue(10))
	p := newProducer(t, s.sidecar.RocketMQAddr().String())
	var bodies, keys []string
	for i := range 20 {
		m := &message.Message{Topic: "orders", Flag: int32(i), Body: fmt.Appendf(nil, "m-%d", i)}
		m.SetProperty(message.PropertyTags, "red")
		m.SetProperty("site", "A 7")
		r, err := p.Send(deadline(t), m)
		if err != nil {
			t.Fatal(err)
		}
		if r.Status != client.SendOK || r.QueueOffset != int64(i) || r.Queue.QueueID != 0 {
			t.Errorf("message %d is stored as %+v", i, r)
		}
		bodies, keys = append(bodies, string(m.Body)), append(keys, r.MessageID)
	}
	// A batch, as one request.
	batch := []message.Message{{Topic: "orders", Body: []byte("b-0")}, {Topic: "orders", Body: []byte("b-1")}}
	r, err := p.SendTo(deadline(t), protocol.MessageQueue{Topic: "orders", BrokerName: "sluice", QueueID: 0}, batch...)
	if err != nil || r.QueueOffset != 20 {
		t.Fatalf("a batch is stored as %+v: %v", r, err)
	}
	bodies, keys = append(bodies, "b-0", "b-1"), append(keys, strings.Split(r.MessageID, ",")...)

	up.has(t, "orders/0", 22)
	up.wantBodies(t, "orders/0", 1, bodies)
	for i, m := range up.of("orders/0") {
		if m.key != keys[i] {
			t.Errorf("message %d has key %q upstream, the producer was told %q", i, m.key, keys[i])
		}
		if i < 20 && (m.props["TAGS"] != "red" || m.props["site"] != "A 7") {
			t.Errorf("message %d has properties %v", i, m.props)
		}
	}
}

func TestConsumersReadTheLocalTopic(t *testing.T) {
	s, _ := upstreamOf(t, oneQueue(10))
	s.mustLines("orders", "", numbered("m", 5)...)
	c := newClient(t, s.sidecar.RocketMQAddr().String())
	var got []string
	for at := int64(0); at < 5; {
		r, err := c.Pull(deadline(t), client.PullRequest{
			Queue: protocol.MessageQueue{Topic: "orders", BrokerName: "sluice"}, Group: "local", Offset: at, Suspend: patience / 2,
		})
		if err != nil || r.Status != client.PullFound {
			t.Fatalf("pull at %d: %v, %v", at, r.Status, err)
		}
		for _, m := range r.Messages {
			got = append(got, string(m.Body))
		}
		at = r.Next
	}
	if strings.Join(got, " ") != strings.Join(numbered("m", 5), " ") {
		t.Errorf("read %q", got)
	}
}

// TestLocalTopicHasTheUpstreamsQueues so that one local queue feeds one queue
// upstream, also when that is more than the default.
func TestLocalTopicHasTheUpstreamsQueues(t *testing.T) {
	up := newScript(nil)
	up.queues = map[string]int{"narrow": 2, "wide": 24, "posted": 24}
	s := start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, nil)
	c := newClient(t, s.sidecar.RocketMQAddr().String())
	for topic, want := range map[string]int{"narrow": 2, "wide": 24} {
		route, err := c.Route(deadline(t), topic)
		if err != nil || len(route.Write) != want {
			t.Errorf("topic %s has the route %+v (%v), want %d queues", topic, route, err, want)
		}
	}
	s.must("posted", "x")
	if route, err := c.Route(deadline(t), "posted"); err != nil || len(route.Write) != 24 {
		t.Errorf("a topic made by a post has the route %+v (%v), want 24 queues", route, err)
	}
	if _, err := c.Route(deadline(t), "unknown"); !errors.Is(err, client.ErrTopicNotFound) {
		t.Errorf("the route of an unknown topic: %v", err)
	}
	s.must("new", "x")
	if route, err := c.Route(deadline(t), "new"); err != nil || len(route.Write) != 4 {
		t.Errorf("a topic unknown upstream has the route %+v (%v), want the default of 4 queues", route, err)
	}
	for _, topic := range []string{"%RETRY%group", "%DLQ%group"} {
		if _, err := c.Route(deadline(t), topic); !errors.Is(err, client.ErrTopicNotFound) {
			t.Errorf("the route of %s: %v", topic, err)
		}
	}
}

// TestTopicWithoutAnUpstreamIsTakenAtOnce: a queue count that nobody tells must
// not hold up producers.
func TestTopicIsTakenWhileItsUpstreamIsSilent(t *testing.T) {
	up := &silent{script: newScript(down)}
	s := start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, nil)
	p := newProducer(t, s.sidecar.RocketMQAddr().String())
	if _, err := p.Send(deadline(t), &message.Message{Topic: "orders", Body: []byte("x")}); err != nil {
		t.Fatal(err)
	}
	s.must("posted", "x", "X-Sluice-Ordering-Key", "k")
}

// silent never says how many queues a topic has.
type silent struct{ *script }

func (s *silent) Queues(ctx context.Context, _ string) (int, error) {
	<-ctx.Done()
	return 0, ctx.Err()
}

func TestAdminsFindTheSidecar(t *testing.T) {
	s, _ := upstreamOf(t, nil)
	s.must("orders", "x")
	addr := s.sidecar.RocketMQAddr().String()
	var cluster protocol.ClusterInfo
	answer := s.request(protocol.GetBrokerClusterInfo, nil, nil)
	if err := protocol.Unmarshal(answer.Body, &cluster); err != nil || cluster.BrokerAddrTable["sluice"].BrokerAddrs[0] != addr ||
		len(cluster.ClusterAddrTable["sluice"]) != 1 {
		t.Errorf("cluster info is %s (%v)", answer.Body, err)
	}
	var list protocol.TopicList
	answer = s.request(protocol.GetAllTopicListFromNameServer, nil, nil)
	if err := protocol.Unmarshal(answer.Body, &list); err != nil || !strings.Contains(strings.Join(list.TopicList, " "), "orders") {
		t.Errorf("topic list is %s (%v)", answer.Body, err)
	}
	if answer := s.request(protocol.RequestCode(9999), nil, nil); answer.ResponseCode() != protocol.RequestCodeNotSupported {
		t.Errorf("an unknown request is answered with code %d", answer.Code)
	}
}

// TestOldClientGetsARouteThatItsParserTakes: before 4.9.4 keys of maps were
// written without quotes.
func TestOldClientGetsItsFormOfRoute(t *testing.T) {
	s, _ := upstreamOf(t, nil)
	s.must("orders", "x")
	answer := s.request(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: "orders", AcceptStandardJSONOnly: true}, nil)
	if !strings.Contains(string(answer.Body), `{"0":"127.0.0.1:`) {
		t.Errorf("a client that asks for standard JSON gets %s", answer.Body)
	}
	var route protocol.TopicRouteData
	if err := protocol.Unmarshal(answer.Body, &route); err != nil || len(route.QueueDatas) != 1 || route.QueueDatas[0].Perm != 6 {
		t.Errorf("the route is %+v: %v", route, err)
	}
}

func TestShutDoorsAreShut(t *testing.T) {
	s := start(t, t.TempDir(), map[string]upstream.Sender{"up": newScript(nil)}, func(o *setup) { o.HTTP.Listen = "" })
	if addr := s.sidecar.HTTPAddr(); addr != "" {
		t.Errorf("the HTTP door is open at %s", addr)
	}
	up := newScript(nil)
	s = start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, func(o *setup) {
		oneQueue(1)(o)
		o.RocketMQ.Listen = ""
	})
	if addr := s.sidecar.RocketMQAddr(); addr.IsValid() {
		t.Errorf("the RocketMQ door is open at %s", addr)
	}
	s.must("orders", "x")
	up.has(t, "orders/0", 1)
}

// TestOrderingKeyOfANewTopicAsksForItsQueuesOnce: an upstream that answers the
// first question only must not leave a message between two queue counts.
func TestOrderingKeyOfANewTopicAsksForItsQueuesOnce(t *testing.T) {
	up := &fickle{script: newScript(nil)}
	s := start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, nil)
	for range 2 {
		if at := s.must("orders", "x", "X-Sluice-Ordering-Key", "JFK").Queue; at != 15 {
			t.Errorf("the message went to queue %d, want 15", at)
		}
	}
	if n := up.asked.Load(); n != 1 {
		t.Errorf("the upstream was asked %d times", n)
	}
}

// fickle tells its 16 queues once, and is away from then on.
type fickle struct {
	*script
	asked atomic.Int32
}

func (f *fickle) Queues(context.Context, string) (int, error) {
	if f.asked.Add(1) == 1 {
		return 16, nil
	}
	return 0, errScripted
}
