package broker

import (
	"context"
	"log/slog"

	"github.com/sluicemq/sluice/broker/offsets"
	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

// topicAdmin answers operators about topics: 17, 21, 215, 305 and 351.
type topicAdmin struct {
	topics  *topics.Table
	offsets *offsets.Table
	spool   *spool.Spool
	address func() string
	log     *slog.Logger
}

// update answers 17: it creates a topic or changes one.
func (a *topicAdmin) update(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.CreateTopicRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	attributes, err := topics.ParseAttributes(h.Attributes)
	if err != nil {
		return nil, err
	}
	err = a.topics.Update(protocol.TopicConfig{
		TopicName: h.Topic, ReadQueueNums: h.ReadQueueNums, WriteQueueNums: h.WriteQueueNums, Perm: h.Perm,
		TopicFilterType: h.TopicFilterType, TopicSysFlag: h.TopicSysFlag.Or(0), Order: h.Order, Attributes: attributes,
	})
	if err != nil {
		return nil, err
	}
	return protocol.NewResponse(protocol.Success, "", nil, nil), nil
}

// remove answers 215. The table goes first: should the power fail before the
// messages are gone, the spool's queues are only unreachable, never half there.
func (a *topicAdmin) remove(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.TopicRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	existed, err := a.topics.Delete(h.Topic)
	if err != nil {
		return nil, err
	}
	if err := message.ValidateTopic(h.Topic); err != nil && !existed {
		return nil, protocol.Errorf(protocol.InvalidParameter, "%v", err)
	}
	if err := a.spool.DeleteTopic(h.Topic); err != nil {
		return nil, err
	}
	if err := a.offsets.RemoveTopic(h.Topic); err != nil {
		return nil, err
	}
	a.log.Info("topic deleted", "topic", h.Topic)
	return protocol.NewResponse(protocol.Success, "", nil, nil), nil
}

// all answers 21: the whole table and its version.
func (a *topicAdmin) all(context.Context, *remoting.Conn, *protocol.Command) (*protocol.Command, error) {
	configs, version := a.topics.Snapshot()
	return protocol.NewJSONResponse(
		&protocol.GetAllTopicConfigResponse{TotalTopicNum: protocol.Some(int32(len(configs)))},
		protocol.TopicConfigSerializeWrapper{TopicConfigTable: configs, DataVersion: version})
}

// config answers 351.
func (a *topicAdmin) config(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.TopicRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	topic, ok := a.topics.Get(h.Topic)
	if !ok {
		return nil, protocol.Errorf(protocol.TopicNotExist, "No topic in this broker. topic: %s", h.Topic)
	}
	return protocol.NewJSONResponse(nil, topic.TopicConfig)
}

// system answers 305.
func (a *topicAdmin) system(context.Context, *remoting.Conn, *protocol.Command) (*protocol.Command, error) {
	list := protocol.TopicList{TopicList: []string{}, BrokerAddr: a.address()}
	for name, topic := range a.topics.All() {
		if topic.System {
			list.TopicList = append(list.TopicList, name)
		}
	}
	return protocol.NewJSONResponse(nil, list)
}
