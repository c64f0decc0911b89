package protocol

// SendMessageRequest is the header of SEND_MESSAGE (10), SEND_MESSAGE_V2 (310),
// SEND_BATCH_MESSAGE (320) and of the two SEND_REPLY_MESSAGE codes. As a Header
// it has the long names of version 1; SendMessageRequestV2 gives it the letters
// of version 2. Topic and the other texts are bytes: after a decode they alias
// the command, so that a send allocates nothing.
type SendMessageRequest struct {
	ProducerGroup         []byte // a, required
	Topic                 []byte // b, required
	DefaultTopic          []byte // c, required: the topic whose settings an automatic creation copies
	DefaultTopicQueueNums int32  // d, required
	QueueID               int32  // e, required; negative lets the broker choose
	SysFlag               int32  // f, required
	BornTimestamp         int64  // g, required, ms
	Flag                  int32  // h, required
	Properties            []byte // i: name\x01value\x02…
	ReconsumeTimes        int32  // j: 0 when absent
	UnitMode              bool   // k
	MaxReconsumeTimes     Opt[int32]
	Batch                 bool   // m: the body is a batch
	BrokerName            []byte // n, bname in version 1
}

// SendMessageRequestV2 is SendMessageRequest with one letter for each name.
type SendMessageRequestV2 SendMessageRequest

// sendNames are the wire names of the fields, in the order of the struct.
type sendNames [14]string

var (
	sendNamesV1 = sendNames{
		"producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag",
		"bornTimestamp", "flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname",
	}
	sendNamesV2 = sendNames{"a", "b", "c", "d", "e", "f", "g", "h", "i", "j", "k", "l", "m", "n"}
)

func (h *SendMessageRequest) bind(b *binder) { h.bindNames(b, &sendNamesV1) }

func (h *SendMessageRequestV2) bind(b *binder) { (*SendMessageRequest)(h).bindNames(b, &sendNamesV2) }

func (h *SendMessageRequest) bindNames(b *binder, n *sendNames) {
	b.bytes(n[0], &h.ProducerGroup, required)
	b.bytes(n[1], &h.Topic, required)
	b.bytes(n[2], &h.DefaultTopic, required)
	b.i32(n[3], &h.DefaultTopicQueueNums, required)
	b.i32(n[4], &h.QueueID, required)
	b.i32(n[5], &h.SysFlag, required)
	b.i64(n[6], &h.BornTimestamp, required)
	b.i32(n[7], &h.Flag, required)
	b.bytes(n[8], &h.Properties, optional)
	b.i32(n[9], &h.ReconsumeTimes, optional)
	b.flag(n[10], &h.UnitMode, optional)
	b.optI32(n[11], &h.MaxReconsumeTimes)
	b.flag(n[12], &h.Batch, optional)
	b.bytes(n[13], &h.BrokerName, optional)
}

// DecodeSend fills h from a send request of any code: by letters for
// SEND_MESSAGE_V2, SEND_BATCH_MESSAGE and SEND_REPLY_MESSAGE_V2, by long names
// otherwise. The texts of h alias c. Errors are those of Command.DecodeHeader.
func (h *SendMessageRequest) DecodeSend(c *Command) error {
	switch c.RequestCode() {
	case SendMessageV2, SendBatchMessage, SendReplyMessageV2:
		return c.DecodeHeader((*SendMessageRequestV2)(h))
	}
	return c.DecodeHeader(h)
}

// decode is bind for letters in one pass: this is the hottest header there is.
func (h *SendMessageRequestV2) decode(fields Fields) *Error {
	*h = SendMessageRequestV2{}
	var seen uint16
	good := true
	for i := range fields {
		f := &fields[i]
		if len(f.Key) != 1 {
			continue
		}
		letter := f.Key[0] - 'a'
		if letter > 13 {
			continue
		}
		seen |= 1 << letter
		if !h.letter(letter, f.Value) {
			good = false
		}
	}
	const needed = 1<<8 - 1 // a to h
	if good && seen&needed == needed {
		return nil
	}
	// Something is wrong, or was until a later field of the same key: the slow
	// way knows the words.
	b := binder{from: fields}
	h.bind(&b)
	return b.err
}

// letter sets the field of one letter ('a' is 0) and reports whether v suits it.
func (h *SendMessageRequestV2) letter(letter byte, v []byte) (ok bool) {
	switch letter {
	case 0:
		h.ProducerGroup = v
	case 1:
		h.Topic = v
	case 2:
		h.DefaultTopic = v
	case 3:
		h.DefaultTopicQueueNums, ok = parseInt32(v)
		return ok
	case 4:
		h.QueueID, ok = parseInt32(v)
		return ok
	case 5:
		h.SysFlag, ok = parseInt32(v)
		return ok
	case 6:
		h.BornTimestamp, ok = parseInt(v)
		return ok
	case 7:
		h.Flag, ok = parseInt32(v)
		return ok
	case 8:
		h.Properties = v
	case 9:
		h.ReconsumeTimes, ok = parseInt32(v)
		return ok
	case 10:
		h.UnitMode = parseBool(v)
	case 11:
		h.MaxReconsumeTimes.Value, ok = parseInt32(v)
		h.MaxReconsumeTimes.Present = true
		return ok
	case 12:
		h.Batch = parseBool(v)
	case 13:
		h.BrokerName = v
	}
	return true
}

// SendMessageResponse is the header of the answer to every send. Servers add
// MSG_REGION and TRACE_ON as plain fields.
type SendMessageResponse struct {
	MsgID         string // the offset id; of a batch all of them, joined by commas
	QueueID       int32
	QueueOffset   int64  // of the first message
	TransactionID string // optional
	BatchUniqID   string // optional, of inner batches
	RecallHandle  string // optional, of delayed messages
}

func (h *SendMessageResponse) bind(b *binder) {
	b.str("msgId", &h.MsgID, required)
	b.i32("queueId", &h.QueueID, required)
	b.i64("queueOffset", &h.QueueOffset, required)
	b.str("transactionId", &h.TransactionID, optional)
	b.str("batchUniqId", &h.BatchUniqID, optional)
	b.str("recallHandle", &h.RecallHandle, optional)
}

// ConsumerSendMsgBackRequest (36) returns a message for a later retry.
type ConsumerSendMsgBackRequest struct {
	Offset            int64 // in the commit log
	Group             string
	DelayLevel        int32
	OriginMsgID       string // optional
	OriginTopic       string // optional
	UnitMode          bool   // optional
	MaxReconsumeTimes Opt[int32]
	BrokerName        string // optional
}

func (h *ConsumerSendMsgBackRequest) bind(b *binder) {
	b.i64("offset", &h.Offset, required)
	b.str("group", &h.Group, required)
	b.i32("delayLevel", &h.DelayLevel, required)
	b.str("originMsgId", &h.OriginMsgID, optional)
	b.str("originTopic", &h.OriginTopic, optional)
	b.flag("unitMode", &h.UnitMode, optional)
	b.optI32("maxReconsumeTimes", &h.MaxReconsumeTimes)
	b.str("bname", &h.BrokerName, optional)
}

// EndTransactionRequest (37) commits or rolls back a half message.
type EndTransactionRequest struct {
	Topic                string // optional
	ProducerGroup        string
	TranStateTableOffset int64
	CommitLogOffset      int64
	CommitOrRollback     int32 // 0 unknown, 8 commit, 12 roll back
	FromTransactionCheck bool
	MsgID                string
	TransactionID        string // optional
}

func (h *EndTransactionRequest) bind(b *binder) {
	b.str("topic", &h.Topic, optional)
	b.str("producerGroup", &h.ProducerGroup, required)
	b.i64("tranStateTableOffset", &h.TranStateTableOffset, required)
	b.i64("commitLogOffset", &h.CommitLogOffset, required)
	b.i32("commitOrRollback", &h.CommitOrRollback, required)
	b.flag("fromTransactionCheck", &h.FromTransactionCheck, optional)
	b.str("msgId", &h.MsgID, required)
	b.str("transactionId", &h.TransactionID, optional)
}

// CheckTransactionStateRequest (39) asks a producer about a half message, whose
// record is the body.
type CheckTransactionStateRequest struct {
	Topic                string // optional
	TranStateTableOffset int64
	CommitLogOffset      int64
	MsgID                string // optional
	TransactionID        string // optional
	OffsetMsgID          string // optional
}

func (h *CheckTransactionStateRequest) bind(b *binder) {
	b.str("topic", &h.Topic, optional)
	b.i64("tranStateTableOffset", &h.TranStateTableOffset, required)
	b.i64("commitLogOffset", &h.CommitLogOffset, required)
	b.str("msgId", &h.MsgID, optional)
	b.str("transactionId", &h.TransactionID, optional)
	b.str("offsetMsgId", &h.OffsetMsgID, optional)
}
