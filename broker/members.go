package broker

import (
	"context"
	"errors"

	"github.com/sluicemq/sluice/broker/clients"
	"github.com/sluicemq/sluice/broker/groups"
	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// membership answers clients about themselves: heartbeats (34), leaving (35) and
// who is in a group (38).
type membership struct {
	clients *clients.Table
	groups  *groups.Table
	topics  *topics.Table
}

// heartbeat answers 34. Groups that are unknown and may not be created are
// passed over, as Apache's broker does; each other group gets its retry topic,
// which every Java consumer subscribes to.
func (m *membership) heartbeat(_ context.Context, c *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var beat protocol.HeartbeatData
	if err := protocol.Unmarshal(req.Body, &beat); err != nil {
		return nil, protocol.Errorf(protocol.InvalidParameter, "heartbeat: %v", err)
	}
	var refused error // why a group could not be made; the others are served first
	known := beat.ConsumerDataSet[:0]
	for _, consumer := range beat.ConsumerDataSet {
		group, err := m.groups.Ensure(consumer.GroupName)
		if err != nil {
			if protocol.AsError(err).Code != protocol.SubscriptionGroupNotExist {
				refused = err
			}
			continue
		}
		if !beat.WithoutSub {
			retry := topics.ReadWrite(message.RetryTopic(consumer.GroupName), max(int(group.RetryQueueNums), 1))
			if _, err := m.topics.Ensure(retry); err != nil {
				return nil, err
			}
		}
		known = append(known, consumer)
	}
	beat.ConsumerDataSet = known
	subChange, err := m.clients.Heartbeat(c, clients.Client{Language: req.Language, Version: req.Version}, &beat)
	if err = errors.Join(err, refused); err != nil {
		return nil, err
	}
	return protocol.NewResponse(protocol.Success, "", &protocol.HeartbeatResponse{SupportHeartbeatV2: true, SubChange: subChange}, nil), nil
}

// unregister answers 35.
func (m *membership) unregister(_ context.Context, c *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.UnregisterClientRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	m.clients.Unregister(c, h.ProducerGroup, h.ConsumerGroup)
	return protocol.NewResponse(protocol.Success, "", nil, nil), nil
}

// list answers 38.
func (m *membership) list(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.GetConsumerListByGroupRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	members := m.clients.Members(h.ConsumerGroup)
	if len(members) == 0 {
		return nil, protocol.Errorf(protocol.SystemError, "no consumer for this group, %s", h.ConsumerGroup)
	}
	return protocol.NewJSONResponse(nil, protocol.GetConsumerListByGroupBody{ConsumerIDList: members})
}
