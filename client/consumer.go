package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/client/rebalance"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// FromWhere says where a group starts in a queue that it has no offset of.
type FromWhere int8

// The three places to start. A group that is new to a short queue starts at its
// beginning in any case: brokers answer offset 0 for it.
const (
	FromLast      FromWhere = iota // the queue's end
	FromFirst                      // the queue's beginning
	FromTimestamp                  // the first message stored at PushOptions.FromTime
)

// wire is how heartbeats say it.
func (f FromWhere) wire() protocol.ConsumeFromWhere {
	switch f {
	case FromFirst:
		return protocol.ConsumeFromFirstOffset
	case FromTimestamp:
		return protocol.ConsumeFromTimestamp
	}
	return protocol.ConsumeFromLastOffset
}

// A Listener consumes messages of one queue, oldest first; it is not called for
// a queue again before it returns, and for several queues at once. nil means
// that all are consumed; after an error the same messages come again. ctx ends
// when the queue is given to another member or the consumer stops.
//
// Bodies are decompressed. One that cannot be decompressed is passed as it is,
// with its SysFlag still saying compressed.
type Listener func(ctx context.Context, ms []*message.Message) error

// PushOptions configure a PushConsumer. Group, Subscriptions and Listener are
// required; zero values take the defaults of RocketMQ's Java client.
type PushOptions struct {
	Group         string
	Subscriptions map[string]string // topic → tag expression: "*" or "a || b"
	Listener      Listener

	FromWhere FromWhere
	FromTime  time.Time // default: 30 min before NewPushConsumer
	Strategy  rebalance.Strategy

	BatchSize        int           // messages per call of Listener at most; default 1
	PullBatch        int           // messages per pull, 1 to 1024; default 32
	MaxQueueMessages int           // held per queue before pulling pauses; default 1000
	MaxQueueBytes    int           // the same in bytes; default 100 MiB
	MaxBodyBytes     int           // decompressed; default 16 MiB
	Suspend          time.Duration // of a pull at the broker; default 15 s

	RetryInterval     time.Duration // before a failed batch comes again; default 1 s
	PullErrorInterval time.Duration // before a failed pull is repeated; default 3 s
	RebalanceInterval time.Duration // default 20 s
	CommitInterval    time.Duration // default 5 s
}

func (o PushOptions) withDefaults() (PushOptions, error) {
	if err := message.ValidateGroup(o.Group); err != nil {
		return o, err
	}
	if len(o.Subscriptions) == 0 || o.Listener == nil {
		return o, errors.New("subscriptions and a listener are required")
	}
	if o.PullBatch < 0 || o.PullBatch > 1024 || o.BatchSize < 0 {
		return o, fmt.Errorf("pull batch %d, batch size %d: out of range", o.PullBatch, o.BatchSize)
	}
	if o.Strategy == nil {
		o.Strategy = rebalance.Average{}
	}
	if o.FromTime.IsZero() {
		o.FromTime = time.Now().Add(-30 * time.Minute)
	}
	setDefault(&o.BatchSize, 1)
	setDefault(&o.PullBatch, 32)
	setDefault(&o.MaxQueueMessages, 1000)
	setDefault(&o.MaxQueueBytes, 100<<20)
	setDefault(&o.MaxBodyBytes, 16<<20)
	setDefault(&o.Suspend, 15*time.Second)
	setDefault(&o.RetryInterval, time.Second)
	setDefault(&o.PullErrorInterval, 3*time.Second)
	setDefault(&o.RebalanceInterval, 20*time.Second)
	setDefault(&o.CommitInterval, 5*time.Second)
	return o, nil
}

// A PushConsumer is one member of a consumer group in clustering mode: it shares
// the queues of the subscribed topics with the other members, consumes its own
// in order of their offsets, and commits how far it is. Every message is consumed
// at least once.
//
// A batch whose Listener fails is repeated here, for ever, and holds up its
// queue: it is not sent back to the broker's retry topic. Messages that other
// members sent back there are consumed.
type PushConsumer struct {
	c    *Client
	o    PushOptions
	subs map[string]subscription // by topic, the group's retry topic among them

	wake    chan struct{} // one token: rebalance now
	running sync.WaitGroup

	mu     sync.Mutex
	queues map[protocol.MessageQueue]*processQueue

	greeted map[string]bool   // brokers that had a heartbeat; for rebalancing only
	undone  map[string]string // why topics were not divided, as it was logged; likewise
}

// NewPushConsumer checks o; Run does the rest.
func NewPushConsumer(c *Client, o PushOptions) (*PushConsumer, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("consumer options: %w", err)
	}
	p := &PushConsumer{
		c: c, o: o,
		subs:    make(map[string]subscription),
		wake:    make(chan struct{}, 1),
		queues:  make(map[protocol.MessageQueue]*processQueue),
		greeted: make(map[string]bool),
		undone:  make(map[string]string),
	}
	wanted := maps.Clone(o.Subscriptions)
	wanted[message.RetryTopic(o.Group)] = subscribeAll
	version := time.Now().UnixMilli()
	for topic, expression := range wanted {
		if err := message.ValidateTopic(topic); err != nil {
			return nil, fmt.Errorf("consumer options: %w", err)
		}
		if p.subs[topic], err = newSubscription(topic, expression, version); err != nil {
			return nil, fmt.Errorf("consumer options: %w", err)
		}
	}
	return p, nil
}

// Run consumes until ctx ends. It then waits for the Listener's calls under way,
// commits and leaves the group. It needs the client's Run, which waits for it,
// and must be called only once.
func (p *PushConsumer) Run(ctx context.Context) error {
	if !p.c.members.addConsumer(p) {
		return fmt.Errorf("group %s has a consumer on this client already", p.o.Group)
	}
	defer p.c.members.removeConsumer(p)

	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return p.rebalanceLoop(running) })
	group.Go(func() error { return p.commitLoop(running) })
	err := group.Wait()

	for _, q := range p.held() {
		q.cancel()
	}
	p.running.Wait()
	leave, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.c.o.CallTimeout)
	defer cancel()
	p.c.unregister(leave, protocol.UnregisterClientRequest{ClientID: p.c.id, ConsumerGroup: p.o.Group})
	return ignoreCancelled(ctx, err)
}

// RebalanceNow divides the queues again without waiting for the interval.
func (p *PushConsumer) RebalanceNow() { signal(p.wake) }

// Queues returns the queues that the consumer owns now, sorted.
func (p *PushConsumer) Queues() []protocol.MessageQueue {
	p.mu.Lock()
	defer p.mu.Unlock()
	var owned []protocol.MessageQueue
	for mq, q := range p.queues {
		if !q.revoked {
			owned = append(owned, mq)
		}
	}
	slices.SortFunc(owned, rebalance.CompareQueues)
	return owned
}

// held returns all queues, those that are ending among them.
func (p *PushConsumer) held() []*processQueue {
	p.mu.Lock()
	defer p.mu.Unlock()
	return slices.Collect(maps.Values(p.queues))
}

// heartbeat is the consumer's part of the client's heartbeats.
func (p *PushConsumer) heartbeat() protocol.ConsumerData {
	data := protocol.ConsumerData{
		GroupName:        p.o.Group,
		ConsumeType:      protocol.ConsumePassively,
		MessageModel:     protocol.Clustering,
		ConsumeFromWhere: p.o.FromWhere.wire(),
	}
	for _, topic := range slices.Sorted(maps.Keys(p.subs)) {
		s := p.subs[topic]
		data.SubscriptionDataSet = append(data.SubscriptionDataSet, s.data())
	}
	return data
}

func (p *PushConsumer) commitLoop(ctx context.Context) error {
	return every(ctx, p.o.CommitInterval, func(ctx context.Context) {
		var round errgroup.Group
		round.SetLimit(atOnce)
		for _, q := range p.held() {
			if _, pending := q.uncommitted(); pending {
				round.Go(func() error {
					p.commit(ctx, q)
					return nil
				})
			}
		}
		_ = round.Wait() // failures were logged; the next round tries again
	})
}

// commit tells the broker how far the queue is consumed, if it does not know.
func (p *PushConsumer) commit(ctx context.Context, q *processQueue) {
	offset, pending := q.uncommitted()
	if !pending {
		return
	}
	if err := p.c.CommitOffset(ctx, p.o.Group, q.queue, offset); err != nil {
		if ctx.Err() == nil {
			p.c.logger.Warn("offset not committed", "group", p.o.Group, "queue", q.queue, "offset", offset, "err", err)
		}
		return
	}
	q.markCommitted(offset)
}
