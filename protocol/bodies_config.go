package protocol

import "cmp"

// A DataVersion says how new a table is. Two are the same when all three numbers
// are.
type DataVersion struct {
	Counter      int64 `json:"counter"`
	StateVersion int64 `json:"stateVersion"` // of the master's term
	Timestamp    int64 `json:"timestamp"`    // ms
}

// Compare returns -1 when v is older than w, 1 when it is newer, else 0.
func (v DataVersion) Compare(w DataVersion) int {
	return cmp.Or(
		cmp.Compare(v.StateVersion, w.StateVersion),
		cmp.Compare(v.Counter, w.Counter),
		cmp.Compare(v.Timestamp, w.Timestamp),
	)
}

// Next returns the version after v, made at nowMillis.
func (v DataVersion) Next(nowMillis int64) DataVersion {
	return DataVersion{Counter: v.Counter + 1, StateVersion: v.StateVersion, Timestamp: nowMillis}
}

// The topic filter types.
const (
	SingleTag = "SINGLE_TAG"
	MultiTag  = "MULTI_TAG"
)

// A TopicConfig is the settings of one topic on one broker. Read from JSON it has
// Apache's defaults where a key is absent.
type TopicConfig struct {
	Attributes      map[string]string `json:"attributes"` // such as message.type, without sign
	Order           bool              `json:"order"`
	Perm            int32             `json:"perm"`
	ReadQueueNums   int32             `json:"readQueueNums"`
	TopicFilterType string            `json:"topicFilterType"`
	TopicName       string            `json:"topicName"`
	TopicSysFlag    int32             `json:"topicSysFlag"`
	WriteQueueNums  int32             `json:"writeQueueNums"`
}

func (c *TopicConfig) defaults() {
	*c = TopicConfig{
		Perm: PermRead | PermWrite, ReadQueueNums: 16, WriteQueueNums: 16, TopicFilterType: SingleTag,
	}
}

// TopicConfigSerializeWrapper is a broker's topic table: the topics.json file,
// the body of GET_ALL_TOPIC_CONFIG, and a part of RegisterBrokerBody.
type TopicConfigSerializeWrapper struct {
	DataVersion                DataVersion                      `json:"dataVersion"`
	MappingDataVersion         *DataVersion                     `json:"mappingDataVersion,omitempty"`
	TopicConfigTable           map[string]TopicConfig           `json:"topicConfigTable"`
	TopicQueueMappingDetailMap map[string]RawBody               `json:"topicQueueMappingDetailMap,omitempty"`
	TopicQueueMappingInfoMap   map[string]TopicQueueMappingInfo `json:"topicQueueMappingInfoMap,omitempty"`
}

// TopicConfigList is the body of UPDATE_AND_CREATE_TOPIC_LIST.
type TopicConfigList struct {
	TopicConfigList []TopicConfig `json:"topicConfigList"`
}

// A SubscriptionGroupConfig is the settings of one consumer group. Read from JSON
// it has Apache's defaults where a key is absent.
type SubscriptionGroupConfig struct {
	Attributes                     map[string]string        `json:"attributes"`
	BrokerID                       int64                    `json:"brokerId"`
	ConsumeBroadcastEnable         bool                     `json:"consumeBroadcastEnable"`
	ConsumeEnable                  bool                     `json:"consumeEnable"`
	ConsumeFromMinEnable           bool                     `json:"consumeFromMinEnable"`
	ConsumeMessageOrderly          bool                     `json:"consumeMessageOrderly"`
	ConsumeTimeoutMinute           int32                    `json:"consumeTimeoutMinute"`
	GroupName                      string                   `json:"groupName"`
	GroupRetryPolicy               *GroupRetryPolicy        `json:"groupRetryPolicy,omitempty"`
	GroupSysFlag                   int32                    `json:"groupSysFlag"`
	NotifyConsumerIDsChangedEnable bool                     `json:"notifyConsumerIdsChangedEnable"`
	RetryMaxTimes                  int32                    `json:"retryMaxTimes"`
	RetryQueueNums                 int32                    `json:"retryQueueNums"`
	SubscriptionDataSet            []SimpleSubscriptionData `json:"subscriptionDataSet,omitempty"`
	WhichBrokerWhenConsumeSlowly   int64                    `json:"whichBrokerWhenConsumeSlowly"`
}

func (c *SubscriptionGroupConfig) defaults() { *c = NewSubscriptionGroupConfig("") }

// NewSubscriptionGroupConfig returns the settings that a group has when nobody
// sets any.
func NewSubscriptionGroupConfig(group string) SubscriptionGroupConfig {
	return SubscriptionGroupConfig{
		GroupName: group, ConsumeEnable: true, ConsumeFromMinEnable: true, ConsumeBroadcastEnable: true,
		RetryQueueNums: 1, RetryMaxTimes: 16, WhichBrokerWhenConsumeSlowly: 1,
		NotifyConsumerIDsChangedEnable: true, ConsumeTimeoutMinute: 15,
	}
}

// GroupRetryPolicy says how long a message waits before each retry.
type GroupRetryPolicy struct {
	CustomizedRetryPolicy  *CustomizedRetryPolicy  `json:"customizedRetryPolicy,omitempty"`
	ExponentialRetryPolicy *ExponentialRetryPolicy `json:"exponentialRetryPolicy,omitempty"`
	Type                   string                  `json:"type"` // "CUSTOMIZED" or "EXPONENTIAL"
}

// CustomizedRetryPolicy lists the waits.
type CustomizedRetryPolicy struct {
	Next []int64 `json:"next"` // ms
}

// ExponentialRetryPolicy multiplies the wait each time.
type ExponentialRetryPolicy struct {
	Initial    int64 `json:"initial"` // ms
	Max        int64 `json:"max"`     // ms
	Multiplier int64 `json:"multiplier"`
}

// SimpleSubscriptionData is a subscription fixed in a group's settings.
type SimpleSubscriptionData struct {
	Expression     string `json:"expression"`
	ExpressionType string `json:"expressionType"`
	Topic          string `json:"topic"`
	Version        int64  `json:"version"`
}

// SubscriptionGroupList is the body of UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST.
type SubscriptionGroupList struct {
	GroupConfigList []SubscriptionGroupConfig `json:"groupConfigList"`
}

// SubscriptionGroupWrapper is a broker's group table: the subscriptionGroup.json
// file and the body of GET_ALL_SUBSCRIPTIONGROUP_CONFIG.
type SubscriptionGroupWrapper struct {
	DataVersion            DataVersion                        `json:"dataVersion"`
	ForbiddenTable         map[string]map[string]int32        `json:"forbiddenTable"`
	SubscriptionGroupTable map[string]SubscriptionGroupConfig `json:"subscriptionGroupTable"`
}

// ConsumerOffsetSerializeWrapper is a broker's offset table: the
// consumerOffset.json file and the body of GET_ALL_CONSUMER_OFFSET.
type ConsumerOffsetSerializeWrapper struct {
	DataVersion *DataVersion               `json:"dataVersion,omitempty"`
	OffsetTable map[string]map[int32]int64 `json:"offsetTable"` // "topic@group" to queue id to offset
}
