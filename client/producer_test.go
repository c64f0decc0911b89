package client_test

import (
	"bytes"
	"errors"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/client/clienttest"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// sending is a producer on a cluster whose brokers have the topic "orders".
func sending(t *testing.T, brokers, queues int, o client.ProducerOptions) (*clienttest.Cluster, *client.Producer) {
	t.Helper()
	cluster := clienttest.New(t, 1, brokers)
	for i := range brokers {
		cluster.Broker("broker-"+string(rune('a'+i))).CreateTopic("orders", queues)
	}
	c, _ := start(t, cluster, client.Options{})
	return cluster, producer(t, c, o)
}

func TestSendGoesRoundAllQueues(t *testing.T) {
	cluster, p := sending(t, 2, 3, client.ProducerOptions{})
	for range 12 {
		if _, err := p.Send(t.Context(), textMessage("orders", "x")); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"broker-a", "broker-b"} {
		for id := range int32(3) {
			if n := len(cluster.Broker(name).Messages("orders", id)); n != 2 {
				t.Errorf("queue %d of %s has %d messages, want 2", id, name, n)
			}
		}
	}
}

func TestSendResultSaysWhere(t *testing.T) {
	cluster, p := sending(t, 1, 1, client.ProducerOptions{})
	for i := range int64(3) {
		r, err := p.Send(t.Context(), textMessage("orders", "x"))
		if err != nil {
			t.Fatal(err)
		}
		stored := cluster.Broker("broker-a").Messages("orders", 0)[i]
		key, _ := stored.Property(message.PropertyUniqueKey)
		if r.Status != client.SendOK || r.QueueOffset != i || r.MessageID != key || len(key) < 32 ||
			r.Queue != (protocol.MessageQueue{Topic: "orders", BrokerName: "broker-a"}) {
			t.Errorf("result %+v, stored with key %q", r, key)
		}
		if _, offset, err := message.ParseOffsetID(r.OffsetID); err != nil || offset != stored.PhysicalOffset {
			t.Errorf("offset id %q: %d, %v", r.OffsetID, offset, err)
		}
	}
}

func TestSendRetriesOnAnotherBroker(t *testing.T) {
	for _, code := range []protocol.ResponseCode{
		protocol.SystemError, protocol.SystemBusy, protocol.ServiceNotAvailable, protocol.NoPermission,
		protocol.TopicNotExist, protocol.NoBuyerID, protocol.NotInCurrentUnit,
	} {
		t.Run(code.String(), func(t *testing.T) {
			cluster, p := sending(t, 2, 4, client.ProducerOptions{})
			var failed atomic.Value
			cluster.Control(protocol.SendMessageV2, func(r clienttest.Request) clienttest.Verdict {
				if failed.CompareAndSwap(nil, r.Broker) {
					return clienttest.Refuse(code, "no")
				}
				return clienttest.Verdict{}
			})
			r, err := p.Send(t.Context(), textMessage("orders", "x"))
			if err != nil {
				t.Fatal(err)
			}
			if r.Queue.BrokerName == failed.Load() {
				t.Errorf("the attempt after the failure went to %s again", failed.Load())
			}
		})
	}
}

func TestSendRetriesAfterBrokenConnectionWithTheSameKey(t *testing.T) {
	cluster, p := sending(t, 2, 1, client.ProducerOptions{})
	var first atomic.Bool
	cluster.Control(protocol.SendMessageV2, func(clienttest.Request) clienttest.Verdict {
		// The first one is stored, but its answer is lost.
		return clienttest.Verdict{Close: first.CompareAndSwap(false, true)}
	})
	if _, err := p.Send(t.Context(), textMessage("orders", "x")); err != nil {
		t.Fatal(err)
	}
	a, b := cluster.Broker("broker-a").Messages("orders", 0), cluster.Broker("broker-b").Messages("orders", 0)
	if len(a) != 1 || len(b) != 1 {
		t.Fatalf("%d and %d messages", len(a), len(b))
	}
	keyA, _ := a[0].Property(message.PropertyUniqueKey)
	keyB, _ := b[0].Property(message.PropertyUniqueKey)
	if keyA == "" || keyA != keyB {
		t.Errorf("keys %q and %q", keyA, keyB)
	}
}

func TestSendStopsAtRetriesAndAtFinalAnswers(t *testing.T) {
	for _, tt := range []struct {
		code    protocol.ResponseCode
		retries int
		want    int
	}{
		{protocol.SystemBusy, 0, 3},
		{protocol.SystemBusy, 5, 6},
		{protocol.SystemBusy, -1, 1},
		{protocol.MessageIllegal, 0, 1},
		{protocol.InvalidParameter, 0, 1},
	} {
		cluster, p := sending(t, 2, 1, client.ProducerOptions{Retries: tt.retries})
		cluster.Control(protocol.SendMessageV2, func(clienttest.Request) clienttest.Verdict {
			return clienttest.Refuse(tt.code, "no")
		})
		_, err := p.Send(t.Context(), textMessage("orders", "x"))
		var answer *protocol.Error
		if !errors.As(err, &answer) || answer.Code != tt.code {
			t.Errorf("%s: error %v", tt.code, err)
		}
		if n := cluster.Requests(protocol.SendMessageV2); n != tt.want {
			t.Errorf("%s with %d retries: %d attempts, want %d", tt.code, tt.retries, n, tt.want)
		}
	}
}

func TestSendEndsWithItsTimeout(t *testing.T) {
	cluster, p := sending(t, 1, 1, client.ProducerOptions{Timeout: 300 * time.Millisecond})
	if _, err := p.Route(t.Context(), "orders"); err != nil {
		t.Fatal(err)
	}
	cluster.Control(protocol.SendMessageV2, func(clienttest.Request) clienttest.Verdict { return clienttest.Verdict{Ignore: true} })
	_, err := p.Send(t.Context(), textMessage("orders", "x"))
	if !errors.Is(err, client.ErrUnavailable) || !errors.Is(err, remoting.ErrTimeout) {
		t.Errorf("got %v", err)
	}
	if n := cluster.Requests(protocol.SendMessageV2); n != 1 {
		t.Errorf("%d attempts after the time-out", n)
	}
}

func TestSendStatusesAllMeanStored(t *testing.T) {
	for code, want := range map[protocol.ResponseCode]client.SendStatus{
		protocol.FlushDiskTimeout:  client.FlushDiskTimeout,
		protocol.FlushSlaveTimeout: client.FlushSlaveTimeout,
		protocol.SlaveNotAvailable: client.SlaveNotAvailable,
	} {
		cluster, p := sending(t, 1, 1, client.ProducerOptions{})
		cluster.Control(protocol.SendMessageV2, func(clienttest.Request) clienttest.Verdict {
			return clienttest.Verdict{Answer: protocol.NewResponse(code, "", &protocol.SendMessageResponse{MsgID: "id", QueueOffset: 7}, nil)}
		})
		r, err := p.Send(t.Context(), textMessage("orders", "x"))
		if err != nil || r.Status != want || r.QueueOffset != 7 || r.OffsetID != "id" || want.String() != code.String() {
			t.Errorf("%s: %+v (%s), %v", code, r, r.Status, err)
		}
	}
}

func TestStoredMessageIsNotSentAgainForAMalformedAnswer(t *testing.T) {
	cluster, p := sending(t, 1, 1, client.ProducerOptions{})
	cluster.Control(protocol.SendMessageV2, func(clienttest.Request) clienttest.Verdict {
		return clienttest.Verdict{Answer: protocol.NewResponse(protocol.Success, "", nil, nil)}
	})
	r, err := p.Send(t.Context(), textMessage("orders", "x"))
	if err != nil || r.QueueOffset != -1 || cluster.Requests(protocol.SendMessageV2) != 1 {
		t.Errorf("%+v, %v, %d requests", r, err, cluster.Requests(protocol.SendMessageV2))
	}
}

func TestSendCreatesTopicWithTheTemplatesQueues(t *testing.T) {
	for _, tt := range []struct{ asked, want int }{{0, 4}, {2, 2}, {50, 8}} {
		cluster := clienttest.New(t, 1, 1)
		c, _ := start(t, cluster, client.Options{})
		p := producer(t, c, client.ProducerOptions{DefaultQueues: tt.asked})
		for range 20 {
			if _, err := p.Send(t.Context(), textMessage("new", "x")); err != nil {
				t.Fatal(err)
			}
		}
		r, err := p.Route(t.Context(), "new")
		if err != nil || r.Provisional || len(r.Write) != tt.want {
			t.Errorf("asked for %d queues: %+v, %v", tt.asked, r, err)
		}
	}
}

func TestSendToUnknownTopicWithoutTemplateFails(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	c, _ := start(t, cluster, client.Options{})
	p := producer(t, c, client.ProducerOptions{DefaultTopic: "-"})
	if _, err := p.Send(t.Context(), textMessage("new", "x")); !errors.Is(err, client.ErrTopicNotFound) {
		t.Errorf("got %v", err)
	}
	cluster.Broker("broker-a").DeleteTopic(message.TopicAutoCreate)
	p = producer(t, c, client.ProducerOptions{})
	if _, err := p.Send(t.Context(), textMessage("new", "x")); !errors.Is(err, client.ErrTopicNotFound) {
		t.Errorf("without a template at the brokers: %v", err)
	}
}

func TestDeletedTopicIsCreatedAgain(t *testing.T) {
	cluster, p := sending(t, 1, 2, client.ProducerOptions{})
	if _, err := p.Send(t.Context(), textMessage("orders", "x")); err != nil {
		t.Fatal(err)
	}
	cluster.Broker("broker-a").DeleteTopic("orders")
	// A broker without automatic creation on known names would answer so.
	var once atomic.Bool
	cluster.Control(protocol.SendMessageV2, func(clienttest.Request) clienttest.Verdict {
		if once.CompareAndSwap(false, true) {
			return clienttest.Refuse(protocol.TopicNotExist, "gone")
		}
		return clienttest.Verdict{}
	})
	if _, err := p.Send(t.Context(), textMessage("orders", "y")); err != nil {
		t.Fatal(err)
	}
	if r, err := p.Route(t.Context(), "orders"); err != nil || len(r.Write) != 4 {
		t.Errorf("the topic was not created again: %+v, %v", r, err)
	}
}

func TestReadOnlyQueuesGetNoMessages(t *testing.T) {
	cluster, p := sending(t, 2, 2, client.ProducerOptions{})
	cluster.Broker("broker-a").SetPerm("orders", 4)
	for range 8 {
		if r, err := p.Send(t.Context(), textMessage("orders", "x")); err != nil || r.Queue.BrokerName != "broker-b" {
			t.Fatalf("%+v, %v", r, err)
		}
	}
	if n := cluster.Requests(protocol.SendMessageV2); n != 8 {
		t.Errorf("%d requests for 8 messages", n)
	}
}

func TestSendLeavesTheMessageAlone(t *testing.T) {
	_, p := sending(t, 1, 1, client.ProducerOptions{})
	buffer := append(message.AppendProperty(nil, message.PropertyTags, "tag"), "the caller's own"...)
	m := message.Message{Topic: "orders", Body: bytes.Repeat([]byte("x"), 9000)}
	m.Properties = buffer[:len(buffer)-len("the caller's own")]
	before := *m.Clone()
	if _, err := p.Send(t.Context(), &m); err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(m.Body, before.Body) || !bytes.Equal(m.Properties, before.Properties) || m.SysFlag != 0 {
		t.Errorf("message changed to %+v", m)
	}
	if !bytes.HasSuffix(buffer, []byte("the caller's own")) {
		t.Error("the buffer behind the properties was overwritten")
	}
}

func TestSendKeepsUniqueKey(t *testing.T) {
	cluster, p := sending(t, 1, 1, client.ProducerOptions{})
	m := textMessage("orders", "x")
	m.SetProperty(message.PropertyUniqueKey, "MINE")
	r, err := p.Send(t.Context(), m)
	if err != nil || r.MessageID != "MINE" {
		t.Fatalf("%+v, %v", r, err)
	}
	stored := cluster.Broker("broker-a").Messages("orders", 0)[0]
	if n := bytes.Count(stored.Properties, []byte(message.PropertyUniqueKey)); n != 1 {
		t.Errorf("%d unique keys in %q", n, stored.Properties)
	}
}

func TestLargeBodiesAreCompressed(t *testing.T) {
	text := bytes.Repeat([]byte("sluice "), 1000)
	var random []byte
	x := uint32(1)
	for range 5000 {
		x ^= x << 13
		x ^= x >> 17
		x ^= x << 5
		random = append(random, byte(x))
	}
	for _, tt := range []struct {
		name string
		o    client.ProducerOptions
		body []byte
		want message.SysFlag
	}{
		{"default is zlib without a type, which every client reads", client.ProducerOptions{}, text, message.Compressed},
		{"zstd", client.ProducerOptions{Compression: message.CompressionZstd}, text, message.Compressed | message.CompressionZstd},
		{"lz4", client.ProducerOptions{Compression: message.CompressionLZ4}, text, message.Compressed | message.CompressionLZ4},
		{"never", client.ProducerOptions{CompressOver: -1}, text, 0},
		{"small", client.ProducerOptions{}, text[:4096], 0},
		{"threshold", client.ProducerOptions{CompressOver: 100}, text[:4096], message.Compressed},
		{"what does not shrink", client.ProducerOptions{}, random, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			cluster, p := sending(t, 1, 1, tt.o)
			if _, err := p.Send(t.Context(), &message.Message{Topic: "orders", Body: tt.body}); err != nil {
				t.Fatal(err)
			}
			stored := cluster.Broker("broker-a").Messages("orders", 0)[0]
			if stored.SysFlag != tt.want {
				t.Errorf("flag %#x, want %#x", stored.SysFlag, tt.want)
			}
			if plain, err := message.Decompress(stored.SysFlag, stored.Body, 1<<20); err != nil || !bytes.Equal(plain, tt.body) {
				t.Errorf("body does not come back: %v", err)
			}
			if tt.want != 0 && len(stored.Body) >= len(tt.body) {
				t.Errorf("%d bytes became %d", len(tt.body), len(stored.Body))
			}
		})
	}
}

func TestSendRefusesIllegalMessages(t *testing.T) {
	cluster, p := sending(t, 1, 1, client.ProducerOptions{MaxMessageBytes: 100})
	long := textMessage("orders", "x")
	long.SetProperty("p", strings.Repeat("v", message.MaxPropertiesLen))
	for name, m := range map[string]*message.Message{
		"no topic":            textMessage("", "x"),
		"bad topic":           textMessage("a b", "x"),
		"forbidden topic":     textMessage(message.TopicSchedule, "x"),
		"empty body":          textMessage("orders", ""),
		"body too large":      textMessage("orders", strings.Repeat("x", 101)),
		"properties too long": long,
	} {
		if _, err := p.Send(t.Context(), m); !errors.Is(err, client.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if n := cluster.Requests(protocol.SendMessageV2); n != 0 {
		t.Errorf("%d requests", n)
	}
}

func TestSendToStoresABatchInOneRequest(t *testing.T) {
	cluster, p := sending(t, 1, 2, client.ProducerOptions{})
	mq := protocol.MessageQueue{Topic: "orders", BrokerName: "broker-a", QueueID: 1}
	ms := []message.Message{*textMessage("orders", "a"), *textMessage("orders", "b"), *textMessage("orders", "c")}
	ms[1].Flag = 5
	ms[1].SetProperty(message.PropertyTags, "tag")
	r, err := p.SendTo(t.Context(), mq, ms...)
	if err != nil {
		t.Fatal(err)
	}
	if n := cluster.Requests(protocol.SendBatchMessage); n != 1 {
		t.Errorf("%d requests", n)
	}
	stored := cluster.Broker("broker-a").Messages("orders", 1)
	var bodies, keys []string
	for i := range stored {
		bodies = append(bodies, string(stored[i].Body))
		key, _ := stored[i].Property(message.PropertyUniqueKey)
		keys = append(keys, key)
	}
	if !slices.Equal(bodies, []string{"a", "b", "c"}) || r.MessageID != strings.Join(keys, ",") || r.QueueOffset != 0 {
		t.Errorf("stored %v, result %+v", bodies, r)
	}
	if tag, _ := stored[1].Property(message.PropertyTags); tag != "tag" || stored[1].Flag != 5 {
		t.Errorf("second message %+v", stored[1])
	}
	if _, err := p.SendTo(t.Context(), mq, *textMessage("orders", "single")); err != nil {
		t.Fatal(err)
	}
	if n := cluster.Requests(protocol.SendMessageV2); n != 1 {
		t.Errorf("a single message took %d single requests", n)
	}
}

func TestSendToRefusesMixedBatches(t *testing.T) {
	_, p := sending(t, 1, 1, client.ProducerOptions{MaxMessageBytes: 1000})
	mq := protocol.MessageQueue{Topic: "orders", BrokerName: "broker-a"}
	with := func(change func(*message.Message)) message.Message {
		m := *textMessage("orders", "x")
		change(&m)
		return m
	}
	for name, second := range map[string]message.Message{
		"topic":   with(func(m *message.Message) { m.Topic = "other" }),
		"sysflag": with(func(m *message.Message) { m.SysFlag = message.Compressed }),
		"wait":    with(func(m *message.Message) { m.SetProperty(message.PropertyWait, "false") }),
		"delay":   with(func(m *message.Message) { m.SetProperty(message.PropertyDelay, "3") }),
		"timer":   with(func(m *message.Message) { m.SetProperty(message.PropertyTimerDeliverMillis, "3") }),
		"size":    with(func(m *message.Message) { m.Body = make([]byte, 999) }),
		"empty":   with(func(m *message.Message) { m.Body = nil }),
	} {
		if _, err := p.SendTo(t.Context(), mq, *textMessage("orders", "x"), second); !errors.Is(err, client.ErrMessage) {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := p.SendTo(t.Context(), mq); err == nil {
		t.Error("an empty batch was accepted")
	}
}

func TestSendWhileAllBrokersAreDownAndAfterwards(t *testing.T) {
	cluster, p := sending(t, 1, 1, client.ProducerOptions{})
	cluster.Broker("broker-a").Stop()
	if _, err := p.Send(t.Context(), textMessage("orders", "x")); !errors.Is(err, client.ErrUnavailable) {
		t.Fatalf("got %v", err)
	}
	cluster.Broker("broker-a").Restart()
	if _, err := p.Send(t.Context(), textMessage("orders", "x")); err != nil {
		t.Error(err)
	}
}
