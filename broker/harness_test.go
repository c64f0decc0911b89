package broker

import (
	"bytes"
	"context"
	"errors"
	"io/fs"
	"log/slog"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds every wait of a test for something that must happen.
const patience = 20 * time.Second

// engine is a running broker on a store of its own, and a client of it.
type engine struct {
	*peer
	dir    string
	spool  *spool.Spool
	broker *Broker
	stop   func()
	// storeFails says that the test broke the store, so that it may not stop
	// properly.
	storeFails bool
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
		t.Fatal(errors.Join(err, sp.Close()))
	}
	e := &engine{dir: dir, spool: sp, broker: b}
	roles, stopRoles := context.WithCancel(context.Background())
	stores, stopStores := context.WithCancel(context.Background())
	var serving, storing sync.WaitGroup
	storing.Go(func() {
		if err := sp.Run(stores); err != nil && !e.storeFails {
			t.Errorf("spool: %v", err)
		}
	})
	serving.Go(func() {
		if err := b.Run(roles); err != nil {
			t.Errorf("broker: %v", err)
		}
	})
	e.stop = sync.OnceFunc(func() {
		stopRoles()
		serving.Wait()
		stopStores()
		storing.Wait()
	})
	t.Cleanup(e.stop)
	e.peer = e.join(t)
	return e
}

// crashCopy copies the store as it is now, while the engine runs: what a kill
// of the process would leave.
func (e *engine) crashCopy(t *testing.T) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(to, os.DirFS(e.dir)); err != nil {
		t.Fatal(err)
	}
	return to
}

// configFiles reads the files of the tables.
func configFiles(t *testing.T, dir string) map[string]string {
	t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(filepath.Join(dir, "config"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := os.ReadFile(path)
		info, infoErr := d.Info()
		files[path] = info.ModTime().String() + string(text)
		return errors.Join(err, infoErr)
	})
	if err != nil {
		t.Fatal(err)
	}
	return files
}

// peer is one client of an engine with a connection of its own.
type peer struct {
	t      *testing.T
	addr   string
	client *remoting.Client
	leave  func()
	// pushed are the requests that the broker sent to this client.
	pushed chan *protocol.Command
}

// join connects another client; leave, or the end of the test, closes it.
func (e *engine) join(t *testing.T) *peer {
	t.Helper()
	return connect(t, e.broker.Addr().String())
}

func connect(t *testing.T, addr string) *peer {
	p := &peer{t: t, addr: addr, pushed: make(chan *protocol.Command, 1024)}
	p.client = remoting.NewClient(remoting.ClientOptions{Table: remoting.Table{
		protocol.NotifyConsumerIDsChanged: {Handler: func(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
			p.pushed <- req
			return nil, nil
		}},
	}})
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = p.client.Run(ctx) })
	p.leave = sync.OnceFunc(func() { cancel(); running.Wait() })
	t.Cleanup(p.leave)
	return p
}

// call sends a request and returns its answer, whatever its code.
func (p *peer) call(code protocol.RequestCode, h protocol.Header, body []byte) *protocol.Command {
	p.t.Helper()
	return p.ask(protocol.NewRequest(code, h, body))
}

func (p *peer) ask(req *protocol.Command) *protocol.Command {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	answer, err := p.client.Call(ctx, p.addr, req)
	if err != nil {
		p.t.Fatalf("%s: %v", req.RequestCode(), err)
	}
	return answer
}

// later sends a request and gives its answer when it comes; the channel is
// closed without one when none comes.
func (p *peer) later(code protocol.RequestCode, h protocol.Header, body []byte) <-chan *protocol.Command {
	p.t.Helper()
	answers := make(chan *protocol.Command, 1)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	p.t.Cleanup(cancel)
	p.client.CallAsync(ctx, p.addr, protocol.NewRequest(code, h, body), func(answer *protocol.Command, err error) {
		if err == nil {
			answers <- answer
		}
		close(answers)
	})
	return answers
}

// await takes an answer that must come.
func (p *peer) await(answers <-chan *protocol.Command) *protocol.Command {
	p.t.Helper()
	answer := receive(p.t, answers, "answer")
	if answer == nil {
		p.t.Fatal("no answer")
	}
	return answer
}

// receive takes from a channel what must come.
func receive[T any](t *testing.T, from <-chan T, what string) (got T) {
	t.Helper()
	select {
	case got = <-from:
	case <-time.After(patience):
		t.Fatalf("no %s within %v", what, patience)
	}
	return got
}

// eventually asks until it is so.
func eventually(t *testing.T, what string, so func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !so(); {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

// want fails the test unless the answer has the code.
func (p *peer) want(answer *protocol.Command, code protocol.ResponseCode) {
	p.t.Helper()
	if answer.ResponseCode() != code {
		p.t.Fatalf("code is %d %q, want %d (%s)", answer.Code, answer.Remark, code, code)
	}
}

// must sends a request that succeeds and returns its answer.
func (p *peer) must(code protocol.RequestCode, h protocol.Header, body []byte) *protocol.Command {
	p.t.Helper()
	answer := p.call(code, h, body)
	if err := answer.Err(); err != nil {
		p.t.Fatalf("%s: %v", code, err)
	}
	return answer
}

func (p *peer) decode(answer *protocol.Command, h protocol.Header) {
	p.t.Helper()
	if err := answer.DecodeHeader(h); err != nil {
		p.t.Fatalf("answer %d %q: %v", answer.Code, answer.Remark, err)
	}
}

func (p *peer) unmarshal(answer *protocol.Command, into any) {
	p.t.Helper()
	if err := protocol.Unmarshal(answer.Body, into); err != nil {
		p.t.Fatalf("body %q: %v", answer.Body, err)
	}
}

func sendHeader(topic string, queue int32, props string) *protocol.SendMessageRequestV2 {
	return &protocol.SendMessageRequestV2{
		ProducerGroup: []byte("p"), Topic: []byte(topic), DefaultTopic: []byte(message.TopicAutoCreate),
		DefaultTopicQueueNums: 4, QueueID: queue, BornTimestamp: 1, Properties: []byte(props),
	}
}

func (p *peer) send(topic string, queue int32, props, body string) *protocol.Command {
	p.t.Helper()
	return p.call(protocol.SendMessageV2, sendHeader(topic, queue, props), []byte(body))
}

func (p *peer) mustSend(topic string, queue int32, props, body string) protocol.SendMessageResponse {
	p.t.Helper()
	answer := p.send(topic, queue, props, body)
	p.want(answer, protocol.Success)
	var h protocol.SendMessageResponse
	p.decode(answer, &h)
	return h
}

func (p *peer) sendBatch(topic string, queue int32, body []byte) *protocol.Command {
	p.t.Helper()
	h := sendHeader(topic, queue, "")
	h.Batch = true
	return p.call(protocol.SendBatchMessage, h, body)
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

func (p *peer) pull(h *protocol.PullMessageRequest) pulled {
	p.t.Helper()
	return p.decodePull(p.call(protocol.PullMessage, h, nil))
}

func (p *peer) decodePull(answer *protocol.Command) pulled {
	p.t.Helper()
	got := pulled{code: answer.ResponseCode()}
	p.decode(answer, &got.header)
	err := message.EachRecord(answer.Body, func(record []byte) bool {
		var m message.Message
		if err := message.Decode(record, &m); err != nil {
			p.t.Fatal(err)
		}
		got.messages = append(got.messages, m)
		return true
	})
	if err != nil {
		p.t.Fatal(err)
	}
	return got
}

// pullAll reads a queue from an offset to what is its end now, following the
// offsets that the broker gives.
func (p *peer) pullAll(topic string, queue int32, from int64) []message.Message {
	p.t.Helper()
	var all []message.Message
	for {
		got := p.pull(pullHeader(topic, queue, from, "*", 0))
		all = append(all, got.messages...)
		if got.header.NextBeginOffset <= from {
			return all
		}
		from = got.header.NextBeginOffset
	}
}

// offset asks for a queue's first or last offset.
func (p *peer) offset(code protocol.RequestCode, topic string, queue int32) int64 {
	p.t.Helper()
	var h protocol.OffsetResponse
	p.decode(p.must(code, &protocol.GetMaxOffsetRequest{Topic: topic, QueueID: queue}, nil), &h)
	return h.Offset
}

// awaitMax waits until a queue has that many messages to read.
func (e *engine) awaitMax(topic string, queue int32, offset int64) {
	e.t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if err := e.spool.Queue(topic, queue).Wait(ctx, offset-1); err != nil {
		e.t.Fatalf("queue %s/%d does not reach %d: %v", topic, queue, offset, err)
	}
}

func (p *peer) createTopic(name string, queues int32) {
	p.t.Helper()
	p.must(protocol.UpdateAndCreateTopic, topicHeader(name, queues), nil)
}

func topicHeader(name string, queues int32) *protocol.CreateTopicRequest {
	return &protocol.CreateTopicRequest{
		Topic: name, DefaultTopic: message.TopicAutoCreate, ReadQueueNums: queues, WriteQueueNums: queues,
		Perm: 6, TopicFilterType: protocol.SingleTag,
	}
}

// createGroup makes a group as an operator does.
func (p *peer) createGroup(name string) {
	p.t.Helper()
	p.must(protocol.UpdateAndCreateSubscriptionGroup, nil, groupBody(p.t, name))
}

func groupBody(t *testing.T, name string) []byte {
	t.Helper()
	body, err := protocol.Marshal(protocol.NewSubscriptionGroupConfig(name))
	if err != nil {
		t.Fatal(err)
	}
	return body
}

func (p *peer) commit(topic, group string, queue int32, offset int64) *protocol.Command {
	p.t.Helper()
	return p.call(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
		ConsumerGroup: group, Topic: topic, QueueID: queue, CommitOffset: offset,
	}, nil)
}

// committed asks for a group's offset; ok is false when it has none (code 22).
func (p *peer) committed(topic, group string, queue int32, zero protocol.Opt[bool]) (offset int64, ok bool) {
	p.t.Helper()
	answer := p.call(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
		ConsumerGroup: group, Topic: topic, QueueID: queue, SetZeroIfNotFound: zero,
	}, nil)
	if answer.ResponseCode() == protocol.QueryNotFound {
		return 0, false
	}
	p.want(answer, protocol.Success)
	var h protocol.OffsetResponse
	p.decode(answer, &h)
	return h.Offset, true
}

func batchBody(t *testing.T, entries ...message.Message) []byte {
	t.Helper()
	var body []byte
	for i := range entries {
		var err error
		if body, err = message.AppendBatchEntry(body, &entries[i]); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

// property is a value of a stored message, "" when it is not there.
func property(m *message.Message, name string) string {
	v, _ := m.Property(name)
	return v
}

func bodies(messages []message.Message) []string {
	list := make([]string, len(messages))
	for i := range messages {
		list[i] = string(messages[i].Body)
	}
	return list
}

// filled is a body of n bytes that begins with a text.
func filled(n int, text string) []byte {
	return append([]byte(text), bytes.Repeat([]byte{'.'}, n-len(text))...)
}
