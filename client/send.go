package client

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// A SendStatus says how safe a stored message is. All of them mean stored.
type SendStatus int8

// The statuses, from the answers 0, 10, 12 and 11 of a broker.
const (
	SendOK SendStatus = iota
	FlushDiskTimeout
	FlushSlaveTimeout
	SlaveNotAvailable
)

// String is Apache's name of the status.
func (s SendStatus) String() string {
	switch s {
	case SendOK:
		return "SEND_OK"
	case FlushDiskTimeout:
		return "FLUSH_DISK_TIMEOUT"
	case FlushSlaveTimeout:
		return "FLUSH_SLAVE_TIMEOUT"
	case SlaveNotAvailable:
		return "SLAVE_NOT_AVAILABLE"
	}
	return fmt.Sprintf("SendStatus(%d)", int8(s))
}

// A SendResult says where a message, or a batch's first one, was stored. The ids
// of a batch are joined by commas.
type SendResult struct {
	Status      SendStatus
	MessageID   string // unique key; empty for SendBatch
	OffsetID    string // broker address and commit log offset
	Queue       protocol.MessageQueue
	QueueOffset int64 // -1 when the broker did not say
}

// A Batch is the content of one send request that was encoded before.
type Batch struct {
	// Single marks one message whose Body is its body. Else Body holds entries
	// made by message.AppendBatchEntry, and Properties may carry WAIT only.
	Single bool

	Flag          int32           // of a single message
	SysFlag       message.SysFlag // of all messages
	BornTimestamp int64           // ms; of all messages
	Properties    []byte
	Body          []byte
}

// ErrMessage is wrapped by errors of messages that no broker would take.
var ErrMessage = errors.New("illegal message")

// outgoing is one or several messages ready for any queue.
type outgoing struct {
	single     bool
	flag       int32
	sysFlag    message.SysFlag
	born       int64
	reconsumed int32
	properties []byte
	body       []byte
	ids        string
}

// prepare checks a single message, gives it a unique key when it has none and
// compresses a large body. m stays as it is.
func (p *Producer) prepare(m *message.Message) (*outgoing, error) {
	if err := p.check(m); err != nil {
		return nil, err
	}
	out := &outgoing{
		single: true, flag: m.Flag, sysFlag: m.SysFlag &^ hostFlags, born: m.BornTimestamp,
		reconsumed: m.ReconsumeTimes, body: m.Body,
	}
	if out.born == 0 {
		out.born = time.Now().UnixMilli()
	}
	out.properties, out.ids = p.withUniqueKey(m.Properties)
	if len(out.properties) > message.MaxPropertiesLen {
		return nil, fmt.Errorf("%w: %d bytes of properties, at most %d", ErrMessage, len(out.properties), message.MaxPropertiesLen)
	}
	if p.o.CompressOver > 0 && len(m.Body) > p.o.CompressOver && m.SysFlag&message.Compressed == 0 {
		packed, err := message.Compress(p.o.Compression, m.Body)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrMessage, err)
		}
		// What does not shrink travels as it is.
		if len(packed) < len(m.Body) {
			out.body = packed
			out.sysFlag |= message.Compressed | p.o.Compression&message.CompressionMask
		}
	}
	return out, nil
}

// hostFlags are bits that the broker sets itself, by the addresses it sees.
const hostFlags = message.BornHostV6 | message.StoreHostV6

// prepareBatch checks messages for one queue and encodes them as a batch body.
func (p *Producer) prepareBatch(ms []message.Message) (*outgoing, error) {
	first := &ms[0]
	out := &outgoing{sysFlag: first.SysFlag &^ hostFlags, born: first.BornTimestamp}
	if out.born == 0 {
		out.born = time.Now().UnixMilli()
	}
	wait, _ := message.Property(first.Properties, message.PropertyWait)
	if len(wait) > 0 {
		out.properties = message.AppendProperty(nil, message.PropertyWait, string(wait))
	}
	ids := make([]string, 0, len(ms))
	for i := range ms {
		m := ms[i]
		if err := p.check(&m); err != nil {
			return nil, fmt.Errorf("message %d of a batch: %w", i, err)
		}
		own, _ := message.Property(m.Properties, message.PropertyWait)
		switch {
		case m.Topic != first.Topic || m.SysFlag != first.SysFlag || string(own) != string(wait):
			return nil, fmt.Errorf("%w: topic, SysFlag or WAIT of message %d of a batch differs", ErrMessage, i)
		case Alone(&m):
			return nil, fmt.Errorf("%w: message %d of a batch is delayed or a retry", ErrMessage, i)
		}
		var id string
		m.Properties, id = p.withUniqueKey(m.Properties)
		ids = append(ids, id)
		var err error
		if out.body, err = message.AppendBatchEntry(out.body, &m); err != nil {
			return nil, fmt.Errorf("%w: message %d of a batch: %w", ErrMessage, i, err)
		}
	}
	if len(out.body) > p.o.MaxMessageBytes {
		return nil, fmt.Errorf("%w: batch of %d bytes, at most %d", ErrMessage, len(out.body), p.o.MaxMessageBytes)
	}
	out.ids = strings.Join(ids, ",")
	return out, nil
}

// Alone reports whether a message must not be part of a batch: brokers treat
// delays, transactions and retries by request only.
func Alone(m *message.Message) bool {
	if strings.HasPrefix(m.Topic, message.RetryPrefix) || m.SysFlag.Transaction() != 0 {
		return true
	}
	alone := false
	message.EachProperty(m.Properties, func(name, _ []byte) bool {
		alone = AloneProperty(name)
		return !alone
	})
	return alone
}

// AloneProperty reports whether a message with that property must not be part of
// a batch.
func AloneProperty(name []byte) bool {
	switch string(name) {
	case message.PropertyDelay, message.PropertyTimerDelaySeconds, message.PropertyTimerDelayMillis,
		message.PropertyTimerDeliverMillis, message.PropertyTimerDeleteUniqueKey,
		message.PropertyTransactionPrepared, message.PropertyInnerMultiDispatch:
		return true
	}
	return false
}

// check is what a broker would refuse, found before any attempt.
func (p *Producer) check(m *message.Message) error {
	if err := message.ValidateTopic(m.Topic); err != nil {
		return fmt.Errorf("%w: %w", ErrMessage, err)
	}
	if message.IsSendForbidden(m.Topic) {
		return fmt.Errorf("%w: sending to topic %s is forbidden", ErrMessage, m.Topic)
	}
	if len(m.Body) == 0 {
		return fmt.Errorf("%w: the body is empty", ErrMessage)
	}
	if len(m.Body) > p.o.MaxMessageBytes {
		return fmt.Errorf("%w: body of %d bytes, at most %d", ErrMessage, len(m.Body), p.o.MaxMessageBytes)
	}
	return nil
}

// withUniqueKey returns properties that hold a unique key, and that key.
func (p *Producer) withUniqueKey(properties []byte) (with []byte, key string) {
	if own, ok := message.Property(properties, message.PropertyUniqueKey); ok {
		return properties, string(own)
	}
	key = p.c.keys.Next()
	// The full slice expression keeps the append out of the caller's buffer.
	return message.AppendProperty(properties[:len(properties):len(properties)], message.PropertyUniqueKey, key), key
}

// send makes one attempt.
func (p *Producer) send(ctx context.Context, route *Route, queue protocol.MessageQueue, out *outgoing) (SendResult, error) {
	addr, ok := route.Master(queue.BrokerName)
	if !ok {
		return SendResult{}, fmt.Errorf("send to %s: %w: broker %s has no master", queue.Topic, ErrUnavailable, queue.BrokerName)
	}
	code := protocol.SendMessageV2
	if !out.single {
		code = protocol.SendBatchMessage
	}
	resp, err := p.c.Call(ctx, addr, protocol.NewRequest(code, &protocol.SendMessageRequestV2{
		ProducerGroup:         []byte(p.o.Group),
		Topic:                 []byte(queue.Topic),
		DefaultTopic:          []byte(p.o.template()),
		DefaultTopicQueueNums: int32(p.o.DefaultQueues),
		QueueID:               queue.QueueID,
		SysFlag:               int32(out.sysFlag),
		BornTimestamp:         out.born,
		Flag:                  out.flag,
		Properties:            out.properties,
		ReconsumeTimes:        out.reconsumed,
		Batch:                 !out.single,
		BrokerName:            []byte(queue.BrokerName),
	}, out.body))
	if err != nil {
		return SendResult{}, fmt.Errorf("send to %s: %w", queue.Topic, err)
	}
	return sendResult(queue, out.ids, resp)
}

// sendResult reads a broker's answer to a send.
func sendResult(queue protocol.MessageQueue, ids string, resp *protocol.Command) (SendResult, error) {
	r := SendResult{MessageID: ids, Queue: queue}
	switch resp.ResponseCode() {
	case protocol.Success:
		r.Status = SendOK
	case protocol.FlushDiskTimeout:
		r.Status = FlushDiskTimeout
	case protocol.FlushSlaveTimeout:
		r.Status = FlushSlaveTimeout
	case protocol.SlaveNotAvailable:
		r.Status = SlaveNotAvailable
	default:
		return SendResult{}, fmt.Errorf("send to %s queue %d of %s: %w", queue.Topic, queue.QueueID, queue.BrokerName, resp.Err())
	}
	// A stored message stays stored, whatever the rest of the answer looks like:
	// an error would make the caller store it twice.
	var header protocol.SendMessageResponse
	if err := resp.DecodeHeader(&header); err != nil {
		r.QueueOffset = -1
		return r, nil
	}
	r.OffsetID = header.MsgID
	r.Queue.QueueID = header.QueueID
	r.QueueOffset = header.QueueOffset
	return r, nil
}
