package protocol

import "encoding/json"

// A MessageQueue names one queue. As a map key it is written as a raw object.
type MessageQueue struct {
	BrokerName string `json:"brokerName"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

// Permission bits of topics and queues.
const (
	PermInherit int32 = 1
	PermWrite   int32 = 2
	PermRead    int32 = 4
)

// QueueData is how many queues of a topic one broker name has.
type QueueData struct {
	BrokerName     string `json:"brokerName"`
	Perm           int32  `json:"perm"`
	ReadQueueNums  int32  `json:"readQueueNums"`
	TopicSysFlag   int32  `json:"topicSysFlag" alias:"topicSynFlag"`
	WriteQueueNums int32  `json:"writeQueueNums"`
}

// BrokerData is the addresses of one broker name by broker id; id 0 is the
// master.
type BrokerData struct {
	BrokerAddrs        map[int64]string `json:"brokerAddrs"`
	BrokerName         string           `json:"brokerName"`
	Cluster            string           `json:"cluster"`
	EnableActingMaster bool             `json:"enableActingMaster"`
	ZoneName           string           `json:"zoneName,omitempty"`
}

// TopicRouteData is where a topic lives: the body of GET_ROUTEINFO_BY_TOPIC and
// REGISTER_TOPIC_IN_NAMESRV.
type TopicRouteData struct {
	BrokerDatas               []BrokerData                     `json:"brokerDatas"`
	FilterServerTable         map[string][]string              `json:"filterServerTable"`
	OrderTopicConf            string                           `json:"orderTopicConf,omitempty"` // "broker-a:4;broker-b:4"
	QueueDatas                []QueueData                      `json:"queueDatas"`
	TopicQueueMappingByBroker map[string]TopicQueueMappingInfo `json:"topicQueueMappingByBroker,omitempty"`
}

// AppendFastjson appends the route in the form that clients older than
// Version4_9_4 expect: broker ids stand without quotes.
func (r *TopicRouteData) AppendFastjson(dst []byte) ([]byte, error) {
	return appendValue(dst, r, true)
}

// TopicQueueMappingInfo is one broker's share of a static topic.
type TopicQueueMappingInfo struct {
	BrokerName  string          `json:"bname"`
	CurrIDMap   map[int32]int32 `json:"currIdMap"` // global queue id to the broker's own
	Dirty       bool            `json:"dirty"`
	Epoch       int64           `json:"epoch"`
	Scope       string          `json:"scope,omitempty"`
	Topic       string          `json:"topic"`
	TotalQueues int32           `json:"totalQueues"`
}

// ClusterInfo is the body of GET_BROKER_CLUSTER_INFO.
type ClusterInfo struct {
	BrokerAddrTable  map[string]BrokerData `json:"brokerAddrTable"`  // by broker name
	ClusterAddrTable map[string][]string   `json:"clusterAddrTable"` // cluster to broker names
}

// BrokerMemberGroup is the addresses of one broker name.
type BrokerMemberGroup struct {
	BrokerAddrs map[int64]string `json:"brokerAddrs"`
	BrokerName  string           `json:"brokerName"`
	Cluster     string           `json:"cluster"`
}

// GetBrokerMemberGroupBody is the body of GET_BROKER_MEMBER_GROUP.
type GetBrokerMemberGroupBody struct {
	BrokerMemberGroup *BrokerMemberGroup `json:"brokerMemberGroup"`
}

// KVTable is a table of texts: settings of a namespace, runtime information.
type KVTable struct {
	Table map[string]string `json:"table"`
}

// TopicList is the body of the requests that list topics.
type TopicList struct {
	BrokerAddr string   `json:"brokerAddr,omitempty"`
	TopicList  []string `json:"topicList"`
}

// RawBody is a body, or a part of one, that is handed on unread.
type RawBody = json.RawMessage
