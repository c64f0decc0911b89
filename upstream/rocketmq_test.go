package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicemq/sluice/client/clienttest"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

func rocketMQ(t *testing.T, cluster *clienttest.Cluster, o RocketMQOptions) *RocketMQ {
	t.Helper()
	o.NameServers = cluster.NameServers()
	s, err := NewRocketMQ(o)
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	return s
}

// oneQueue is a cluster with one upstream queue of "orders".
func oneQueue(t *testing.T) (*clienttest.Cluster, *clienttest.Broker) {
	t.Helper()
	cluster := clienttest.New(t, 1, 1)
	b := cluster.Broker("broker-a")
	b.CreateTopic("orders", 1)
	return cluster, b
}

func TestRocketMQKeepsMessagesAsTheyAre(t *testing.T) {
	cluster, b := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{})
	ms := spooled(0, 5)
	ms[1].Flag = 7
	for _, p := range [][2]string{{message.PropertyKeys, "a b"}, {message.PropertyTags, "tag"}, {"mine", "ü = 1"}} {
		ms[1].SetProperty(p[0], p[1])
	}
	for _, batch := range [][]message.Message{ms, ms[1:2]} {
		sendAll(t, s, batch)
		stored := b.Messages("orders", 0)
		stored = stored[len(stored)-len(batch):]
		i := slices.IndexFunc(stored, func(m message.Message) bool { return m.Flag == 7 })
		if i < 0 {
			t.Fatalf("flag lost: %v", bodies(stored))
		}
		want := map[string]string{"UNIQ_KEY": "KEY00001", "KEYS": "a b", "TAGS": "tag", "mine": "ü = 1"}
		if got := message.ParseProperties(stored[i].Properties); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Errorf("batch of %d: properties %v, want %v", len(batch), got, want)
		}
		if stored[i].BornTimestamp != batch[0].BornTimestamp {
			t.Errorf("born %d", stored[i].BornTimestamp)
		}
	}
	if n := cluster.Requests(protocol.SendBatchMessage); n != 1 {
		t.Errorf("%d batches", n)
	}
	if st := s.Stats(); st.Stored != 6 || st.Resent != 0 {
		t.Errorf("stats %+v", st)
	}
}

func TestRocketMQCutsBatchesBySize(t *testing.T) {
	cluster, b := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{MaxBatchBytes: 8 << 10})
	var largest atomic.Int64
	cluster.Control(protocol.SendBatchMessage, func(r clienttest.Request) clienttest.Verdict {
		largest.Store(max(largest.Load(), int64(len(r.Command.Body))))
		return clienttest.Verdict{}
	})
	ms := spooled(0, 1000)
	for i := range ms {
		ms[i].Body = append(ms[i].Body, make([]byte, 500)...)
	}
	ms[500].Body = append(ms[500].Body, make([]byte, 20<<10)...) // larger than a batch: alone
	sendAll(t, s, ms)
	if n := largest.Load(); n > 8<<10 || n < 7<<10 {
		t.Errorf("largest batch has %d bytes", n)
	}
	stored := b.Messages("orders", 0)
	for i := range ms {
		if !bytes.Equal(stored[i].Body, ms[i].Body) {
			t.Fatalf("message %d of %d differs", i, len(stored))
		}
	}
}

func TestRocketMQSendsAloneWhatMustNotShareARequest(t *testing.T) {
	cluster, b := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{})
	ms := spooled(0, 12)
	ms[2].SetProperty(message.PropertyDelay, "3")
	ms[3].SetProperty(message.PropertyTimerDeliverMillis, "1800000000000")
	for i := 6; i < 8; i++ { // as compressed and stored before
		ms[i].SysFlag = message.Compressed | message.CompressionZstd | message.BornHostV6
	}
	for i := 10; i < 12; i++ {
		ms[i].SetProperty(message.PropertyWait, "false")
	}
	sendAll(t, s, ms)
	// 0-1 · 2 · 3 · 4-5 · 6-7 · 8-9 · 10-11
	if batches, singles := cluster.Requests(protocol.SendBatchMessage), cluster.Requests(protocol.SendMessageV2); batches != 5 || singles != 2 {
		t.Errorf("%d batches and %d single requests", batches, singles)
	}
	stored := b.Messages("orders", 0)
	if !slices.Equal(bodies(stored), bodies(ms)) {
		t.Errorf("stored %v", bodies(stored))
	}
	for i := range stored {
		want := ms[i].SysFlag &^ message.BornHostV6
		if stored[i].SysFlag != want {
			t.Errorf("message %d has flag %#x, want %#x", i, stored[i].SysFlag, want)
		}
	}
}

func TestRocketMQWithoutUniqueKeyUsesTheSameOneEachTime(t *testing.T) {
	cluster, b := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{})
	m := spooled(3, 4)[0]
	m.Properties = nil
	sendAll(t, s, []message.Message{m})
	sendAll(t, s, []message.Message{m, spooled(4, 5)[0]})
	stored := b.Messages("orders", 0)
	first, _ := stored[0].Property(message.PropertyUniqueKey)
	second, _ := stored[1].Property(message.PropertyUniqueKey)
	if first == "" || first != second {
		t.Errorf("keys %q and %q", first, second)
	}
}

// failures are the ways in which a request fails, and whether its messages are
// stored all the same.
var failures = []struct {
	name    string
	verdict clienttest.Verdict
	stored  bool
	unknown bool // whether the sender cannot know that nothing was stored
}{
	{"busy", clienttest.Refuse(protocol.SystemBusy, "busy"), false, true},
	{"not available", clienttest.Refuse(protocol.ServiceNotAvailable, "full"), false, true},
	{"connection lost before storing", clienttest.Verdict{Ignore: true, Close: true}, false, true},
	{"connection lost after storing", clienttest.Verdict{Close: true}, true, true},
	{"no answer before storing", clienttest.Verdict{Ignore: true}, false, true},
	{"no answer after storing", clienttest.Verdict{Silent: true}, true, true},
}

func TestRocketMQAcceptsAPrefixWhereverItFails(t *testing.T) {
	const frames, perFrame = 4, 3
	for _, f := range failures {
		for position := range frames {
			t.Run(fmt.Sprintf("%s at request %d", f.name, position), func(t *testing.T) {
				t.Parallel()
				cluster, b := oneQueue(t)
				s := rocketMQ(t, cluster, RocketMQOptions{MaxBatchBytes: 4 << 10, Timeout: time.Second})
				var requests atomic.Int32
				cluster.Control(protocol.SendBatchMessage, func(clienttest.Request) clienttest.Verdict {
					if requests.Add(1) == int32(position)+1 {
						return f.verdict
					}
					return clienttest.Verdict{}
				})
				ms := spooled(0, frames*perFrame)
				for i := range ms { // three to a request
					ms[i].Body = append(ms[i].Body, make([]byte, 1200)...)
				}
				n, err := s.Send(t.Context(), "orders", 0, ms)
				var rejected *RejectedError
				if n != position*perFrame || !errors.Is(err, ErrUnavailable) || errors.As(err, &rejected) {
					t.Fatalf("accepted %d: %v", n, err)
				}
				sendAll(t, s, ms[n:])
				stored := bodies(b.Messages("orders", 0))
				if !slices.Equal(firsts(stored), bodies(ms)) {
					t.Errorf("stored in another order or not at all")
				}
				doubles := 0
				if f.stored {
					doubles = perFrame
				}
				if len(stored) != len(ms)+doubles {
					t.Errorf("%d doubles, want %d", len(stored)-len(ms), doubles)
				}
				if st := s.Stats(); st.Resent != perFrame || st.Stored != uint64(len(ms)) {
					t.Errorf("stats %+v", st)
				}
			})
		}
	}
}

func TestRocketMQCountsAnswers10To12AsStored(t *testing.T) {
	for _, code := range []protocol.ResponseCode{protocol.FlushDiskTimeout, protocol.SlaveNotAvailable, protocol.FlushSlaveTimeout} {
		cluster, _ := oneQueue(t)
		s := rocketMQ(t, cluster, RocketMQOptions{})
		cluster.Control(protocol.SendBatchMessage, func(clienttest.Request) clienttest.Verdict {
			return clienttest.Verdict{Answer: protocol.NewResponse(code, "", &protocol.SendMessageResponse{MsgID: "x"}, nil)}
		})
		if n, err := s.Send(t.Context(), "orders", 0, spooled(0, 3)); n != 3 || err != nil {
			t.Errorf("%s: accepted %d, %v", code, n, err)
		}
	}
}

func TestRocketMQKeepsOrderUnderRandomFailures(t *testing.T) {
	cluster, b := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{MaxBatchBytes: 4 << 10, Timeout: 30 * time.Millisecond})
	var x atomic.Uint32
	x.Store(7)
	cluster.Control(protocol.SendBatchMessage, func(clienttest.Request) clienttest.Verdict {
		v := x.Load()*1664525 + 1013904223
		x.Store(v)
		if pick := v >> 16 % 12; int(pick) < len(failures) {
			return failures[pick].verdict
		}
		return clienttest.Verdict{}
	})
	ms := spooled(0, 600)
	for sent, rounds := 0, 0; sent < len(ms); rounds++ {
		n, err := s.Send(t.Context(), "orders", 0, ms[sent:min(sent+70, len(ms))])
		if err != nil && !errors.Is(err, ErrUnavailable) || rounds > 500 {
			t.Fatalf("after %d: %v", sent, err)
		}
		sent += n
	}
	if stored := bodies(b.Messages("orders", 0)); !slices.Equal(firsts(stored), bodies(ms)) {
		t.Errorf("%d stored, not in order", len(stored))
	}
}

func TestRocketMQFindsTheIllegalMessage(t *testing.T) {
	const count = 500
	for _, bad := range []int{0, 1, 250, 498, 499} {
		t.Run(fmt.Sprint(bad), func(t *testing.T) {
			cluster, b := oneQueue(t)
			s := rocketMQ(t, cluster, RocketMQOptions{})
			refuse := func(r clienttest.Request) clienttest.Verdict {
				if bytes.Contains(r.Command.Body, []byte("poison")) {
					return clienttest.Refuse(protocol.MessageIllegal, "the message is illegal")
				}
				return clienttest.Verdict{}
			}
			cluster.Control(protocol.SendBatchMessage, refuse)
			cluster.Control(protocol.SendMessageV2, refuse)
			ms := spooled(0, count)
			ms[bad].Body = []byte("poison")
			n, err := s.Send(t.Context(), "orders", 0, ms)
			var rejected *RejectedError
			if n != bad || !errors.As(err, &rejected) || errors.Is(err, ErrUnavailable) {
				t.Fatalf("accepted %d: %v", n, err)
			}
			if !strings.Contains(rejected.Reason, "the message is illegal") {
				t.Errorf("reason %q", rejected.Reason)
			}
			if requests := cluster.Requests(protocol.SendBatchMessage) + cluster.Requests(protocol.SendMessageV2); requests > 20 {
				t.Errorf("%d requests to find it", requests)
			}
			sendAll(t, s, ms[bad+1:])
			want := bodies(slices.Delete(slices.Clone(ms), bad, bad+1))
			if got := bodies(b.Messages("orders", 0)); !slices.Equal(got, want) {
				t.Errorf("%d messages stored, want %d", len(got), len(want))
			}
			if st := s.Stats(); st.Rejected != 1 || st.Stored != count-1 {
				t.Errorf("stats %+v", st)
			}
		})
	}
}

func TestRocketMQLearnsWhatSizeTheBrokerTakes(t *testing.T) {
	cluster, b := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{})
	var refused atomic.Int32
	cluster.Control(protocol.SendBatchMessage, func(r clienttest.Request) clienttest.Verdict {
		if len(r.Command.Body) > 20<<10 {
			refused.Add(1)
			return clienttest.Refuse(protocol.MessageIllegal, "message size exceeded")
		}
		return clienttest.Verdict{}
	})
	ms := spooled(0, 2000)
	sendAll(t, s, ms[:1900])
	seen := refused.Load()
	sendAll(t, s, ms[1900:])
	if !slices.Equal(bodies(b.Messages("orders", 0)), bodies(ms)) {
		t.Error("not everything is stored")
	}
	if seen == 0 || seen > 40 || refused.Load() != seen {
		t.Errorf("%d refusals, then %d", seen, refused.Load())
	}
}

func TestRocketMQMapsQueuesByNumber(t *testing.T) {
	cluster := clienttest.New(t, 1, 2)
	cluster.Broker("broker-a").CreateTopic("orders", 2)
	cluster.Broker("broker-b").CreateTopic("orders", 2)
	s := rocketMQ(t, cluster, RocketMQOptions{RouteInterval: 2 * time.Millisecond})
	if n, err := s.Queues(t.Context(), "orders"); n != 4 || err != nil {
		t.Fatalf("%d queues, %v", n, err)
	}
	for round := range 3 {
		for queue := range 8 {
			if n, err := s.Send(t.Context(), "orders", queue, spooled(queue, queue+1)); n != 1 || err != nil {
				t.Fatalf("%d, %v", n, err)
			}
		}
		for id := range int32(2) {
			a, b := cluster.Broker("broker-a").Messages("orders", id), cluster.Broker("broker-b").Messages("orders", id)
			if len(a) != 2*(round+1) || len(b) != 2*(round+1) || string(a[0].Body) != fmt.Sprintf("%05d", id) || string(b[0].Body) != fmt.Sprintf("%05d", id+2) {
				t.Errorf("round %d, queue %d: %v and %v", round, id, bodies(a), bodies(b))
			}
		}
	}
	cluster.Broker("broker-b").CreateTopic("orders", 3)
	clienttest.Await(t, "the new queue", func() bool {
		n, err := s.Queues(t.Context(), "orders")
		return n == 5 && err == nil
	})
	if _, err := s.Send(t.Context(), "orders", 4, spooled(4, 5)); err != nil {
		t.Fatal(err)
	}
	if n := len(cluster.Broker("broker-b").Messages("orders", 2)); n != 1 {
		t.Errorf("the new queue has %d messages", n)
	}
}

func TestRocketMQHasOneRequestUnderWayPerUpstreamQueue(t *testing.T) {
	cluster, b := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{})
	var under, most atomic.Int32
	cluster.Control(protocol.SendMessageV2, func(clienttest.Request) clienttest.Verdict {
		n := under.Add(1)
		most.Store(max(most.Load(), n))
		// Others would come in meanwhile, if they could.
		for range 100 {
			_ = len(b.Messages("orders", 0))
		}
		under.Add(-1)
		return clienttest.Verdict{}
	})
	var all sync.WaitGroup
	for queue := range 8 {
		all.Go(func() {
			for i := range 20 {
				if _, err := s.Send(t.Context(), "orders", queue, spooled(i, i+1)); err != nil {
					t.Error(err)
				}
			}
		})
	}
	all.Wait()
	if most.Load() != 1 {
		t.Errorf("%d requests at once", most.Load())
	}
	if n := len(b.Messages("orders", 0)); n != 160 {
		t.Errorf("%d messages", n)
	}
}

func TestRocketMQTopicsAreCreatedByTheirFirstMessage(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	b := cluster.Broker("broker-a")
	s := rocketMQ(t, cluster, RocketMQOptions{})
	if n, err := s.Queues(t.Context(), "orders"); n != 0 || err != nil {
		t.Errorf("unknown topic: %d queues, %v", n, err)
	}
	sendAll(t, s, spooled(0, 3))
	if n, err := s.Queues(t.Context(), "orders"); n != 4 || err != nil {
		t.Errorf("created topic: %d queues, %v", n, err)
	}
	b.DeleteTopic("orders")
	b.DeleteTopic(message.TopicAutoCreate)
	if n, err := s.Send(t.Context(), "orders", 0, spooled(3, 6)); n != 0 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("without a template: %d, %v", n, err)
	}
	b.CreateTopic("orders", 1)
	sendAll(t, s, spooled(3, 6))
}

func TestRocketMQFindsTheTopicWhereItIsNow(t *testing.T) {
	cluster := clienttest.New(t, 1, 2)
	a, b := cluster.Broker("broker-a"), cluster.Broker("broker-b")
	a.CreateTopic("orders", 1)
	s := rocketMQ(t, cluster, RocketMQOptions{})
	sendAll(t, s, spooled(0, 2))
	a.SetPerm("orders", 4)
	b.CreateTopic("orders", 1)
	sendAll(t, s, spooled(2, 4)) // refused with 16 by a; the fresh route leads to b
	if n := len(b.Messages("orders", 0)); n != 2 {
		t.Errorf("%d messages at the new place", n)
	}
}

func TestRocketMQOutlivesARestartOfTheBroker(t *testing.T) {
	cluster, b := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{})
	ms := spooled(0, 20)
	sendAll(t, s, ms[:10])
	b.Stop()
	if n, err := s.Send(t.Context(), "orders", 0, ms[10:]); n != 0 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("broker down: %d, %v", n, err)
	}
	b.Restart()
	sendAll(t, s, ms[10:])
	if got := bodies(b.Messages("orders", 0)); !slices.Equal(got, bodies(ms)) {
		t.Errorf("stored %v", got)
	}
	if st := s.Stats(); st.Resent != 0 {
		t.Errorf("%d counted as sent again, though nothing had left", st.Resent)
	}
	cluster.StopNameServer(0)
	if n, err := s.Queues(t.Context(), "other"); n != 0 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("name server down: %d, %v", n, err)
	}
}

func TestRocketMQSendEndsWithItsContext(t *testing.T) {
	cluster, _ := oneQueue(t)
	s := rocketMQ(t, cluster, RocketMQOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	cluster.Control(protocol.SendBatchMessage, func(clienttest.Request) clienttest.Verdict {
		cancel()
		return clienttest.Verdict{Ignore: true}
	})
	if n, err := s.Send(ctx, "orders", 0, spooled(0, 3)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestNewRocketMQChecksOptions(t *testing.T) {
	servers := []string{"127.0.0.1:9876"}
	for name, o := range map[string]RocketMQOptions{
		"no name server":  {},
		"batch too large": {NameServers: servers, MaxBatchBytes: 5 << 20},
		"batch too small": {NameServers: servers, MaxBatchBytes: 1},
		"bad group":       {NameServers: servers, Group: "a b"},
	} {
		if _, err := NewRocketMQ(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
