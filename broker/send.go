package broker

import (
	"context"
	"errors"
	"net/netip"
	"strings"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

// sender admits messages: it answers requests 10, 310 and 320 (remoting
// protocol, "producing"). One sendStream of it lives on each connection.
type sender struct {
	admission
	spool    *spool.Spool
	counters *Counters
}

// streams makes a sendStream for each connection that sends.
func (s *sender) streams() *remoting.StreamFactory {
	return &remoting.StreamFactory{New: func(c *remoting.Conn) remoting.Stream {
		return &sendStream{sender: s, born: c.RemoteAddr()}
	}}
}

// sendStream stages every send of a burst and answers them together once the
// burst is durable: one append, one flush and one socket write for however many
// messages had arrived.
type sendStream struct {
	*sender
	born     netip.AddrPort
	batch    spool.Batch
	owed     []owed
	mustSync bool
	header   protocol.SendMessageRequest
	staged   message.Message
	entries  []message.Message
	props    []byte
	ids      []byte
	topic    string         // of queues
	queues   []*spool.Queue // by id, nil where not asked for yet
}

// owed is an answer that waits for the burst's append.
type owed struct {
	coding  protocol.Coding
	opaque  int32
	oneWay  bool
	first   int // index of the request's first message in the batch
	count   int
	bytes   int // of the records
	queueID int32
}

// Request stages one send, or answers its refusal at once.
func (s *sendStream) Request(req *protocol.Command, w *remoting.Writer) {
	err := s.stage(req)
	if err == nil {
		return
	}
	s.counters.refused.Add(1)
	if req.IsOneWay() {
		return
	}
	w.Buf = appendSendRefusal(w.Buf, req.Coding, req.Opaque, protocol.AsError(err), s.region)
}

func (s *sendStream) stage(req *protocol.Command) error {
	h := &s.header
	if err := h.DecodeSend(req); err != nil {
		return err
	}
	topic, queueID, err := s.admit(h.Topic, h.DefaultTopic, h.QueueID, h.DefaultTopicQueueNums)
	if err != nil {
		return err
	}
	queue := s.queue(topic.Name, queueID)
	o := owed{coding: req.Coding, opaque: req.Opaque, oneWay: req.IsOneWay(), count: 1, queueID: queueID}
	m := &s.staged
	*m = message.Message{
		Topic: topic.Name, QueueID: queueID, Flag: h.Flag, SysFlag: message.SysFlag(h.SysFlag),
		BornTimestamp: h.BornTimestamp, BornHost: s.born, StoreHost: s.storeHost,
		ReconsumeTimes: h.ReconsumeTimes, Body: req.Body,
	}
	before := s.batch.Size()
	if h.Batch {
		o.first, o.count, err = s.stageBatch(queue, m)
	} else {
		o.first, err = s.stageOne(queue, m, h.Properties)
	}
	if err != nil {
		return err
	}
	o.bytes = s.batch.Size() - before
	s.owed = append(s.owed, o)
	return nil
}

// queue is the spool's queue. A connection mostly sends to one topic, so the last
// one's queues are kept at hand; they stay good when the topic is deleted.
func (s *sendStream) queue(topic string, id int32) *spool.Queue {
	if topic != s.topic {
		clear(s.queues)
		s.topic, s.queues = topic, s.queues[:0]
	}
	for int(id) >= len(s.queues) {
		s.queues = append(s.queues, nil)
	}
	if s.queues[id] == nil {
		s.queues[id] = s.spool.Queue(topic, id)
	}
	return s.queues[id]
}

func (s *sendStream) stageOne(queue *spool.Queue, m *message.Message, props []byte) (int, error) {
	traits, err := s.inspect(m, props)
	if err != nil {
		return 0, err
	}
	s.mustSync = s.mustSync || traits.wait
	s.props = s.stamp(s.props[:0], props, traits)
	m.Properties = s.props
	i, err := s.batch.Add(queue, m)
	return i, storeError(err)
}

// stageBatch stages the entries of a batch body as one group, so that all of
// them or none are stored, side by side. Entries keep their own properties only
// (message model, "batch body").
func (s *sendStream) stageBatch(queue *spool.Queue, head *message.Message) (first, count int, err error) {
	if strings.HasPrefix(head.Topic, message.RetryPrefix) {
		return 0, 0, protocol.Errorf(protocol.MessageIllegal, "batch is not supported by retry topics")
	}
	if len(head.Body) > s.maxMessage {
		return 0, 0, tooLarge(len(head.Body), s.maxMessage)
	}
	s.entries, s.props = s.entries[:0], s.props[:0]
	err = message.EachBatchEntry(head.Body, func(e *message.Message) error {
		m := *head
		m.Flag, m.Body, m.Properties = e.Flag, e.Body, e.Properties
		traits, err := s.inspect(&m, e.Properties)
		if err != nil {
			return err
		}
		s.mustSync = s.mustSync || traits.wait
		if !traits.unique {
			// The entry aliases the request, where there is no room behind it.
			from := len(s.props)
			s.props = append(s.props, e.Properties...)
			s.props = append(s.props[:from], s.identify(s.props[from:])...)
			m.Properties = s.props[from:]
		}
		s.entries = append(s.entries, m)
		return nil
	})
	if err == nil && len(s.entries) == 0 {
		err = errors.New("the batch holds no message")
	}
	if err != nil {
		if e := (*protocol.Error)(nil); errors.As(err, &e) {
			return 0, 0, e
		}
		return 0, 0, protocol.Errorf(protocol.MessageIllegal, "batch body: %v", err)
	}
	first, err = s.batch.AddGroup(queue, s.entries)
	return first, len(s.entries), storeError(err)
}

// Flush stores the burst and appends its answers to w.
func (s *sendStream) Flush(w *remoting.Writer) {
	if len(s.owed) == 0 {
		s.batch.Reset()
		return
	}
	_ = s.spool.Append(&s.batch) // each entry carries its own result
	var flushErr error
	if s.mustSync && s.batch.End() > 0 {
		flushErr = s.spool.WaitDurable(context.Background(), s.batch.End())
	}
	for i := range s.owed {
		s.answer(w, &s.owed[i], flushErr)
	}
	s.owed = s.owed[:0]
	s.mustSync = false
	s.batch.Reset()
}
