package protocol

// Bits of PullMessageRequest.SysFlag.
const (
	PullCommitOffset int32 = 1 << iota // CommitOffset is valid
	PullSuspend                        // the broker may hold the request
	PullSubscription                   // Subscription is carried
	PullClassFilter
	PullLite
)

// PullMessageRequest is the header of PULL_MESSAGE (11) and LITE_PULL_MESSAGE
// (361). After a decode its texts alias the command.
type PullMessageRequest struct {
	ConsumerGroup        []byte
	Topic                []byte
	QueueID              int32
	QueueOffset          int64
	MaxMsgNums           int32
	SysFlag              int32
	CommitOffset         int64
	SuspendTimeoutMillis int64
	Subscription         []byte // optional
	SubVersion           int64
	ExpressionType       []byte // optional, "TAG" when absent
	MaxMsgBytes          Opt[int32]
	RequestSource        Opt[int32]
	ProxyClientID        []byte // optional, of a client behind Apache's proxy
	BrokerName           []byte // optional
}

func (h *PullMessageRequest) bind(b *binder) {
	b.bytes("consumerGroup", &h.ConsumerGroup, required)
	b.bytes("topic", &h.Topic, required)
	b.i32("queueId", &h.QueueID, required)
	b.i64("queueOffset", &h.QueueOffset, required)
	b.i32("maxMsgNums", &h.MaxMsgNums, required)
	b.i32("sysFlag", &h.SysFlag, required)
	b.i64("commitOffset", &h.CommitOffset, required)
	b.i64("suspendTimeoutMillis", &h.SuspendTimeoutMillis, required)
	b.bytes("subscription", &h.Subscription, optional)
	b.i64("subVersion", &h.SubVersion, required)
	b.bytes("expressionType", &h.ExpressionType, optional)
	b.optI32("maxMsgBytes", &h.MaxMsgBytes)
	b.optI32("requestSource", &h.RequestSource)
	b.bytes("proxyFrowardClientId", &h.ProxyClientID, optional)
	b.bytes("bname", &h.BrokerName, optional)
}

// pullNeeded are the bits that field sets for the nine required fields.
const pullNeeded = 1<<9 - 1

// decode is bind in one pass over the fields.
func (h *PullMessageRequest) decode(fields Fields) *Error {
	*h = PullMessageRequest{}
	seen, good := 0, true
	for i := range fields {
		bit, ok := h.field(fields[i].Key, fields[i].Value)
		seen |= bit
		good = good && ok
	}
	if good && seen&pullNeeded == pullNeeded {
		return nil
	}
	b := binder{from: fields}
	h.bind(&b)
	return b.err
}

// field sets the field of one key. It returns the bit of a required one, and
// whether v suits it.
func (h *PullMessageRequest) field(key, v []byte) (bit int, ok bool) {
	switch string(key) {
	case "consumerGroup":
		h.ConsumerGroup = v
		return 1, true
	case "topic":
		h.Topic = v
		return 1 << 1, true
	case "queueId":
		h.QueueID, ok = parseInt32(v)
		return 1 << 2, ok
	case "queueOffset":
		h.QueueOffset, ok = parseInt(v)
		return 1 << 3, ok
	case "maxMsgNums":
		h.MaxMsgNums, ok = parseInt32(v)
		return 1 << 4, ok
	case "sysFlag":
		h.SysFlag, ok = parseInt32(v)
		return 1 << 5, ok
	case "commitOffset":
		h.CommitOffset, ok = parseInt(v)
		return 1 << 6, ok
	case "suspendTimeoutMillis":
		h.SuspendTimeoutMillis, ok = parseInt(v)
		return 1 << 7, ok
	case "subVersion":
		h.SubVersion, ok = parseInt(v)
		return 1 << 8, ok
	}
	return 0, h.optionalField(key, v)
}

func (h *PullMessageRequest) optionalField(key, v []byte) (ok bool) {
	switch string(key) {
	case "subscription":
		h.Subscription = v
	case "expressionType":
		h.ExpressionType = v
	case "maxMsgBytes":
		h.MaxMsgBytes.Value, ok = parseInt32(v)
		h.MaxMsgBytes.Present = true
		return ok
	case "requestSource":
		h.RequestSource.Value, ok = parseInt32(v)
		h.RequestSource.Present = true
		return ok
	case "proxyFrowardClientId":
		h.ProxyClientID = v
	case "bname":
		h.BrokerName = v
	}
	return true
}

// PullMessageResponse is the header of the answer to a pull; the body is the
// records, one after another.
type PullMessageResponse struct {
	SuggestWhichBrokerID int64
	NextBeginOffset      int64
	MinOffset            int64
	MaxOffset            int64
	OffsetDelta          Opt[int64]
	TopicSysFlag         Opt[int32]
	GroupSysFlag         Opt[int32]
	ForbiddenType        Opt[int32] // 1 broker, 2 group, 3 topic, 4 broadcasting, 5 subscription
}

func (h *PullMessageResponse) bind(b *binder) {
	b.i64("suggestWhichBrokerId", &h.SuggestWhichBrokerID, required)
	b.i64("nextBeginOffset", &h.NextBeginOffset, required)
	b.i64("minOffset", &h.MinOffset, required)
	b.i64("maxOffset", &h.MaxOffset, required)
	b.optI64("offsetDelta", &h.OffsetDelta)
	b.optI32("topicSysFlag", &h.TopicSysFlag)
	b.optI32("groupSysFlag", &h.GroupSysFlag)
	b.optI32("forbiddenType", &h.ForbiddenType)
}

// QueryMessageRequest (12) finds messages by key or unique key.
type QueryMessageRequest struct {
	Topic          string
	Key            string
	MaxNum         int32
	BeginTimestamp int64  // ms, inclusive
	EndTimestamp   int64  // ms, inclusive
	UniqueKey      bool   // Key is a unique key
	IndexType      string // optional, since 5.4.0: which index to look in
}

func (h *QueryMessageRequest) bind(b *binder) {
	b.str("topic", &h.Topic, required)
	b.str("key", &h.Key, required)
	b.i32("maxNum", &h.MaxNum, required)
	b.i64("beginTimestamp", &h.BeginTimestamp, required)
	b.i64("endTimestamp", &h.EndTimestamp, required)
	b.flagIfSet("_UNIQUE_KEY_QUERY", &h.UniqueKey)
	b.str("indexType", &h.IndexType, optional)
}

// QueryMessageResponse is the header of the answer to QUERY_MESSAGE.
type QueryMessageResponse struct {
	IndexLastUpdateTimestamp int64 // ms
	IndexLastUpdatePhyOffset int64
}

func (h *QueryMessageResponse) bind(b *binder) {
	b.i64("indexLastUpdateTimestamp", &h.IndexLastUpdateTimestamp, required)
	b.i64("indexLastUpdatePhyoffset", &h.IndexLastUpdatePhyOffset, required)
}

// ViewMessageRequest (33) reads the record at an offset of the commit log.
type ViewMessageRequest struct {
	Topic  string // optional
	Offset int64
}

func (h *ViewMessageRequest) bind(b *binder) {
	b.str("topic", &h.Topic, optional)
	b.i64("offset", &h.Offset, required)
}
