package protocol

// CreateTopicRequest is the header of UPDATE_AND_CREATE_TOPIC (17) and
// UPDATE_AND_CREATE_STATIC_TOPIC (513).
type CreateTopicRequest struct {
	Topic           string
	DefaultTopic    string
	ReadQueueNums   int32
	WriteQueueNums  int32
	Perm            int32  // 4 read, 2 write
	TopicFilterType string // "SINGLE_TAG" or "MULTI_TAG"
	TopicSysFlag    Opt[int32]
	Order           bool
	Attributes      string // optional: "+name=value,-name"
	Force           bool   // optional
}

func (h *CreateTopicRequest) bind(b *binder) {
	b.str("topic", &h.Topic, required)
	b.str("defaultTopic", &h.DefaultTopic, required)
	b.i32("readQueueNums", &h.ReadQueueNums, required)
	b.i32("writeQueueNums", &h.WriteQueueNums, required)
	b.i32("perm", &h.Perm, required)
	b.str("topicFilterType", &h.TopicFilterType, required)
	b.optI32("topicSysFlag", &h.TopicSysFlag)
	b.flag("order", &h.Order, optional)
	b.str("attributes", &h.Attributes, optional)
	b.flagIfSet("force", &h.Force)
}

// TopicRequest is the header of the requests that name a topic and nothing else:
// DELETE_TOPIC_IN_BROKER (215), GET_TOPIC_CONFIG (351), GET_TOPIC_STATS_INFO
// (202), QUERY_TOPIC_CONSUME_BY_WHO (300).
type TopicRequest struct{ Topic string }

func (h *TopicRequest) bind(b *binder) { b.str("topic", &h.Topic, required) }

// DeleteSubscriptionGroupRequest (207) removes a group.
type DeleteSubscriptionGroupRequest struct {
	GroupName   string
	CleanOffset bool // also its offsets
}

func (h *DeleteSubscriptionGroupRequest) bind(b *binder) {
	b.str("groupName", &h.GroupName, required)
	b.flag("cleanOffset", &h.CleanOffset, optional)
}

// GetSubscriptionGroupConfigRequest (352) asks for the settings of a group.
type GetSubscriptionGroupConfigRequest struct{ Group string }

func (h *GetSubscriptionGroupConfigRequest) bind(b *binder) { b.str("group", &h.Group, required) }

// GetAllTopicConfigRequest (21) asks for the topic table, in pages when TopicSeq
// is present.
type GetAllTopicConfigRequest struct {
	TopicSeq    Opt[int32] // first topic of the page
	DataVersion string     // optional: of the table the pages belong to
	MaxTopicNum Opt[int32]
}

func (h *GetAllTopicConfigRequest) bind(b *binder) {
	b.optI32("topicSeq", &h.TopicSeq)
	b.str("dataVersion", &h.DataVersion, optional)
	b.optI32("maxTopicNum", &h.MaxTopicNum)
}

// GetAllTopicConfigResponse tells how many topics there are in all.
type GetAllTopicConfigResponse struct{ TotalTopicNum Opt[int32] }

func (h *GetAllTopicConfigResponse) bind(b *binder) { b.optI32("totalTopicNum", &h.TotalTopicNum) }

// GetAllSubscriptionGroupRequest (201) asks for the group table, in pages when
// GroupSeq is present.
type GetAllSubscriptionGroupRequest struct {
	GroupSeq    Opt[int32]
	DataVersion string // optional
	MaxGroupNum Opt[int32]
}

func (h *GetAllSubscriptionGroupRequest) bind(b *binder) {
	b.optI32("groupSeq", &h.GroupSeq)
	b.str("dataVersion", &h.DataVersion, optional)
	b.optI32("maxGroupNum", &h.MaxGroupNum)
}

// GetAllSubscriptionGroupResponse tells how many groups there are in all.
type GetAllSubscriptionGroupResponse struct{ TotalGroupNum Opt[int32] }

func (h *GetAllSubscriptionGroupResponse) bind(b *binder) {
	b.optI32("totalGroupNum", &h.TotalGroupNum)
}

// GetBrokerConfigResponse is the header of the answer to GET_BROKER_CONFIG (26);
// the body is properties text.
type GetBrokerConfigResponse struct {
	Version string // a DataVersion as JSON
}

func (h *GetBrokerConfigResponse) bind(b *binder) { b.str("version", &h.Version, required) }

// ConsumerGroupRequest is the header of GET_CONSUMER_CONNECTION_LIST (203).
type ConsumerGroupRequest struct{ ConsumerGroup string }

func (h *ConsumerGroupRequest) bind(b *binder) { b.str("consumerGroup", &h.ConsumerGroup, required) }

// ProducerGroupRequest is the header of GET_PRODUCER_CONNECTION_LIST (204).
type ProducerGroupRequest struct{ ProducerGroup string }

func (h *ProducerGroupRequest) bind(b *binder) { b.str("producerGroup", &h.ProducerGroup, required) }

// GetConsumeStatsRequest (208) asks how far behind a group is.
type GetConsumeStatsRequest struct {
	ConsumerGroup string
	Topic         string // optional: every topic of the group
	TopicList     string // optional: joined by ';'
}

func (h *GetConsumeStatsRequest) bind(b *binder) {
	b.str("consumerGroup", &h.ConsumerGroup, required)
	b.str("topic", &h.Topic, optional)
	b.str("topicList", &h.TopicList, optional)
}

// GetConsumerRunningInfoRequest (307) asks a consumer about itself.
type GetConsumerRunningInfoRequest struct {
	ConsumerGroup string
	ClientID      string
	JstackEnable  bool // with a dump of its threads
}

func (h *GetConsumerRunningInfoRequest) bind(b *binder) {
	b.str("consumerGroup", &h.ConsumerGroup, required)
	b.str("clientId", &h.ClientID, required)
	b.flag("jstackEnable", &h.JstackEnable, optional)
}

// ConsumeMessageDirectlyRequest (309) has a consumer consume one record.
type ConsumeMessageDirectlyRequest struct {
	ConsumerGroup string
	ClientID      string // optional
	MsgID         string // optional: offset id of the record
	BrokerName    string // optional, as are the rest
	Topic         string
	TopicSysFlag  Opt[int32]
	GroupSysFlag  Opt[int32]
}

func (h *ConsumeMessageDirectlyRequest) bind(b *binder) {
	b.str("consumerGroup", &h.ConsumerGroup, required)
	b.str("clientId", &h.ClientID, optional)
	b.str("msgId", &h.MsgID, optional)
	b.str("brokerName", &h.BrokerName, optional)
	b.str("topic", &h.Topic, optional)
	b.optI32("topicSysFlag", &h.TopicSysFlag)
	b.optI32("groupSysFlag", &h.GroupSysFlag)
}

// ViewBrokerStatsDataRequest (315) asks for one counter.
type ViewBrokerStatsDataRequest struct {
	StatsName string
	StatsKey  string
}

func (h *ViewBrokerStatsDataRequest) bind(b *binder) {
	b.str("statsName", &h.StatsName, required)
	b.str("statsKey", &h.StatsKey, required)
}
