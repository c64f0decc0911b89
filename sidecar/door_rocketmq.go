package sidecar

import (
	"context"

	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// rocketDoor makes the engine's port also answer what clients ask a name server,
// with itself as the one broker there is. So a stock client needs only this
// address, as its name server's.
type rocketDoor struct {
	topics  *topics.Table
	ensure  func(ctx context.Context, topic string) (*topics.Topic, bool)
	cluster string
	name    string
	address func() string
}

// routes is the door's part of the request table.
func (d *rocketDoor) routes() remoting.Table {
	return remoting.Table{
		protocol.GetRouteInfoByTopic:           {Handler: d.route},
		protocol.GetBrokerClusterInfo:          {Handler: d.clusterInfo},
		protocol.GetAllTopicListFromNameServer: {Handler: d.topicList},
	}
}

func (d *rocketDoor) brokerData() protocol.BrokerData {
	return protocol.BrokerData{Cluster: d.cluster, BrokerName: d.name, BrokerAddrs: map[int64]string{0: d.address()}}
}

func (d *rocketDoor) route(ctx context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.GetRouteInfoRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	topic, ok := d.topics.Get(h.Topic)
	if !ok && message.ValidateTopic(h.Topic) == nil {
		topic, ok = d.ensure(ctx, h.Topic)
	}
	if !ok {
		return nil, protocol.Errorf(protocol.TopicNotExist, "No topic route info in name server for the topic: %s", h.Topic)
	}
	route := protocol.TopicRouteData{
		QueueDatas: []protocol.QueueData{{
			BrokerName: d.name, ReadQueueNums: topic.ReadQueueNums, WriteQueueNums: topic.WriteQueueNums,
			Perm: topic.Perm, TopicSysFlag: topic.TopicSysFlag,
		}},
		BrokerDatas:       []protocol.BrokerData{d.brokerData()},
		FilterServerTable: map[string][]string{},
	}
	encode := protocol.Marshal
	if !h.AcceptStandardJSONOnly && req.Version < protocol.Version4_9_4 {
		encode = protocol.MarshalFastjson
	}
	body, err := encode(&route)
	if err != nil {
		return nil, err
	}
	return protocol.NewResponse(protocol.Success, "", nil, body), nil
}

func (d *rocketDoor) clusterInfo(context.Context, *remoting.Conn, *protocol.Command) (*protocol.Command, error) {
	return protocol.NewJSONResponse(nil, protocol.ClusterInfo{
		BrokerAddrTable:  map[string]protocol.BrokerData{d.name: d.brokerData()},
		ClusterAddrTable: map[string][]string{d.cluster: {d.name}},
	})
}

func (d *rocketDoor) topicList(context.Context, *remoting.Conn, *protocol.Command) (*protocol.Command, error) {
	configs, _ := d.topics.Snapshot()
	list := protocol.TopicList{TopicList: make([]string, 0, len(configs))}
	for name := range configs {
		list.TopicList = append(list.TopicList, name)
	}
	return protocol.NewJSONResponse(nil, list)
}
