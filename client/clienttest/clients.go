package clienttest

import (
	"maps"
	"slices"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

func (b *Broker) heartbeat(conn *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var data protocol.HeartbeatData
	if err := protocol.Unmarshal(req.Body, &data); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	for _, p := range data.ProducerDataSet {
		b.joinLocked("producer:"+p.GroupName, data.ClientID, conn)
	}
	for _, c := range data.ConsumerDataSet {
		retry := message.RetryTopic(c.GroupName)
		if b.topics[retry] == nil {
			b.topics[retry] = &topic{perm: 6, queues: make([]queue, 1)}
		}
		b.joinLocked(c.GroupName, data.ClientID, conn)
	}
	return ok(&protocol.HeartbeatResponse{SupportHeartbeatV2: true, SubChange: true}), nil
}

func (b *Broker) joinLocked(group, id string, conn *remoting.Conn) {
	known := b.members[group][id] != nil
	if b.members[group] == nil {
		b.members[group] = make(map[string]*remoting.Conn)
	}
	b.members[group][id] = conn
	if !known {
		b.notifyLocked(group)
	}
}

// notifyLocked tells all members of a consumer group that it changed.
func (b *Broker) notifyLocked(group string) {
	for _, conn := range b.members[group] {
		header := protocol.NotifyConsumerIDsChangedRequest{ConsumerGroup: group}
		_ = conn.OneWay(protocol.NewRequest(protocol.NotifyConsumerIDsChanged, &header, nil))
	}
}

func (b *Broker) unregister(req *protocol.Command) (*protocol.Command, error) {
	var h protocol.UnregisterClientRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.members["producer:"+h.ProducerGroup], h.ClientID)
	delete(b.members[h.ConsumerGroup], h.ClientID)
	b.notifyLocked(h.ConsumerGroup)
	return ok(nil), nil
}

func (b *Broker) list(req *protocol.Command) (*protocol.Command, error) {
	var h protocol.GetConsumerListByGroupRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	b.mu.Lock()
	ids := slices.Collect(maps.Keys(b.members[h.ConsumerGroup]))
	b.mu.Unlock()
	if len(ids) == 0 {
		return nil, protocol.Errorf(protocol.SystemError, "no consumer for this group, %s", h.ConsumerGroup)
	}
	return body(protocol.GetConsumerListByGroupBody{ConsumerIDList: ids})
}

func (b *Broker) offset(req *protocol.Command) (*protocol.Command, error) {
	switch req.RequestCode() {
	case protocol.UpdateConsumerOffset:
		var h protocol.UpdateConsumerOffsetRequest
		if err := req.DecodeHeader(&h); err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.offsets[groupQueue{h.ConsumerGroup, h.Topic, h.QueueID}] = h.CommitOffset
		return ok(nil), nil
	case protocol.QueryConsumerOffset:
		var h protocol.QueryConsumerOffsetRequest
		if err := req.DecodeHeader(&h); err != nil {
			return nil, err
		}
		offset := b.Offset(h.ConsumerGroup, h.Topic, h.QueueID)
		if offset < 0 {
			return nil, protocol.Errorf(protocol.QueryNotFound, "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first")
		}
		return ok(&protocol.OffsetResponse{Offset: offset}), nil
	}
	return b.queueOffset(req)
}

// queueOffset answers for the ends of a queue and for a time.
func (b *Broker) queueOffset(req *protocol.Command) (*protocol.Command, error) {
	// All three requests name their queue in the same way.
	var h protocol.GetMinOffsetRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	var search protocol.SearchOffsetRequest
	if req.RequestCode() == protocol.SearchOffsetByTimestamp {
		if err := req.DecodeHeader(&search); err != nil {
			return nil, err
		}
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[h.Topic]
	if t == nil || int(h.QueueID) >= len(t.queues) {
		return nil, protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist", h.Topic)
	}
	q := &t.queues[h.QueueID]
	offset := q.max()
	switch req.RequestCode() {
	case protocol.GetMinOffset:
		offset = q.min
	case protocol.SearchOffsetByTimestamp:
		for i := range q.messages {
			if q.messages[i].StoreTimestamp >= search.Timestamp {
				offset = q.messages[i].QueueOffset
				break
			}
		}
	}
	return ok(&protocol.OffsetResponse{Offset: offset}), nil
}

func (b *Broker) admin(req *protocol.Command) (*protocol.Command, error) {
	switch req.RequestCode() {
	case protocol.UpdateAndCreateTopic:
		var h protocol.CreateTopicRequest
		if err := req.DecodeHeader(&h); err != nil {
			return nil, err
		}
		b.CreateTopic(h.Topic, int(h.WriteQueueNums))
		b.SetPerm(h.Topic, h.Perm)
		return ok(nil), nil
	case protocol.DeleteTopicInBroker:
		var h protocol.TopicRequest
		if err := req.DecodeHeader(&h); err != nil {
			return nil, err
		}
		b.DeleteTopic(h.Topic)
		return ok(nil), nil
	case protocol.UpdateAndCreateSubscriptionGroup:
		var g protocol.SubscriptionGroupConfig
		if err := protocol.Unmarshal(req.Body, &g); err != nil {
			return nil, err
		}
		b.mu.Lock()
		defer b.mu.Unlock()
		b.groups = append(b.groups, g.GroupName)
		return ok(nil), nil
	case protocol.GetBrokerRuntimeInfo:
		return body(protocol.KVTable{Table: map[string]string{"brokerName": b.Name}})
	}
	return nil, protocol.Errorf(protocol.RequestCodeNotSupported, " request type %d not supported", req.Code)
}
