//go:build interop

package interop

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

func sendFields(topic string, queue int, more map[string]string) map[string]string {
	m := map[string]string{
		"producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": strconv.Itoa(queue),
		"sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "KEYS\x01k\x02UNIQ_KEY\x0101020304\x02", "reconsumeTimes": "0",
		"unitMode": "false", "batch": "false",
	}
	maps.Copy(m, more)
	return m
}

func pullFields(group, topic string, queue, offset int) map[string]string {
	return map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.Itoa(offset), "maxMsgNums": "32",
		"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
	}
}

func queue(topic string, id int, more map[string]string) map[string]string {
	m := map[string]string{"topic": topic, "queueId": strconv.Itoa(id)}
	maps.Copy(m, more)
	return m
}

func topicFields(name string, queues int) map[string]string {
	n := strconv.Itoa(queues)
	return map[string]string{
		"topic": name, "defaultTopic": "TBW102", "readQueueNums": n, "writeQueueNums": n, "perm": "6", "topicFilterType": "SINGLE_TAG",
		"topicSysFlag": "0", "order": "false",
	}
}

func batchBody(n int) []byte {
	var body []byte
	for i := range n {
		body, _ = message.AppendBatchEntry(body, &message.Message{Body: fmt.Appendf(nil, "b%d", i), Properties: []byte("UNIQ_KEY\x01" + strconv.Itoa(i) + "0\x02")})
	}
	return body
}

// questions are in an order in which later ones depend on earlier ones.
func questions() []question {
	return slices.Concat(aboutTables(), toNameServer(), sends(), aboutOffsets(), pulls(), aboutCommits(), aboutClients(), removals())
}

func aboutTables() []question {
	return []question{
		{name: "create topic", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("T", 2)},
		{name: "create topic of one queue", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("One", 1)},
		{name: "create topic again", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("T", 2)},
		{name: "create illegal topic", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("a/b", 2)},
		{name: "create long topic", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields(strings.Repeat("t", 128), 2)},
		{name: "create system topic", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("TBW102", 2)},
		{name: "topic config", to: "broker", code: protocol.GetTopicConfig, fields: map[string]string{"topic": "T"}},
		{name: "topic config of none", to: "broker", code: protocol.GetTopicConfig, fields: map[string]string{"topic": "None"}},
		{name: "all topic configs", to: "broker", code: protocol.GetAllTopicConfig},
		{name: "create group", to: "broker", code: protocol.UpdateAndCreateSubscriptionGroup, body: []byte(`{"groupName":"g","consumeEnable":true,"consumeFromMinEnable":true,"retryQueueNums":1,"retryMaxTimes":16,"brokerId":0,"whichBrokerWhenConsumeSlowly":1,"consumeBroadcastEnable":true,"notifyConsumerIdsChangedEnable":true}`)},
		{name: "create illegal group", to: "broker", code: protocol.UpdateAndCreateSubscriptionGroup, body: []byte(`{"groupName":"a/b"}`)},
		{name: "group config", to: "broker", code: protocol.GetSubscriptionGroupConfig, fields: map[string]string{"group": "g"}},
		{name: "all groups", to: "broker", code: protocol.GetAllSubscriptionGroupConfig},
	}
}

func toNameServer() []question {
	return []question{
		{name: "route", to: "namesrv", code: protocol.GetRouteInfoByTopic, fields: map[string]string{"topic": "T"}},
		{name: "route for old clients", to: "namesrv", code: protocol.GetRouteInfoByTopic, fields: map[string]string{"topic": "T"}, version: 317},
		{name: "route in binary", to: "namesrv", code: protocol.GetRouteInfoByTopic, fields: map[string]string{"topic": "T"}, coding: protocol.Binary},
		{name: "route of none", to: "namesrv", code: protocol.GetRouteInfoByTopic, fields: map[string]string{"topic": "None"}},
		{name: "cluster", to: "namesrv", code: protocol.GetBrokerClusterInfo},
		{name: "topics", to: "namesrv", code: protocol.GetAllTopicListFromNameServer},
		{name: "topics by cluster", to: "namesrv", code: protocol.GetTopicsByCluster, fields: map[string]string{"cluster": "DefaultCluster"}},
		{name: "topics by no cluster", to: "namesrv", code: protocol.GetTopicsByCluster, fields: map[string]string{"cluster": "None"}},
		{name: "system topics", to: "namesrv", code: protocol.GetSystemTopicListFromNS},
		{name: "put setting", to: "namesrv", code: protocol.PutKVConfig, fields: map[string]string{"namespace": "n", "key": "k", "value": "v"}},
		{name: "get setting", to: "namesrv", code: protocol.GetKVConfig, fields: map[string]string{"namespace": "n", "key": "k"}},
		{name: "get no setting", to: "namesrv", code: protocol.GetKVConfig, fields: map[string]string{"namespace": "n", "key": "none"}},
		{name: "settings", to: "namesrv", code: protocol.GetKVListByNamespace, fields: map[string]string{"namespace": "n"}},
		{name: "settings of none", to: "namesrv", code: protocol.GetKVListByNamespace, fields: map[string]string{"namespace": "none"}},
		{name: "delete setting", to: "namesrv", code: protocol.DeleteKVConfig, fields: map[string]string{"namespace": "n", "key": "k"}},
		{name: "members of a broker", to: "namesrv", code: protocol.GetBrokerMemberGroup, fields: map[string]string{"clusterName": "DefaultCluster", "brokerName": "broker-a"}},
		{name: "unknown code to name server", to: "namesrv", code: 9999},
		{name: "unknown code to broker", to: "broker", code: 9999},
	}
}

func sends() []question {
	many := strings.Repeat("x", 33_000)
	return []question{
		{name: "send", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 0, nil), body: []byte("one")},
		{name: "send to any queue", to: "broker", code: protocol.SendMessage, fields: sendFields("One", -1, nil), body: []byte("two")},
		{name: "send to no queue", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 9, nil), body: []byte("x")},
		{name: "send to new topic", to: "broker", code: protocol.SendMessage, fields: sendFields("New", 0, nil), body: []byte("x")},
		{name: "send to topic that cannot be made", to: "broker", code: protocol.SendMessage, fields: sendFields("New2", 0, map[string]string{"defaultTopic": "T"}), body: []byte("x")},
		{name: "send to illegal topic", to: "broker", code: protocol.SendMessage, fields: sendFields("a/b", 0, nil), body: []byte("x")},
		{name: "send to forbidden topic", to: "broker", code: protocol.SendMessage, fields: sendFields("SCHEDULE_TOPIC_XXXX", 0, nil), body: []byte("x")},
		{name: "send long properties", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 0, map[string]string{"properties": "a\x01" + many + "\x02"}), body: []byte("x")},
		{name: "send long body", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 0, nil), body: make([]byte, 4<<20+1)},
		{name: "send without body", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 0, nil)},
		{name: "send batch", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 1, map[string]string{"batch": "true"}), body: batchBody(3)},
		{name: "send broken batch", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 1, map[string]string{"batch": "true"}), body: []byte("no batch")},
		{name: "send to retry topic of no group", to: "broker", code: protocol.SendMessage, fields: sendFields("%RETRY%none", 0, nil), body: []byte("x")},
	}
}

func aboutOffsets() []question {
	return []question{
		{name: "max offset", to: "broker", code: protocol.GetMaxOffset, fields: queue("T", 1, nil)},
		{name: "max offset of no topic", to: "broker", code: protocol.GetMaxOffset, fields: queue("None", 0, nil)},
		{name: "min offset", to: "broker", code: protocol.GetMinOffset, fields: queue("T", 1, nil)},
		{name: "offset by time", to: "broker", code: protocol.SearchOffsetByTimestamp, fields: queue("T", 1, map[string]string{"timestamp": "0"})},
		{name: "offset by late time", to: "broker", code: protocol.SearchOffsetByTimestamp, fields: queue("T", 1, map[string]string{"timestamp": "9999999999999"})},
		{name: "earliest time", to: "broker", code: protocol.GetEarliestMsgStoreTime, fields: queue("T", 1, nil)},
		{name: "earliest time of no queue", to: "broker", code: protocol.GetEarliestMsgStoreTime, fields: queue("T", 7, nil)},
	}
}

func pulls() []question {
	return []question{
		{name: "pull of no subscriber", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "T", 1, 0)},
		{name: "pull from the end", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "T", 1, 3)},
		{name: "pull beyond the end", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "T", 1, 99)},
		{name: "pull from no topic", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "None", 0, 0)},
		{name: "pull from no queue", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "T", 9, 0)},
		{name: "pull by new group", to: "broker", code: protocol.PullMessage, fields: pullFields("g2", "T", 1, 0)},
		{name: "pull by illegal group", to: "broker", code: protocol.PullMessage, fields: pullFields("a/b", "T", 1, 0)},
		{name: "pull without subscription", to: "broker", code: protocol.PullMessage, fields: func() map[string]string { m := pullFields("g", "T", 1, 0); m["sysFlag"] = "0"; return m }()},
		{name: "lite pull", to: "broker", code: protocol.LitePullMessage, fields: pullFields("g", "T", 1, 0)},
	}
}

func aboutCommits() []question {
	return []question{
		{name: "offset of none", to: "broker", code: protocol.QueryConsumerOffset, fields: queue("T", 0, map[string]string{"consumerGroup": "g"})},
		{name: "offset of none, not zero", to: "broker", code: protocol.QueryConsumerOffset, fields: queue("T", 0, map[string]string{"consumerGroup": "g", "setZeroIfNotFound": "false"})},
		{name: "commit", to: "broker", code: protocol.UpdateConsumerOffset, fields: queue("T", 0, map[string]string{"consumerGroup": "g", "commitOffset": "1"})},
		{name: "committed", to: "broker", code: protocol.QueryConsumerOffset, fields: queue("T", 0, map[string]string{"consumerGroup": "g"})},
		{name: "commit for no topic", to: "broker", code: protocol.UpdateConsumerOffset, fields: queue("None", 0, map[string]string{"consumerGroup": "g", "commitOffset": "1"})},
	}
}

func aboutClients() []question {
	heartbeat := []byte(`{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY",` +
		`"groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG",` +
		`"subString":"*","subVersion":1,"tagsSet":[],"topic":"T"}],"unitMode":false}],"producerDataSet":[{"groupName":"p"}],"heartbeatFingerprint":0}`)
	return []question{
		{name: "members of none", to: "broker", code: protocol.GetConsumerListByGroup, fields: map[string]string{"consumerGroup": "none"}},
		{name: "heartbeat", to: "broker", code: protocol.Heartbeat, body: heartbeat},
		{name: "unregister", to: "broker", code: protocol.UnregisterClient, fields: map[string]string{"clientID": "c1", "consumerGroup": "g"}},
		{name: "broker config", to: "broker", code: protocol.GetBrokerConfig},
		{name: "runtime info", to: "broker", code: protocol.GetBrokerRuntimeInfo},
	}
}

func removals() []question {
	return []question{
		{name: "wipe write permission", to: "namesrv", code: protocol.WipeWritePermOfBroker, fields: map[string]string{"brokerName": "broker-a"}},
		{name: "add write permission", to: "namesrv", code: protocol.AddWritePermOfBroker, fields: map[string]string{"brokerName": "broker-a"}},
		{name: "delete group", to: "broker", code: protocol.DeleteSubscriptionGroup, fields: map[string]string{"groupName": "g", "cleanOffset": "true"}},
		{name: "delete topic", to: "broker", code: protocol.DeleteTopicInBroker, fields: map[string]string{"topic": "T"}},
		{name: "delete system topic", to: "broker", code: protocol.DeleteTopicInBroker, fields: map[string]string{"topic": "TBW102"}},
		{name: "delete topic of name server", to: "namesrv", code: protocol.DeleteTopicInNameServer, fields: map[string]string{"topic": "T"}},
	}
}
