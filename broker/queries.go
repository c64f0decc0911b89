package broker

import (
	"context"

	"github.com/sluicemq/sluice/broker/groups"
	"github.com/sluicemq/sluice/broker/offsets"
	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

// positions answers what clients ask about offsets: those of groups (14, 15) and
// those of queues (29 to 32).
type positions struct {
	topics  *topics.Table
	groups  *groups.Table
	offsets *offsets.Table
	spool   *spool.Spool
	// nearEnd is how many bytes behind the log's end still count as in memory.
	nearEnd int64
}

// queue finds a queue that a request names, checked against its topic.
func (p *positions) queue(topicName string, id int32) (*spool.Queue, error) {
	topic, ok := p.topics.Get(topicName)
	if !ok {
		return nil, protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist, apply first please!", topicName)
	}
	if limit := max(topic.ReadQueueNums, topic.WriteQueueNums); id < 0 || id >= limit {
		return nil, protocol.Errorf(protocol.InvalidParameter, "queueId[%d] is illegal, topic[%s] has %d queues", id, topicName, limit)
	}
	return p.spool.Queue(topic.Name, id), nil
}

func offsetAnswer(offset int64) (*protocol.Command, error) {
	return protocol.NewResponse(protocol.Success, "", &protocol.OffsetResponse{Offset: offset}, nil), nil
}

// committed answers 14. A group that has no offset on a queue whose first
// message is still at hand begins at 0: a message that arrives while a new
// consumer starts would else fall between its two questions.
func (p *positions) committed(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.QueryConsumerOffsetRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	if offset, ok := p.offsets.Query(h.Topic, h.ConsumerGroup, h.QueueID); ok {
		return offsetAnswer(offset)
	}
	queue, err := p.queue(h.Topic, h.QueueID)
	if err == nil && h.SetZeroIfNotFound.Or(true) && queue.Min() <= 0 && (queue.Max() == 0 || p.atHand(queue)) {
		return offsetAnswer(0)
	}
	return nil, protocol.Errorf(protocol.QueryNotFound, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
}

// atHand says whether a queue's first message is near the log's end.
func (p *positions) atHand(queue *spool.Queue) bool {
	var records spool.Records
	defer records.Release()
	if p.spool.Read(queue, 0, spool.Limit{Messages: 1, Bytes: 1}, nil, &records).Status != spool.Found {
		return false
	}
	first := int64(-1)
	records.Each(func(record []byte) bool {
		if v, err := message.ViewOf(record); err == nil {
			first = v.PhysicalOffset()
		}
		return false
	})
	return first >= 0 && p.spool.Stats().MaxOffset-first < p.nearEnd
}

// commit answers 15.
func (p *positions) commit(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.UpdateConsumerOffsetRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	if _, ok := p.groups.Get(h.ConsumerGroup); !ok {
		return nil, protocol.Errorf(protocol.SubscriptionGroupNotExist, "Group %s not exist!", h.ConsumerGroup)
	}
	if _, err := p.queue(h.Topic, h.QueueID); err != nil {
		return nil, err
	}
	if err := p.offsets.Commit(h.Topic, h.ConsumerGroup, h.QueueID, h.CommitOffset); err != nil {
		return nil, err
	}
	return protocol.NewResponse(protocol.Success, "", nil, nil), nil
}

// byTime answers 29.
func (p *positions) byTime(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.SearchOffsetRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	queue, err := p.queue(h.Topic, h.QueueID)
	if err != nil {
		return nil, err
	}
	return offsetAnswer(p.spool.OffsetByTime(queue, h.Timestamp, h.BoundaryType == "UPPER"))
}

// last answers 30.
func (p *positions) last(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.GetMaxOffsetRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	queue, err := p.queue(h.Topic, h.QueueID)
	if err != nil {
		return nil, err
	}
	return offsetAnswer(queue.Max())
}

// first answers 31.
func (p *positions) first(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.GetMinOffsetRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	queue, err := p.queue(h.Topic, h.QueueID)
	if err != nil {
		return nil, err
	}
	return offsetAnswer(queue.Min())
}

// earliest answers 32.
func (p *positions) earliest(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.GetEarliestMsgStoreTimeRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	queue, err := p.queue(h.Topic, h.QueueID)
	if err != nil {
		return nil, err
	}
	return protocol.NewResponse(protocol.Success, "",
		&protocol.GetEarliestMsgStoreTimeResponse{Timestamp: p.spool.EarliestStoreTime(queue)}, nil), nil
}
