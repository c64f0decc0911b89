package protocol

// QueryConsumerOffsetRequest (14) asks how far a group has consumed a queue.
type QueryConsumerOffsetRequest struct {
	ConsumerGroup     string
	Topic             string
	QueueID           int32
	SetZeroIfNotFound Opt[bool] // absent counts as true
}

func (h *QueryConsumerOffsetRequest) bind(b *binder) {
	b.str("consumerGroup", &h.ConsumerGroup, required)
	b.str("topic", &h.Topic, required)
	b.i32("queueId", &h.QueueID, required)
	b.optFlag("setZeroIfNotFound", &h.SetZeroIfNotFound)
}

// UpdateConsumerOffsetRequest (15) records how far a group has consumed.
type UpdateConsumerOffsetRequest struct {
	ConsumerGroup string
	Topic         string
	QueueID       int32
	CommitOffset  int64 // of the next message to consume
}

func (h *UpdateConsumerOffsetRequest) bind(b *binder) {
	b.str("consumerGroup", &h.ConsumerGroup, required)
	b.str("topic", &h.Topic, required)
	b.i32("queueId", &h.QueueID, required)
	b.i64("commitOffset", &h.CommitOffset, required)
}

// OffsetResponse is the header of the answers to QUERY_CONSUMER_OFFSET,
// SEARCH_OFFSET_BY_TIMESTAMP, GET_MAX_OFFSET and GET_MIN_OFFSET.
type OffsetResponse struct{ Offset int64 }

func (h *OffsetResponse) bind(b *binder) { b.i64("offset", &h.Offset, required) }

// SearchOffsetRequest (29) asks for the offset at a point in time.
type SearchOffsetRequest struct {
	Topic        string
	QueueID      int32
	Timestamp    int64  // store time in ms
	BoundaryType string // "LOWER" or "UPPER", LOWER when empty
}

func (h *SearchOffsetRequest) bind(b *binder) {
	b.str("topic", &h.Topic, required)
	b.i32("queueId", &h.QueueID, required)
	b.i64("timestamp", &h.Timestamp, required)
	b.str("boundaryType", &h.BoundaryType, optional)
}

// GetMaxOffsetRequest (30) asks for the offset that the next message will take.
type GetMaxOffsetRequest struct {
	Topic     string
	QueueID   int32
	Committed Opt[bool] // absent counts as true
}

func (h *GetMaxOffsetRequest) bind(b *binder) {
	b.str("topic", &h.Topic, required)
	b.i32("queueId", &h.QueueID, required)
	b.optFlag("committed", &h.Committed)
}

// GetMinOffsetRequest (31) asks for the offset of the oldest message.
type GetMinOffsetRequest struct {
	Topic   string
	QueueID int32
}

func (h *GetMinOffsetRequest) bind(b *binder) {
	b.str("topic", &h.Topic, required)
	b.i32("queueId", &h.QueueID, required)
}

// GetEarliestMsgStoreTimeRequest (32) asks when the oldest message was stored.
type GetEarliestMsgStoreTimeRequest struct {
	Topic   string
	QueueID int32
}

func (h *GetEarliestMsgStoreTimeRequest) bind(b *binder) {
	b.str("topic", &h.Topic, required)
	b.i32("queueId", &h.QueueID, required)
}

// GetEarliestMsgStoreTimeResponse is its answer.
type GetEarliestMsgStoreTimeResponse struct {
	Timestamp int64 // ms, -1 when the queue is empty
}

func (h *GetEarliestMsgStoreTimeResponse) bind(b *binder) {
	b.i64("timestamp", &h.Timestamp, required)
}

// UnregisterClientRequest (35) takes a client out of its groups.
type UnregisterClientRequest struct {
	ClientID      string
	ProducerGroup string // optional
	ConsumerGroup string // optional
}

func (h *UnregisterClientRequest) bind(b *binder) {
	b.str("clientID", &h.ClientID, required)
	b.str("producerGroup", &h.ProducerGroup, optional)
	b.str("consumerGroup", &h.ConsumerGroup, optional)
}

// HeartbeatResponse is the header of the answer to HEART_BEAT.
type HeartbeatResponse struct {
	SupportHeartbeatV2 bool // the broker understands fingerprints
	SubChange          bool // the subscription must be sent again
}

func (h *HeartbeatResponse) bind(b *binder) {
	b.flag("IS_SUPPORT_HEART_BEAT_V2", &h.SupportHeartbeatV2, optional)
	b.flag("IS_SUB_CHANGE", &h.SubChange, optional)
}

// GetConsumerListByGroupRequest (38) asks for the members of a group.
type GetConsumerListByGroupRequest struct{ ConsumerGroup string }

func (h *GetConsumerListByGroupRequest) bind(b *binder) {
	b.str("consumerGroup", &h.ConsumerGroup, required)
}

// NotifyConsumerIDsChangedRequest (40) tells a client that its group changed.
type NotifyConsumerIDsChangedRequest struct{ ConsumerGroup string }

func (h *NotifyConsumerIDsChangedRequest) bind(b *binder) {
	b.str("consumerGroup", &h.ConsumerGroup, required)
}

// ResetOffsetRequest is the header of RESET_CONSUMER_CLIENT_OFFSET (220), sent to
// clients, and INVOKE_BROKER_TO_RESET_OFFSET (222), sent to brokers.
type ResetOffsetRequest struct {
	Group     string
	Topic     string
	QueueID   Opt[int32] // absent: every queue
	Offset    Opt[int64] // instead of a time
	Timestamp int64      // ms, negative means the maximum offset
	IsForce   bool
}

func (h *ResetOffsetRequest) bind(b *binder) {
	b.str("group", &h.Group, required)
	b.str("topic", &h.Topic, required)
	b.optI32("queueId", &h.QueueID)
	b.optI64("offset", &h.Offset)
	b.i64("timestamp", &h.Timestamp, required)
	b.flag("isForce", &h.IsForce, optional)
}
