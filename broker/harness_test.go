package broker

import (
	"context"
	"encoding/binary"
	"log/slog"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

// engine is a running broker on a store of its own, and a client of it.
type engine struct {
	t      *testing.T
	dir    string
	spool  *spool.Spool
	broker *Broker
	client *remoting.Client
	stop   func()
	pushed chan *protocol.Command // requests that the broker sent to the client
}

// start runs an engine in dir until the test ends or stop is called.
func start(t *testing.T, dir string, change func(*Options, *spool.Options)) *engine {
	t.Helper()
	o := Options{Listen: "127.0.0.1:0", Dir: dir, AutoCreateTopics: true, Logger: slog.New(slog.DiscardHandler)}
	so := spool.Options{Dir: dir, SegmentBytes: 1 << 20}
	if change != nil {
		change(&o, &so)
	}
	sp, err := spool.Open(so)
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(o, sp)
	if err != nil {
		t.Fatal(err)
	}
	e := &engine{t: t, dir: dir, spool: sp, broker: b, pushed: make(chan *protocol.Command, 64)}
	e.client = remoting.NewClient(remoting.ClientOptions{Table: remoting.Table{
		protocol.NotifyConsumerIDsChanged: {Handler: func(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
			e.pushed <- req
			return nil, nil
		}},
	}})
	roles, stopRoles := context.WithCancel(context.Background())
	stores, stopStores := context.WithCancel(context.Background())
	var running, storing sync.WaitGroup
	storing.Go(func() {
		if err := sp.Run(stores); err != nil {
			t.Errorf("spool: %v", err)
		}
	})
	running.Go(func() {
		if err := b.Run(roles); err != nil {
			t.Errorf("broker: %v", err)
		}
	})
	running.Go(func() { _ = e.client.Run(roles) })
	e.stop = sync.OnceFunc(func() {
		stopRoles()
		running.Wait()
		stopStores()
		storing.Wait()
	})
	t.Cleanup(e.stop)
	return e
}

// call sends a request and returns its answer, whatever its code.
func (e *engine) call(code protocol.RequestCode, h protocol.Header, body []byte) *protocol.Command {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	answer, err := e.client.Call(ctx, e.broker.Addr().String(), protocol.NewRequest(code, h, body))
	if err != nil {
		e.t.Fatalf("%s: %v", code, err)
	}
	return answer
}

// want fails the test unless the answer has the code.
func (e *engine) want(answer *protocol.Command, code protocol.ResponseCode) {
	e.t.Helper()
	if answer.ResponseCode() != code {
		e.t.Fatalf("code is %d %q, want %d", answer.Code, answer.Remark, code)
	}
}

func sendHeader(topic string, queue int32, props string) *protocol.SendMessageRequestV2 {
	return &protocol.SendMessageRequestV2{
		ProducerGroup: []byte("p"), Topic: []byte(topic), DefaultTopic: []byte(message.TopicAutoCreate),
		DefaultTopicQueueNums: 4, QueueID: queue, BornTimestamp: 1, Properties: []byte(props),
	}
}

func (e *engine) send(topic string, queue int32, props, body string) *protocol.Command {
	e.t.Helper()
	return e.call(protocol.SendMessageV2, sendHeader(topic, queue, props), []byte(body))
}

func (e *engine) mustSend(topic string, queue int32, props, body string) protocol.SendMessageResponse {
	e.t.Helper()
	answer := e.send(topic, queue, props, body)
	e.want(answer, protocol.Success)
	var h protocol.SendMessageResponse
	if err := answer.DecodeHeader(&h); err != nil {
		e.t.Fatal(err)
	}
	return h
}

func pullHeader(topic string, queue int32, offset int64, tags string, hold time.Duration) *protocol.PullMessageRequest {
	h := &protocol.PullMessageRequest{
		ConsumerGroup: []byte("g"), Topic: []byte(topic), QueueID: queue, QueueOffset: offset, MaxMsgNums: 32,
		SysFlag: protocol.PullSubscription, Subscription: []byte(tags), ExpressionType: []byte("TAG"),
		SuspendTimeoutMillis: hold.Milliseconds(),
	}
	if hold > 0 {
		h.SysFlag |= protocol.PullSuspend
	}
	return h
}

// pulled is the answer to a pull, decoded.
type pulled struct {
	code     protocol.ResponseCode
	header   protocol.PullMessageResponse
	messages []message.Message
}

func (e *engine) pull(h *protocol.PullMessageRequest) pulled {
	e.t.Helper()
	return e.decodePull(e.call(protocol.PullMessage, h, nil))
}

func (e *engine) decodePull(answer *protocol.Command) pulled {
	e.t.Helper()
	p := pulled{code: answer.ResponseCode()}
	if err := answer.DecodeHeader(&p.header); err != nil {
		e.t.Fatalf("answer %d %q: %v", answer.Code, answer.Remark, err)
	}
	err := message.EachRecord(answer.Body, func(record []byte) bool {
		var m message.Message
		if err := message.Decode(record, &m); err != nil {
			e.t.Fatal(err)
		}
		p.messages = append(p.messages, m)
		return true
	})
	if err != nil {
		e.t.Fatal(err)
	}
	return p
}

// pullAll reads a queue from an offset to what is its end now, following the
// offsets that the broker gives.
func (e *engine) pullAll(topic string, queue int32, from int64) []message.Message {
	e.t.Helper()
	var all []message.Message
	for {
		p := e.pull(pullHeader(topic, queue, from, "*", 0))
		all = append(all, p.messages...)
		if p.header.NextBeginOffset <= from {
			return all
		}
		from = p.header.NextBeginOffset
	}
}

// awaitMax waits until a queue has that many messages to read.
func (e *engine) awaitMax(topic string, queue int32, offset int64) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	defer cancel()
	if err := e.spool.Queue(topic, queue).Wait(ctx, offset-1); err != nil {
		e.t.Fatalf("queue %s/%d does not reach %d: %v", topic, queue, offset, err)
	}
}

func batchBody(entries ...message.Message) []byte {
	var body []byte
	for i := range entries {
		var err error
		if body, err = message.AppendBatchEntry(body, &entries[i]); err != nil {
			panic(err)
		}
	}
	return body
}

func number(b []byte) uint32 { return binary.BigEndian.Uint32(b) }

func itoa(n int) string { return strconv.Itoa(n) }
