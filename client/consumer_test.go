package client_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/client/clienttest"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// inbox records what a listener consumed, per queue.
type inbox struct {
	mu     sync.Mutex
	bodies map[protocol.MessageQueue][]string
	total  int
}

func (b *inbox) listen(_ context.Context, ms []*message.Message) error {
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, m := range ms {
		if b.bodies == nil {
			b.bodies = make(map[protocol.MessageQueue][]string)
		}
		mq := protocol.MessageQueue{Topic: m.Topic, QueueID: m.QueueID}
		b.bodies[mq] = append(b.bodies[mq], string(m.Body))
		b.total++
	}
	return nil
}

func (b *inbox) count() int {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.total
}

func (b *inbox) all() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	var all []string
	for _, list := range b.bodies {
		all = append(all, list...)
	}
	slices.Sort(all)
	return all
}

// pushOptions are those of a consumer of "orders" from the first message on,
// with short intervals.
func pushOptions(l client.Listener) client.PushOptions {
	return client.PushOptions{
		Group: "group", Subscriptions: map[string]string{"orders": "*"}, Listener: l, FromWhere: client.FromFirst,
		RetryInterval: time.Millisecond, PullErrorInterval: time.Millisecond, CommitInterval: 2 * time.Millisecond,
		Suspend: time.Second, RebalanceInterval: time.Hour,
	}
}

func consumer(t *testing.T, c *client.Client, o client.PushOptions) (p *client.PushConsumer, halt func()) {
	t.Helper()
	p, err := client.NewPushConsumer(c, o)
	if err != nil {
		t.Fatal(err)
	}
	return p, run(t, p.Run)
}

// fill sends numbered messages round the queues of "orders".
func fill(t *testing.T, p *client.Producer, from, to int) {
	t.Helper()
	for i := from; i < to; i++ {
		if _, err := p.Send(t.Context(), textMessage("orders", fmt.Sprintf("%04d", i))); err != nil {
			t.Fatal(err)
		}
	}
}

// consuming is a cluster with a topic, and a client and a producer on it.
func consuming(t *testing.T, brokers, queues int) (*clienttest.Cluster, *client.Client, *client.Producer) {
	t.Helper()
	cluster := clienttest.New(t, 1, brokers)
	for i := range brokers {
		cluster.Broker("broker-"+string(rune('a'+i))).CreateTopic("orders", queues)
	}
	c, _ := start(t, cluster, client.Options{})
	return cluster, c, producer(t, c, client.ProducerOptions{})
}

func TestPushConsumerConsumesEverythingOnce(t *testing.T) {
	_, c, p := consuming(t, 2, 3)
	fill(t, p, 0, 100)
	var got inbox
	consumer(t, c, pushOptions(got.listen))
	fill(t, p, 100, 200)
	clienttest.Await(t, "200 messages", func() bool { return got.count() >= 200 })
	all := got.all()
	if len(slices.Compact(slices.Clone(all))) != 200 || len(all) != 200 {
		t.Errorf("%d messages, %d different ones", len(all), len(slices.Compact(all)))
	}
}

func TestQueueIsConsumedInOrder(t *testing.T) {
	_, c, p := consuming(t, 1, 3)
	var got inbox
	o := pushOptions(got.listen)
	o.PullBatch, o.BatchSize = 3, 2
	consumer(t, c, o)
	fill(t, p, 0, 90)
	clienttest.Await(t, "90 messages", func() bool { return got.count() >= 90 })
	for mq, list := range got.bodies {
		if len(list) != 30 || !slices.IsSorted(list) {
			t.Errorf("queue %d: %v", mq.QueueID, list)
		}
	}
}

func TestConsumerGoesOnWhereItStopped(t *testing.T) {
	cluster, c, p := consuming(t, 1, 2)
	fill(t, p, 0, 20)
	var first, second inbox
	_, halt := consumer(t, c, pushOptions(first.listen))
	clienttest.Await(t, "20 messages", func() bool { return first.count() == 20 })
	halt()
	for id := range int32(2) {
		if offset := cluster.Broker("broker-a").Offset("group", "orders", id); offset != 10 {
			t.Errorf("queue %d committed at %d, want 10", id, offset)
		}
	}
	if m := cluster.Broker("broker-a").Members("group"); len(m) != 0 {
		t.Errorf("still registered: %v", m)
	}
	fill(t, p, 20, 30)
	consumer(t, c, pushOptions(second.listen))
	clienttest.Await(t, "the rest", func() bool { return second.count() >= 10 })
	if all := second.all(); len(all) != 10 || all[0] != "0020" {
		t.Errorf("second consumer got %v", all)
	}
}

func TestMembersShareQueuesAsSoonAsTheyCome(t *testing.T) {
	cluster, c, p := consuming(t, 1, 4)
	var first, second inbox
	one, _ := consumer(t, c, pushOptions(first.listen))
	clienttest.Await(t, "all queues", func() bool { return len(queuesOf(one, "orders")) == 4 })
	other, _ := start(t, cluster, client.Options{})
	two, haltTwo := consumer(t, other, pushOptions(second.listen))
	clienttest.Await(t, "half of the queues each", func() bool {
		return len(queuesOf(one, "orders")) == 2 && len(queuesOf(two, "orders")) == 2
	})
	fill(t, p, 0, 40)
	clienttest.Await(t, "all messages", func() bool { return first.count()+second.count() == 40 })
	if first.count() != 20 {
		t.Errorf("first consumed %d of 40", first.count())
	}
	haltTwo()
	clienttest.Await(t, "all queues again", func() bool { return len(queuesOf(one, "orders")) == 4 })
	fill(t, p, 40, 80)
	clienttest.Await(t, "all messages", func() bool { return first.count()+second.count() == 80 })
}

func queuesOf(p *client.PushConsumer, topic string) []protocol.MessageQueue {
	return slices.DeleteFunc(p.Queues(), func(mq protocol.MessageQueue) bool { return mq.Topic != topic })
}

func TestFailedBatchComesAgainBeforeWhatFollows(t *testing.T) {
	cluster, c, p := consuming(t, 1, 1)
	fill(t, p, 0, 10)
	var got inbox
	var failures atomic.Int32
	var reconsumed atomic.Int32
	let := make(chan struct{})
	consumer(t, c, pushOptions(func(ctx context.Context, ms []*message.Message) error {
		if string(ms[0].Body) == "0004" {
			reconsumed.Store(ms[0].ReconsumeTimes)
			select {
			case <-let:
			default:
				failures.Add(1)
				return errors.New("not now")
			}
		}
		return got.listen(ctx, ms)
	}))
	clienttest.Await(t, "failures", func() bool { return failures.Load() > 3 })
	clienttest.Await(t, "the commit of what came before", func() bool { return cluster.Broker("broker-a").Offset("group", "orders", 0) == 4 })
	if n := got.count(); n != 4 {
		t.Errorf("%d messages consumed while the fifth fails", n)
	}
	close(let)
	clienttest.Await(t, "all messages", func() bool { return got.count() == 10 })
	if list := got.all(); !slices.IsSorted(got.bodies[protocol.MessageQueue{Topic: "orders"}]) || len(list) != 10 {
		t.Errorf("order %v", got.bodies)
	}
	if n := reconsumed.Load(); n != failures.Load() {
		t.Errorf("reconsume times %d after %d failures", n, failures.Load())
	}
}

func TestOnlyTheConsumedPrefixIsCommittedAtStop(t *testing.T) {
	cluster, c, p := consuming(t, 1, 1)
	fill(t, p, 0, 10)
	o := pushOptions(func(ctx context.Context, ms []*message.Message) error {
		if string(ms[0].Body) == "0003" {
			<-ctx.Done()
			return ctx.Err()
		}
		return nil
	})
	o.CommitInterval = time.Hour
	started := make(chan struct{}, 100)
	inner := o.Listener
	o.Listener = func(ctx context.Context, ms []*message.Message) error {
		started <- struct{}{}
		return inner(ctx, ms)
	}
	_, halt := consumer(t, c, o)
	for range 4 {
		<-started
	}
	halt()
	if offset := cluster.Broker("broker-a").Offset("group", "orders", 0); offset != 3 {
		t.Errorf("committed %d, want 3", offset)
	}
}

func TestPullingPausesWhileTheQueueIsFull(t *testing.T) {
	for _, limit := range []client.PushOptions{{MaxQueueMessages: 8}, {MaxQueueBytes: 8 * (4 + 42)}} {
		cluster, c, p := consuming(t, 1, 1)
		fill(t, p, 0, 100)
		hold, entered := make(chan struct{}), make(chan struct{}, 100)
		var got inbox
		o := pushOptions(func(ctx context.Context, ms []*message.Message) error {
			entered <- struct{}{}
			select {
			case <-hold:
			case <-ctx.Done():
				return ctx.Err()
			}
			return got.listen(ctx, ms)
		})
		o.MaxQueueMessages, o.MaxQueueBytes, o.PullBatch = limit.MaxQueueMessages, limit.MaxQueueBytes, 4
		var highest atomic.Int64
		cluster.Control(protocol.PullMessage, func(r clienttest.Request) clienttest.Verdict {
			var h protocol.PullMessageRequest
			if r.Command.DecodeHeader(&h) == nil && string(h.Topic) == "orders" {
				highest.Store(max(highest.Load(), h.QueueOffset+int64(h.MaxMsgNums)))
				// A pull is allowed only beside less than the limit.
				if held := h.QueueOffset - int64(got.count()); held >= 8 {
					t.Errorf("pull at %d while %d are held", h.QueueOffset, held)
				}
			}
			return clienttest.Verdict{}
		})
		consumer(t, c, o)
		<-entered
		clienttest.Await(t, "the pulls that fill it", func() bool { return highest.Load() >= 8 })
		close(hold)
		clienttest.Await(t, "all messages", func() bool { return got.count() == 100 })
	}
}

func TestConsumerMovesToWhereTheBrokerSays(t *testing.T) {
	cluster, c, p := consuming(t, 1, 1)
	b := cluster.Broker("broker-a")
	fill(t, p, 0, 10)
	b.Expire("orders", 0, 4)
	var got inbox
	consumer(t, c, pushOptions(got.listen)) // FromFirst asks for offset 0
	clienttest.Await(t, "what is left", func() bool { return got.count() == 6 })
	clienttest.Await(t, "the commit", func() bool { return b.Offset("group", "orders", 0) == 10 })
	// A broker that lost its queue: the offset is far beyond the end.
	b.DeleteTopic("orders")
	b.CreateTopic("orders", 1)
	fill(t, p, 10, 11)
	clienttest.Await(t, "the commit of the new place", func() bool { return b.Offset("group", "orders", 0) <= 1 })
	fill(t, p, 11, 12)
	clienttest.Await(t, "the newest message", func() bool { return slices.Contains(got.all(), "0011") })
}

func TestFromWhere(t *testing.T) {
	for _, tt := range []struct {
		name string
		from client.FromWhere
		at   time.Time
		want string
	}{
		{"first", client.FromFirst, time.Time{}, "0000"},
		{"last", client.FromLast, time.Time{}, "0010"},
		{"half an hour ago", client.FromTimestamp, time.Time{}, "0000"},
		{"in an hour", client.FromTimestamp, time.Now().Add(time.Hour), "0010"},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster, c, p := consuming(t, 1, 1)
			fill(t, p, 0, 10)
			var got inbox
			o := pushOptions(got.listen)
			o.FromWhere, o.FromTime = tt.from, tt.at
			one, _ := consumer(t, c, o)
			clienttest.Await(t, "the queue", func() bool { return len(queuesOf(one, "orders")) == 1 })
			// The start is committed even when nothing has been consumed yet.
			clienttest.Await(t, "a commit", func() bool { return cluster.Broker("broker-a").Offset("group", "orders", 0) >= 0 })
			fill(t, p, 10, 11)
			clienttest.Await(t, "the newest message", func() bool { return slices.Contains(got.all(), "0010") })
			if first := got.all()[0]; first != tt.want {
				t.Errorf("first message %s, want %s", first, tt.want)
			}
		})
	}
}

func TestConsumerOutlivesABrokerRestart(t *testing.T) {
	cluster, c, p := consuming(t, 1, 2)
	var got inbox
	o := pushOptions(got.listen)
	o.RebalanceInterval = 10 * time.Millisecond
	consumer(t, c, o)
	fill(t, p, 0, 10)
	clienttest.Await(t, "the first messages", func() bool { return got.count() == 10 })
	cluster.Broker("broker-a").Stop()
	cluster.Broker("broker-a").Restart() // it has forgotten the member
	clienttest.Await(t, "the member", func() bool { return len(cluster.Broker("broker-a").Members("group")) == 1 })
	fill(t, p, 10, 20)
	clienttest.Await(t, "the rest", func() bool { return got.count() >= 20 })
	if all := got.all(); len(slices.Compact(all)) != 20 {
		t.Errorf("got %v", all)
	}
}

func TestTagsAreComparedByText(t *testing.T) {
	_, c, p := consuming(t, 1, 1)
	// "Aa" and "BB" have the same hash, so a broker takes one for the other.
	for _, tag := range []string{"Aa", "BB", "C", ""} {
		m := textMessage("orders", "tag "+tag)
		m.SetProperty(message.PropertyTags, tag)
		if _, err := p.Send(t.Context(), m); err != nil {
			t.Fatal(err)
		}
	}
	var got inbox
	o := pushOptions(got.listen)
	o.Subscriptions = map[string]string{"orders": " Aa || C "}
	consumer(t, c, o)
	clienttest.Await(t, "the matching ones", func() bool { return got.count() == 2 })
	if all := got.all(); !slices.Equal(all, []string{"tag Aa", "tag C"}) {
		t.Errorf("got %v", all)
	}
}

func TestFilteredMessagesAreCommittedAsConsumed(t *testing.T) {
	cluster, c, p := consuming(t, 1, 1)
	fill(t, p, 0, 5) // without tags
	var got inbox
	o := pushOptions(got.listen)
	o.Subscriptions = map[string]string{"orders": "none"}
	consumer(t, c, o)
	clienttest.Await(t, "the commit", func() bool { return cluster.Broker("broker-a").Offset("group", "orders", 0) == 5 })
	if got.count() != 0 {
		t.Errorf("consumed %v", got.all())
	}
}

func TestCompressedBodiesArriveAsSent(t *testing.T) {
	_, c, p := consuming(t, 1, 1)
	long := string(make([]byte, 10000))
	if _, err := p.Send(t.Context(), textMessage("orders", long)); err != nil {
		t.Fatal(err)
	}
	var got inbox
	consumer(t, c, pushOptions(got.listen))
	clienttest.Await(t, "the message", func() bool { return got.count() == 1 })
	if got.all()[0] != long {
		t.Errorf("%d bytes arrived", len(got.all()[0]))
	}
}

func TestRetriedMessagesKeepTheirTopic(t *testing.T) {
	cluster, c, p := consuming(t, 1, 1)
	cluster.Broker("broker-a").CreateTopic("%RETRY%group", 1)
	m := textMessage("%RETRY%group", "again")
	m.SetProperty(message.PropertyRetryTopic, "orders")
	if _, err := p.SendTo(t.Context(), protocol.MessageQueue{Topic: m.Topic, BrokerName: "broker-a"}, *m); err != nil {
		t.Fatal(err)
	}
	var got inbox
	consumer(t, c, pushOptions(got.listen))
	clienttest.Await(t, "the message", func() bool { return got.count() == 1 })
	if len(got.bodies[protocol.MessageQueue{Topic: "orders"}]) != 1 {
		t.Errorf("got %v", got.bodies)
	}
}

func TestConsumerWaitsForItsTopic(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	c, _ := start(t, cluster, client.Options{})
	var got inbox
	consumer(t, c, pushOptions(got.listen))
	clienttest.Await(t, "a look for the topic", func() bool { return cluster.Requests(protocol.GetRouteInfoByTopic) > 1 })
	p := producer(t, c, client.ProducerOptions{})
	fill(t, p, 0, 3)
	clienttest.Await(t, "the messages", func() bool { return got.count() == 3 })
}

func TestPullGoesOnAfterErrors(t *testing.T) {
	cluster, c, p := consuming(t, 1, 1)
	fill(t, p, 0, 3)
	var pulls atomic.Int32
	cluster.Control(protocol.PullMessage, func(clienttest.Request) clienttest.Verdict {
		switch pulls.Add(1) {
		case 1:
			return clienttest.Refuse(protocol.FlowControl, "slowly")
		case 2:
			return clienttest.Refuse(protocol.SystemBusy, "busy")
		case 3:
			return clienttest.Verdict{Close: true}
		}
		return clienttest.Verdict{}
	})
	var got inbox
	consumer(t, c, pushOptions(got.listen))
	clienttest.Await(t, "the messages", func() bool { return got.count() == 3 })
}

func TestSecondConsumerOfAGroupOnOneClientIsRefused(t *testing.T) {
	_, c, _ := consuming(t, 1, 1)
	var got inbox
	one, _ := consumer(t, c, pushOptions(got.listen))
	clienttest.Await(t, "the queue", func() bool { return len(queuesOf(one, "orders")) == 1 })
	two, err := client.NewPushConsumer(c, pushOptions(got.listen))
	if err != nil {
		t.Fatal(err)
	}
	if err := two.Run(t.Context()); err == nil {
		t.Error("it ran")
	}
}

func TestClientWaitsForConsumersWhenItStops(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	c, err := client.New(client.Options{NameServers: cluster.NameServers()})
	if err != nil {
		t.Fatal(err)
	}
	var got inbox
	o := pushOptions(got.listen)
	o.CommitInterval = time.Hour
	p, err := client.NewPushConsumer(c, o)
	if err != nil {
		t.Fatal(err)
	}
	// Both end with one context, as they do in a program.
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error, 2)
	go func() { ended <- c.Run(ctx) }()
	go func() { ended <- p.Run(ctx) }()
	fill(t, producer(t, c, client.ProducerOptions{}), 0, 5)
	clienttest.Await(t, "the messages", func() bool { return got.count() == 5 })
	cancel()
	for range 2 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	clienttest.Await(t, "the commit", func() bool { return cluster.Broker("broker-a").Offset("group", "orders", 0) >= 4 })
}

func TestPushOptionsAreChecked(t *testing.T) {
	_, c, _ := consuming(t, 1, 1)
	good := pushOptions(func(context.Context, []*message.Message) error { return nil })
	for name, change := range map[string]func(*client.PushOptions){
		"group":        func(o *client.PushOptions) { o.Group = "a b" },
		"topic":        func(o *client.PushOptions) { o.Subscriptions = map[string]string{"a b": "*"} },
		"expression":   func(o *client.PushOptions) { o.Subscriptions = map[string]string{"a": "||"} },
		"no topics":    func(o *client.PushOptions) { o.Subscriptions = nil },
		"no listener":  func(o *client.PushOptions) { o.Listener = nil },
		"pull batch":   func(o *client.PushOptions) { o.PullBatch = 1025 },
		"listener few": func(o *client.PushOptions) { o.BatchSize = -1 },
	} {
		o := good
		change(&o)
		if _, err := client.NewPushConsumer(c, o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
