package broker

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net/netip"
	"strings"

	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// admission decides which messages may be stored, and where. It is shared by
// the remoting sender and by Put, so that every door keeps the same rules.
type admission struct {
	topics     *topics.Table
	autoQueues func(topic string) int
	storeHost  netip.AddrPort
	maxMessage int
	keys       *message.UniqueKeys
	// stamps are the properties that this broker sets on every single message,
	// encoded; the client's own values of these names are dropped.
	stamps []byte
	region string
	// delayed tells what to do with messages that ask for later delivery.
	delayed DelayPolicy
}

// A DelayPolicy says what an engine does with messages that carry a delay.
type DelayPolicy int

const (
	// DelayRefuse answers code 13: nothing here would wait for the delay.
	DelayRefuse DelayPolicy = iota
	// DelayForward stores them as they are, for an upstream that delays them.
	DelayForward
)

const (
	defaultTopicQueues = 4
	nameSeparator      = 0x01
	propertySeparator  = 0x02
)

// admit finds the topic of a message, creating it where that is allowed, and
// the queue. A negative queueID asks for any writable queue.
func (a *admission) admit(name, defaultTopic []byte, queueID, askedQueues int32) (*topics.Topic, int32, error) {
	topic, ok := a.topics.GetBytes(name)
	if !ok {
		var err error
		if topic, err = a.create(string(name), string(defaultTopic), int(askedQueues)); err != nil {
			return nil, 0, err
		}
	}
	if topic.SendForbidden {
		return nil, 0, protocol.Errorf(protocol.NoPermission, "Sending message to topic[%s] is forbidden.", name)
	}
	if !topic.Writable {
		return nil, 0, protocol.Errorf(protocol.NoPermission, "topic[%s] is not writable (perm %d)", name, topic.Perm)
	}
	if queueID < 0 {
		queueID = rand.Int32N(max(topic.WriteQueueNums, 1))
	}
	if limit := max(topic.WriteQueueNums, topic.ReadQueueNums); queueID >= limit {
		return nil, 0, protocol.Errorf(protocol.InvalidParameter,
			"request queueId[%d] is illegal, topic[%s] has %d queues", queueID, name, limit)
	}
	return topic, queueID, nil
}

// create makes a topic for its first message, as Apache's broker does: from the
// default topic that the request names, or for a retry topic on its own.
func (a *admission) create(name, defaultTopic string, asked int) (*topics.Topic, error) {
	if err := message.ValidateTopic(name); err != nil {
		return nil, protocol.Errorf(protocol.InvalidParameter, "%v", err)
	}
	if message.IsSystemTopic(name) || message.IsSendForbidden(name) {
		return nil, protocol.Errorf(protocol.NoPermission, "Sending message to topic[%s] is forbidden.", name)
	}
	if strings.HasPrefix(name, message.RetryPrefix) {
		return a.topics.Ensure(topics.ReadWrite(name, 1))
	}
	if a.autoQueues != nil {
		return a.topics.Ensure(topics.ReadWrite(name, a.autoQueues(name)))
	}
	if asked <= 0 {
		asked = defaultTopicQueues
	}
	topic, err := a.topics.AutoCreate(name, defaultTopic, asked)
	if errors.Is(err, topics.ErrNotCreated) {
		return nil, protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist, apply first please!", name)
	}
	return topic, err
}

// traits is what one pass over a message's properties finds.
type traits struct {
	wait    bool // the answer waits for durability
	unique  bool // a unique key is present
	restamp bool // properties that the broker sets are present and must go
}

// inspect checks a message against the limits and reads the properties that
// matter to the store.
func (a *admission) inspect(m *message.Message, props []byte) (traits, error) {
	t := traits{wait: true}
	if len(m.Body) > a.maxMessage {
		return t, tooLarge(len(m.Body), a.maxMessage)
	}
	if tx := m.SysFlag.Transaction(); tx == message.TransactionPrepared || tx == message.TransactionRollback {
		return t, errNoTransactions // the store would keep it and nobody ever read it
	}
	var refused error
	message.EachProperty(props, func(name, value []byte) bool {
		switch string(name) {
		case message.PropertyWait:
			t.wait = string(value) != "false"
		case message.PropertyUniqueKey:
			t.unique = true
		case message.PropertyMessageRegion, message.PropertyTraceOn, message.PropertyCluster, message.PropertyPopCheckPoint:
			t.restamp = true
		case message.PropertyTransactionPrepared:
			if string(value) == "true" {
				refused = errNoTransactions
			}
		case message.PropertyDelay, message.PropertyTimerDelaySeconds, message.PropertyTimerDelayMillis, message.PropertyTimerDeliverMillis:
			if a.delayed == DelayRefuse && !(string(name) == message.PropertyDelay && string(value) == "0") {
				refused = protocol.Errorf(protocol.MessageIllegal, "delayed delivery (property %s) is not supported", name)
			}
		}
		return refused == nil
	})
	return t, refused
}

var errNoTransactions = protocol.Errorf(protocol.NoPermission, "transactional messages are not supported")

// stamp appends props as they are stored: with this broker's own properties,
// and a unique key where the client gave none. Properties so long that these
// would not fit stay as the client wrote them.
func (a *admission) stamp(dst, props []byte, t traits) []byte {
	if t.restamp {
		message.EachProperty(props, func(name, value []byte) bool {
			switch string(name) {
			case message.PropertyMessageRegion, message.PropertyTraceOn, message.PropertyCluster, message.PropertyPopCheckPoint:
			default:
				dst = message.AppendProperty(dst, string(name), string(value))
			}
			return true
		})
	} else {
		dst = append(dst, props...)
	}
	if !t.unique {
		dst = a.identify(dst)
	}
	if len(dst)+len(a.stamps) < message.MaxPropertiesLen-message.CRCSuffixLen {
		dst = append(terminate(dst), a.stamps...)
	}
	return dst
}

// terminate ends a properties text whose last separator an old client left out.
func terminate(props []byte) []byte {
	if n := len(props); n > 0 && props[n-1] != propertySeparator {
		return append(props, propertySeparator)
	}
	return props
}

// identify appends a unique key to props, if there is room.
func (a *admission) identify(props []byte) []byte {
	const pair = len(message.PropertyUniqueKey) + 32 + 3 // the key's digits and three separators
	if len(props)+pair > message.MaxPropertiesLen {
		return props
	}
	props = append(terminate(props), message.PropertyUniqueKey...)
	props = append(props, nameSeparator)
	return append(a.keys.AppendNext(props), propertySeparator)
}

func tooLarge(size, limit int) error {
	return protocol.Errorf(protocol.MessageIllegal, "the message body of %d bytes is over the limit of %d", size, limit)
}

// storeError gives a failed append the code that tells a client what to do
// next: 13 do not send this again, 14 try elsewhere or later.
func storeError(err error) error {
	var coded *protocol.Error
	switch {
	case err == nil, errors.As(err, &coded):
		return err
	case errors.Is(err, message.ErrPropertiesTooLong), errors.Is(err, message.ErrTopicTooLong), errors.Is(err, spool.ErrTooLarge):
		return protocol.Errorf(protocol.MessageIllegal, "%v", err)
	case errors.Is(err, spool.ErrFull), errors.Is(err, spool.ErrBroken), errors.Is(err, spool.ErrClosed):
		return protocol.Errorf(protocol.ServiceNotAvailable, "service not available now. %v", err)
	case errors.Is(err, context.DeadlineExceeded):
		return protocol.Errorf(protocol.FlushDiskTimeout, "%v", err)
	}
	return protocol.Errorf(protocol.SystemError, "%v", fmt.Errorf("store the message: %w", err))
}
