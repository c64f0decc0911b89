package protocol

// ConsumeType is how a consumer gets its messages.
type ConsumeType string

// The consume types.
const (
	ConsumeActively  ConsumeType = "CONSUME_ACTIVELY"  // pull
	ConsumePassively ConsumeType = "CONSUME_PASSIVELY" // push
	ConsumePop       ConsumeType = "CONSUME_POP"
)

func (ConsumeType) names() []string {
	return []string{string(ConsumeActively), string(ConsumePassively), string(ConsumePop)}
}

// MessageModel says whether the members of a group share the messages.
type MessageModel string

// The message models.
const (
	Broadcasting MessageModel = "BROADCASTING"
	Clustering   MessageModel = "CLUSTERING"
)

func (MessageModel) names() []string { return []string{string(Broadcasting), string(Clustering)} }

// ConsumeFromWhere says where a group starts in a queue that it has no offset for.
type ConsumeFromWhere string

// The starting points that are not deprecated.
const (
	ConsumeFromLastOffset  ConsumeFromWhere = "CONSUME_FROM_LAST_OFFSET"
	ConsumeFromFirstOffset ConsumeFromWhere = "CONSUME_FROM_FIRST_OFFSET"
	ConsumeFromTimestamp   ConsumeFromWhere = "CONSUME_FROM_TIMESTAMP"
)

func (ConsumeFromWhere) names() []string {
	return []string{
		string(ConsumeFromLastOffset), "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
		"CONSUME_FROM_MIN_OFFSET", "CONSUME_FROM_MAX_OFFSET", string(ConsumeFromFirstOffset), string(ConsumeFromTimestamp),
	}
}

// The filter expression types.
const (
	ExpressionTag   = "TAG"
	ExpressionSQL92 = "SQL92"
)

// SubscriptionData is what a group wants of one topic.
type SubscriptionData struct {
	ClassFilterMode bool     `json:"classFilterMode"`
	CodeSet         []int32  `json:"codeSet"` // tag hashes
	ExpressionType  string   `json:"expressionType"`
	SubString       string   `json:"subString"`  // "*", "a || b", or an SQL expression
	SubVersion      int64    `json:"subVersion"` // ms of the last change, the newest wins
	TagsSet         []string `json:"tagsSet"`
	Topic           string   `json:"topic"`
}

func (s *SubscriptionData) defaults() { *s = SubscriptionData{ExpressionType: ExpressionTag} }

// ConsumerData is one consumer group of a heartbeat.
type ConsumerData struct {
	ConsumeFromWhere    ConsumeFromWhere   `json:"consumeFromWhere"`
	ConsumeType         ConsumeType        `json:"consumeType"`
	GroupName           string             `json:"groupName"`
	MessageModel        MessageModel       `json:"messageModel"`
	SubscriptionDataSet []SubscriptionData `json:"subscriptionDataSet"`
	UnitMode            bool               `json:"unitMode"`
}

// ProducerData is one producer group of a heartbeat.
type ProducerData struct {
	GroupName string `json:"groupName"`
}

// HeartbeatData is the body of HEART_BEAT.
type HeartbeatData struct {
	ClientID             string         `json:"clientID"`
	ConsumerDataSet      []ConsumerData `json:"consumerDataSet"`
	HeartbeatFingerprint int32          `json:"heartbeatFingerprint"` // not 0: version 2
	ProducerDataSet      []ProducerData `json:"producerDataSet"`
	WithoutSub           bool           `json:"withoutSub" alias:"isWithoutSub"` // version 2: only keeps the client alive
}

// GetConsumerListByGroupBody is the body of the answer to GET_CONSUMER_LIST_BY_GROUP.
type GetConsumerListByGroupBody struct {
	ConsumerIDList []string `json:"consumerIdList"`
}

// LockBatchRequest is the body of LOCK_BATCH_MQ and UNLOCK_BATCH_MQ.
type LockBatchRequest struct {
	ClientID       string         `json:"clientId"`
	ConsumerGroup  string         `json:"consumerGroup"`
	MQSet          []MessageQueue `json:"mqSet"`
	OnlyThisBroker bool           `json:"onlyThisBroker"`
}

// LockBatchResponse is the body of the answer to LOCK_BATCH_MQ.
type LockBatchResponse struct {
	LockOKMQSet []MessageQueue `json:"lockOKMQSet"`
}

// A Connection is a client as operators see it.
type Connection struct {
	ClientAddr string `json:"clientAddr"` // ip:port
	ClientID   string `json:"clientId"`
	Language   string `json:"language"`
	Version    int32  `json:"version"`
}

// ConsumerConnection is the body of the answer to GET_CONSUMER_CONNECTION_LIST.
type ConsumerConnection struct {
	ConnectionSet     []Connection                `json:"connectionSet"`
	ConsumeFromWhere  ConsumeFromWhere            `json:"consumeFromWhere,omitempty"`
	ConsumeType       ConsumeType                 `json:"consumeType,omitempty"`
	MessageModel      MessageModel                `json:"messageModel,omitempty"`
	SubscriptionTable map[string]SubscriptionData `json:"subscriptionTable"`
}

// ProducerConnection is the body of the answer to GET_PRODUCER_CONNECTION_LIST.
type ProducerConnection struct {
	ConnectionSet []Connection `json:"connectionSet"`
}

// CheckClientRequest is the body of CHECK_CLIENT_CONFIG.
type CheckClientRequest struct {
	ClientID         string            `json:"clientId"`
	Group            string            `json:"group"`
	Namespace        string            `json:"namespace,omitempty"`
	SubscriptionData *SubscriptionData `json:"subscriptionData"`
}

// ResetOffsetBody is the body of RESET_CONSUMER_CLIENT_OFFSET.
type ResetOffsetBody struct {
	OffsetTable map[MessageQueue]int64 `json:"offsetTable"`
}

// ResetOffsetList is ResetOffsetBody in the form that C++ clients read.
type ResetOffsetList struct {
	OffsetTable []QueueOffset `json:"offsetTable"`
}

// A QueueOffset is a queue and an offset in it.
type QueueOffset struct {
	BrokerName string `json:"brokerName"`
	Offset     int64  `json:"offset"`
	QueueID    int32  `json:"queueId"`
	Topic      string `json:"topic"`
}

// ConsumerRunningInfo is a consumer's answer to GET_CONSUMER_RUNNING_INFO.
type ConsumerRunningInfo struct {
	Jstack           string                            `json:"jstack,omitempty"`
	MQPopTable       map[MessageQueue]PopProcessQueue  `json:"mqPopTable"`
	MQTable          map[MessageQueue]ProcessQueueInfo `json:"mqTable"`
	Properties       map[string]string                 `json:"properties"`
	StatusTable      map[string]ConsumeStatus          `json:"statusTable"` // by topic
	SubscriptionSet  []SubscriptionData                `json:"subscriptionSet"`
	UserConsumerInfo map[string]string                 `json:"userConsumerInfo"`
}

// ProcessQueueInfo is what a push consumer holds of one queue.
type ProcessQueueInfo struct {
	CachedMsgCount          int32 `json:"cachedMsgCount"`
	CachedMsgMaxOffset      int64 `json:"cachedMsgMaxOffset"`
	CachedMsgMinOffset      int64 `json:"cachedMsgMinOffset"`
	CachedMsgSizeInMiB      int32 `json:"cachedMsgSizeInMiB"`
	CommitOffset            int64 `json:"commitOffset"`
	Dropped                 bool  `json:"droped"`
	LastConsumeTimestamp    int64 `json:"lastConsumeTimestamp"` // ms
	LastLockTimestamp       int64 `json:"lastLockTimestamp"`    // ms
	LastPullTimestamp       int64 `json:"lastPullTimestamp"`    // ms
	Locked                  bool  `json:"locked"`
	TransactionMsgCount     int32 `json:"transactionMsgCount"`
	TransactionMsgMaxOffset int64 `json:"transactionMsgMaxOffset"`
	TransactionMsgMinOffset int64 `json:"transactionMsgMinOffset"`
	TryUnlockTimes          int64 `json:"tryUnlockTimes"`
}

// PopProcessQueue is what a POP consumer holds of one queue.
type PopProcessQueue struct {
	Dropped          bool  `json:"droped"`
	LastPopTimestamp int64 `json:"lastPopTimestamp"` // ms
	WaitAckCount     int32 `json:"waitAckCount"`
}

// ConsumeStatus is how fast a consumer is with one topic.
type ConsumeStatus struct {
	ConsumeFailedMsgs int64   `json:"consumeFailedMsgs"`
	ConsumeFailedTPS  float64 `json:"consumeFailedTPS"`
	ConsumeOKTPS      float64 `json:"consumeOKTPS"`
	ConsumeRT         float64 `json:"consumeRT"` // ms
	PullRT            float64 `json:"pullRT"`    // ms
	PullTPS           float64 `json:"pullTPS"`
}

// ConsumeResult is what came of consuming one message on demand.
type ConsumeResult string

// The results of CONSUME_MESSAGE_DIRECTLY.
const (
	ConsumeSuccess        ConsumeResult = "CR_SUCCESS"
	ConsumeLater          ConsumeResult = "CR_LATER"
	ConsumeRollback       ConsumeResult = "CR_ROLLBACK"
	ConsumeCommit         ConsumeResult = "CR_COMMIT"
	ConsumeThrowException ConsumeResult = "CR_THROW_EXCEPTION"
	ConsumeReturnNull     ConsumeResult = "CR_RETURN_NULL"
)

func (ConsumeResult) names() []string {
	return []string{
		string(ConsumeSuccess), string(ConsumeLater), string(ConsumeRollback),
		string(ConsumeCommit), string(ConsumeThrowException), string(ConsumeReturnNull),
	}
}

// ConsumeMessageDirectlyResult is a consumer's answer to CONSUME_MESSAGE_DIRECTLY.
type ConsumeMessageDirectlyResult struct {
	AutoCommit     bool          `json:"autoCommit"`
	ConsumeResult  ConsumeResult `json:"consumeResult"`
	Order          bool          `json:"order"`
	Remark         string        `json:"remark,omitempty"`
	SpentTimeMills int64         `json:"spentTimeMills"`
}
