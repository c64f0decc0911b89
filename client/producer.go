package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// ProducerOptions configure a Producer. Only Group is required; zero values take
// the defaults of RocketMQ's Java client.
type ProducerOptions struct {
	Group string

	Timeout time.Duration // of a Send with all its attempts; default 3 s
	Retries int           // attempts of Send after the first; 0: 2, negative: none

	// MaxMessageBytes bounds a body, and the bodies and properties of a batch;
	// default 4 MiB, the limit of brokers.
	MaxMessageBytes int

	// CompressOver is the body size from which single messages are compressed:
	// 0: 4096, negative: never. Compression is message.CompressionZlib by
	// default, CompressionLZ4 or CompressionZstd for consumers that know them.
	CompressOver int
	Compression  message.SysFlag

	// DefaultTopic is the template of topics created at their first message,
	// default TBW102; "-" sends to existing topics only. DefaultQueues is how
	// many queues they get per broker; default 4.
	DefaultTopic  string
	DefaultQueues int
}

func (o ProducerOptions) withDefaults() (ProducerOptions, error) {
	if err := message.ValidateGroup(o.Group); err != nil {
		return o, err
	}
	setDefault(&o.Timeout, 3*time.Second)
	setDefault(&o.MaxMessageBytes, 4<<20)
	setDefault(&o.DefaultQueues, 4)
	o.Retries = orNone(o.Retries, 2)
	if o.CompressOver == 0 {
		o.CompressOver = 4096
	}
	if o.DefaultTopic == "" {
		o.DefaultTopic = DefaultTopic
	}
	return o, nil
}

// noTemplate as ProducerOptions.DefaultTopic leaves topics to be created by
// operators.
const noTemplate = "-"

// template is what requests say: brokers demand the field, and one of a topic
// that exists does not look at it.
func (o *ProducerOptions) template() string {
	if o.DefaultTopic == noTemplate {
		return DefaultTopic
	}
	return o.DefaultTopic
}

// A Producer sends messages of one group. It is safe for concurrent use; Close
// it when the client outlives it.
type Producer struct {
	c    *Client
	o    ProducerOptions
	next atomic.Uint32 // round robin over the queues of every topic
}

// NewProducer adds a producer to the client, whose heartbeats report it from
// then on.
func NewProducer(c *Client, o ProducerOptions) (*Producer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("producer options: %w", err)
	}
	p := &Producer{c: c, o: o}
	p.next.Store(rand.Uint32())
	c.members.addProducer(o.Group)
	return p, nil
}

// Close unregisters the group at the brokers when no other producer of the
// client uses it. Client.Run does the same for what is left at its end.
func (p *Producer) Close(ctx context.Context) {
	if p.c.members.removeProducer(p.o.Group) {
		p.c.unregister(ctx, protocol.UnregisterClientRequest{ClientID: p.c.id, ProducerGroup: p.o.Group})
	}
}

// Route returns where the producer would send messages of a topic now.
func (p *Producer) Route(ctx context.Context, topic string) (*Route, error) {
	if p.o.DefaultTopic == noTemplate {
		return p.c.Route(ctx, topic)
	}
	return p.c.PublishRoute(ctx, topic, p.o.DefaultTopic, int32(p.o.DefaultQueues))
}

// Send stores one message in some queue of m.Topic and returns once a broker
// says so. It does not change m. Attempts that fail in a way another broker may
// not are repeated there, within the time-out; a repeated attempt may store the
// message twice, with the same unique key. The error is that of the last
// attempt; it wraps a *protocol.Error when a broker answered.
func (p *Producer) Send(ctx context.Context, m *message.Message) (SendResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	out, err := p.prepare(m)
	if err != nil {
		return SendResult{}, err
	}
	var failed string // name of the broker of the last attempt
	for attempt := 0; ; attempt++ {
		route, err := p.Route(ctx, m.Topic)
		if err != nil {
			return SendResult{}, fmt.Errorf("send to %s: %w", m.Topic, err)
		}
		queue, ok := p.pick(route, failed)
		if !ok {
			return SendResult{}, fmt.Errorf("send to %s: no queue can be written", m.Topic)
		}
		result, err := p.send(ctx, route, queue, out)
		if err == nil || attempt == p.o.Retries || ctx.Err() != nil || !retryable(err) {
			return result, err
		}
		failed = queue.BrokerName
		// Other failures leave the time for the attempts.
		var answer *protocol.Error
		if errors.As(err, &answer) && answer.Code == protocol.TopicNotExist {
			p.RouteFailed(ctx, m.Topic, err)
		}
	}
}

// SendTo stores messages in one queue, all in one request and thus all or none.
// Several messages must have the queue's topic and equal SysFlag and WAIT, and
// none may be delayed. There is only one attempt. With an error that wraps
// ErrUnavailable it is unknown whether they are stored.
func (p *Producer) SendTo(ctx context.Context, mq protocol.MessageQueue, ms ...message.Message) (SendResult, error) {
	ctx, cancel := context.WithTimeout(ctx, p.o.Timeout)
	defer cancel()
	var out *outgoing
	var err error
	switch len(ms) {
	case 0:
		return SendResult{}, errors.New("send: no message")
	case 1:
		out, err = p.prepare(&ms[0])
	default:
		out, err = p.prepareBatch(ms)
	}
	if err != nil {
		return SendResult{}, err
	}
	route, err := p.Route(ctx, mq.Topic)
	if err != nil {
		return SendResult{}, fmt.Errorf("send to %s: %w", mq.Topic, err)
	}
	return p.send(ctx, route, mq, out)
}

// SendBatch is SendTo for messages that the caller has encoded itself as the
// body of a batch, with their unique keys. b may be used again afterwards. The
// deadline of ctx, or else ProducerOptions.Timeout, is the time-out.
func (p *Producer) SendBatch(ctx context.Context, route *Route, mq protocol.MessageQueue, b *Batch) (SendResult, error) {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, p.o.Timeout)
		defer cancel()
		ctx = limited
	}
	return p.send(ctx, route, mq, &outgoing{
		single: b.Single, flag: b.Flag, sysFlag: b.SysFlag, born: b.BornTimestamp,
		properties: b.Properties, body: b.Body,
	})
}

// pick returns the next queue in turn, of another broker than the one that just
// failed when there is one.
func (p *Producer) pick(route *Route, failed string) (protocol.MessageQueue, bool) {
	n := uint32(len(route.Write))
	if n == 0 {
		return protocol.MessageQueue{}, false
	}
	start := p.next.Add(1)
	for i := range n {
		if q := route.Write[(start+i)%n]; q.BrokerName != failed {
			return q, true
		}
	}
	return route.Write[start%n], true
}

// RouteFailed refreshes the route that a failed send went by: the broker may
// have lost the topic or its place. When the broker says that the topic does not
// exist and the name server agrees, the route is forgotten, so that the topic is
// created again.
func (p *Producer) RouteFailed(ctx context.Context, topic string, err error) {
	var answer *protocol.Error
	gone := errors.As(err, &answer) && answer.Code == protocol.TopicNotExist
	if _, err := p.c.RefreshRoute(ctx, topic); errors.Is(err, ErrTopicNotFound) && gone {
		p.c.routes.remove(topic)
	}
}

// retryable says which failed attempts may go better on another broker.
func retryable(err error) bool {
	var answer *protocol.Error
	if !errors.As(err, &answer) {
		return errors.Is(err, ErrUnavailable)
	}
	switch answer.Code {
	case protocol.TopicNotExist, protocol.ServiceNotAvailable, protocol.SystemError, protocol.SystemBusy,
		protocol.NoPermission, protocol.NoBuyerID, protocol.NotInCurrentUnit, protocol.GoAway:
		return true
	}
	return false
}
