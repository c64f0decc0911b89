package broker

import (
	"context"
	"log/slog"
	"strings"
	"time"

	"github.com/sluicemq/sluice/broker/clients"
	"github.com/sluicemq/sluice/broker/groups"
	"github.com/sluicemq/sluice/broker/offsets"
	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

// pullMaxBytes is the most that one pull answer holds, but for a first message
// that is larger; as Apache's for records in memory.
const pullMaxBytes = 256 << 10

// puller answers pull requests (11) and holds those that find nothing.
type puller struct {
	topics      *topics.Table
	groups      *groups.Table
	clients     *clients.Table
	offsets     *offsets.Table
	spool       *spool.Spool
	counters    *Counters
	log         *slog.Logger
	maxMessages int           // most messages in one answer
	maxHold     time.Duration // longest long poll, whatever a client asks
}

func (p *puller) streams() *remoting.StreamFactory {
	return &remoting.StreamFactory{New: func(c *remoting.Conn) remoting.Stream {
		return &pullStream{puller: p, conn: c}
	}}
}

// pullStream answers one connection's pulls on its reader. A pull that has to
// wait moves to a goroutine of its own.
type pullStream struct {
	*puller
	conn    *remoting.Conn
	header  protocol.PullMessageRequest
	records spool.Records
	// expression and filter keep the last parsed subscription: a client sends
	// the same one with each pull.
	expression string
	filter     spool.Filter
}

// pull is a checked request: everything its answer needs.
type pull struct {
	queue  *spool.Queue
	offset int64
	limit  spool.Limit
	filter spool.Filter
	hold   time.Duration
	coding protocol.Coding
	opaque int32
}

// Flush has nothing to do: pulls are answered one by one.
func (s *pullStream) Flush(*remoting.Writer) {}

// Request answers a pull, or holds it.
func (s *pullStream) Request(req *protocol.Command, w *remoting.Writer) {
	p, err := s.check(req)
	if req.IsOneWay() {
		return
	}
	if err != nil {
		e := protocol.AsError(err)
		w.Buf = appendPullAnswer(w.Buf, &p, int32(e.Code), e.Remark, spool.ReadResult{Next: p.offset})
		return
	}
	result := s.spool.Read(p.queue, p.offset, p.limit, p.filter, &s.records)
	if p.hold > 0 && result.Err == nil && nothingYet(result.Status, p.offset) {
		s.records.Release()
		scanned := max(result.Next, p.offset)
		if s.conn.Go(func(ctx context.Context) { s.wait(ctx, s.conn, p, scanned) }) {
			return
		}
	}
	w.Buf = s.appendResult(w.Buf, &p, &s.records, result)
	s.records.Release()
}

// check reads the request into a pull, with the checks and codes of Apache's
// broker in their order.
func (s *pullStream) check(req *protocol.Command) (pull, error) {
	h := &s.header
	p := pull{coding: req.Coding, opaque: req.Opaque}
	if err := req.DecodeHeader(h); err != nil {
		return p, err
	}
	p.offset = h.QueueOffset
	group, err := s.groups.EnsureBytes(h.ConsumerGroup)
	if err != nil {
		return p, err
	}
	if !group.ConsumeEnable {
		return p, protocol.Errorf(protocol.NoPermission, "subscription group no permission, %s", h.ConsumerGroup)
	}
	topic, ok := s.topics.GetBytes(h.Topic)
	if !ok {
		return p, protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist, apply first please!", h.Topic)
	}
	if !topic.Readable {
		return p, protocol.Errorf(protocol.NoPermission, "the topic[%s] pulling message is forbidden", h.Topic)
	}
	if h.QueueID < 0 || h.QueueID >= topic.ReadQueueNums {
		return p, protocol.Errorf(protocol.InvalidParameter, "queueId[%d] is illegal, topic:[%s] topicConfig.readQueueNums:[%d]",
			h.QueueID, h.Topic, topic.ReadQueueNums)
	}
	if p.filter, err = s.subscription(h, group); err != nil {
		return p, err
	}
	if s.groups.ReadForbidden(group.Name, topic.Name) {
		return p, protocol.Errorf(protocol.NoPermission, "the consumer group[%s] is forbidden for topic[%s]", group.Name, topic.Name)
	}
	if strings.HasPrefix(topic.Name, message.RetryPrefix) {
		p.filter = nil // what a group failed to consume is its own, whatever the tag
	}
	p.queue = s.spool.Queue(topic.Name, h.QueueID)
	p.limit = spool.Limit{Messages: min(max(int(h.MaxMsgNums), 1), s.maxMessages), Bytes: pullMaxBytes}
	if h.SysFlag&protocol.PullSuspend != 0 {
		p.hold = min(time.Duration(max(h.SuspendTimeoutMillis, 0))*time.Millisecond, s.maxHold)
	}
	if h.SysFlag&protocol.PullCommitOffset != 0 && h.CommitOffset >= 0 {
		if err := s.offsets.Commit(topic.Name, group.Name, h.QueueID, h.CommitOffset); err != nil {
			return p, err
		}
	}
	return p, nil
}

// subscription finds what the consumer wants: the expression that the request
// carries, else the one that the group's heartbeats gave.
func (s *pullStream) subscription(h *protocol.PullMessageRequest, group *groups.Group) (spool.Filter, error) {
	if h.SysFlag&protocol.PullSubscription != 0 {
		if !tagExpression(h.ExpressionType) {
			return nil, errNoSQL
		}
		return s.tagFilter(h.Subscription), nil
	}
	members, ok := s.clients.GroupBytes(h.ConsumerGroup)
	if !ok {
		return nil, protocol.Errorf(protocol.SubscriptionNotExist, "the consumer's group info not exist, group: %s", h.ConsumerGroup)
	}
	if members.MessageModel == protocol.Broadcasting && !group.ConsumeBroadcastEnable {
		return nil, protocol.Errorf(protocol.NoPermission, "the consumer group[%s] can not consume by broadcast way", group.Name)
	}
	sub, ok := members.SubscriptionBytes(h.Topic)
	if !ok {
		return nil, protocol.Errorf(protocol.SubscriptionNotExist, "the consumer's subscription not exist, group: %s, topic: %s", h.ConsumerGroup, h.Topic)
	}
	if sub.SubVersion < h.SubVersion {
		return nil, protocol.Errorf(protocol.SubscriptionNotLatest, "the consumer's subscription not latest, group: %s, topic: %s", h.ConsumerGroup, h.Topic)
	}
	if sub.ExpressionType != "" && sub.ExpressionType != protocol.ExpressionTag {
		return nil, errNoSQL
	}
	return s.tagFilter([]byte(sub.SubString)), nil
}

var errNoSQL = protocol.Errorf(protocol.SystemError, "The broker does not support consumer to filter message by SQL92")

func tagExpression(kind []byte) bool { return len(kind) == 0 || string(kind) == protocol.ExpressionTag }

func (s *pullStream) tagFilter(expression []byte) spool.Filter {
	if len(expression) == 1 && expression[0] == '*' || len(expression) == 0 {
		return nil
	}
	if s.filter == nil || s.expression != string(expression) {
		s.expression = string(expression)
		s.filter = parseTags(s.expression)
	}
	return s.filter
}

// nothingYet says whether a read at an offset found nothing that a later message
// could not change, so that it is worth waiting. A queue without messages has
// no offset but 0 to wait at.
func nothingYet(status spool.ReadStatus, offset int64) bool {
	switch status {
	case spool.NoMatchedMessage, spool.OffsetOverflowOne, spool.OffsetFoundNull:
		return true
	case spool.NoMatchedLogicQueue, spool.NoMessageInQueue:
		return offset == 0
	}
	return false
}

// wait holds a pull until a message matches, its time is over or its topic is
// deleted. What it scanned without a match it does not scan again; the answer
// moves the client past it.
func (p *puller) wait(ctx context.Context, conn *remoting.Conn, held pull, from int64) {
	ctx, cancel := context.WithTimeout(ctx, held.hold)
	defer cancel()
	var records spool.Records
	defer records.Release()
	result := spool.ReadResult{Status: spool.OffsetOverflowOne}
	for held.queue.Wait(ctx, from) == nil {
		result = p.spool.Read(held.queue, from, held.limit, held.filter, &records)
		if result.Err != nil || !nothingYet(result.Status, from) {
			break
		}
		from = max(result.Next, from)
	}
	if conn.Context().Err() != nil {
		return
	}
	if result.Err == nil && nothingYet(result.Status, from) {
		result.Min, result.Max, result.Next = held.queue.Min(), held.queue.Max(), from
		result.Status = spool.OffsetOverflowOne
		if from > held.offset {
			result.Status = spool.NoMatchedMessage
		}
	}
	_ = conn.Write(func(dst []byte) []byte { return p.appendResult(dst, &held, &records, result) })
}

// appendResult appends the answer that a read's result calls for.
func (p *puller) appendResult(dst []byte, q *pull, records *spool.Records, result spool.ReadResult) []byte {
	code := pullCode(result.Status, q.offset)
	if result.Err != nil && code != protocol.Success {
		return appendPullAnswer(dst, q, int32(protocol.SystemError), result.Err.Error(), result)
	}
	if code == protocol.Success {
		f := beginPullAnswer(dst, q, int32(code), "FOUND", result)
		answer := f.End(records.AppendTo(f.BeginBody()))
		if err := records.Err(); err != nil {
			// The header says that the client may go on behind all of them.
			p.log.Error("cannot read what was pulled", "topic", q.queue.Topic(), "queue", q.queue.ID(), "offset", q.offset, "err", err)
			return appendPullAnswer(dst, q, int32(protocol.SystemError), err.Error(), spool.ReadResult{Next: q.offset, Min: result.Min, Max: result.Max})
		}
		p.counters.pulled.Add(int64(records.Len()))
		p.counters.pulledBytes.Add(int64(records.Bytes()))
		return answer
	}
	p.counters.emptyPulls.Add(1)
	return appendPullAnswer(dst, q, int32(code), result.Status.String(), result)
}

// pullCode maps what a read found to the answer's code (remoting protocol, pull
// result mapping).
func pullCode(status spool.ReadStatus, asked int64) protocol.ResponseCode {
	switch status {
	case spool.Found:
		return protocol.Success
	case spool.NoMatchedMessage, spool.MessageWasRemoving:
		return protocol.PullRetryImmediately
	case spool.NoMatchedLogicQueue, spool.NoMessageInQueue:
		if asked != 0 {
			return protocol.PullOffsetMoved
		}
		return protocol.PullNotFound
	case spool.OffsetOverflowOne, spool.OffsetFoundNull:
		return protocol.PullNotFound
	}
	return protocol.PullOffsetMoved
}

func beginPullAnswer(dst []byte, q *pull, code int32, remark string, r spool.ReadResult) protocol.FrameWriter {
	f := protocol.BeginFrame(dst, q.coding, code, protocol.FlagResponse, q.opaque, remark)
	f.Int("suggestWhichBrokerId", 0)
	f.Int("nextBeginOffset", r.Next)
	f.Int("minOffset", r.Min)
	f.Int("maxOffset", r.Max)
	return f
}

func appendPullAnswer(dst []byte, q *pull, code int32, remark string, r spool.ReadResult) []byte {
	f := beginPullAnswer(dst, q, code, remark, r)
	return f.End(f.BeginBody())
}

// parseTags makes a filter of a tag expression "a || b". The consume queue
// holds hashes, so the client compares the text once more.
func parseTags(expression string) spool.Filter {
	var codes []int64
	for tag := range strings.SplitSeq(expression, "||") {
		if tag = strings.TrimSpace(tag); tag == "*" {
			return nil
		} else if tag != "" {
			codes = append(codes, message.TagHash([]byte(tag)))
		}
	}
	if len(codes) == 0 {
		return nil
	}
	if len(codes) == 1 {
		return func(code int64) bool { return code == codes[0] }
	}
	set := make(map[int64]struct{}, len(codes))
	for _, c := range codes {
		set[c] = struct{}{}
	}
	return func(code int64) bool { _, ok := set[code]; return ok }
}
