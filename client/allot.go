package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"math/rand/v2"
	"slices"
	"strings"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// retryRebalance is the pause after a round that could not divide every topic.
const retryRebalance = time.Second

// rebalanceLoop divides the queues among the members of the group: at the start,
// at every interval, and as soon as a broker says that the members changed.
func (p *PushConsumer) rebalanceLoop(ctx context.Context) error {
	for {
		wait := p.o.RebalanceInterval
		if !p.rebalance(ctx) {
			wait = min(wait, retryRebalance)
		}
		timer := time.NewTimer(wait)
		select {
		case <-ctx.Done():
			timer.Stop()
			return ctx.Err()
		case <-p.wake:
			timer.Stop()
		case <-timer.C:
		}
	}
}

// rebalance is one round over all topics; it reports whether each was divided.
// A topic that was not keeps its queues as they are.
func (p *PushConsumer) rebalance(ctx context.Context) (complete bool) {
	complete = true
	for _, topic := range slices.Sorted(maps.Keys(p.subs)) {
		err := p.rebalanceTopic(ctx, topic)
		if ctx.Err() != nil {
			continue
		}
		// A group's retry topic exists only where a broker made it.
		if errors.Is(err, ErrTopicNotFound) && strings.HasPrefix(topic, message.RetryPrefix) {
			continue
		}
		complete = complete && err == nil
		p.tell(topic, err)
	}
	return complete
}

// tell logs that a topic cannot be divided, and that it can again. It is tried
// every second: the same reason is told once.
func (p *PushConsumer) tell(topic string, err error) {
	before, failing := p.undone[topic]
	switch {
	case err == nil && failing:
		delete(p.undone, topic)
		p.c.logger.Info("queues divided", "group", p.o.Group, "topic", topic)
	case err != nil && before != err.Error():
		p.undone[topic] = err.Error()
		p.c.logger.Warn("queues not divided; trying again until they are", "group", p.o.Group, "topic", topic, "err", err)
	}
}

func (p *PushConsumer) rebalanceTopic(ctx context.Context, topic string) error {
	route, err := p.c.Route(ctx, topic)
	if err != nil {
		return err
	}
	p.greet(ctx, route)
	members, err := p.members(ctx, route)
	if err != nil {
		return err
	}
	// A broker that was restarted has forgotten this member: before all queues
	// are given up for that, it is told and asked again.
	if !slices.Contains(members, p.c.id) {
		p.c.heartbeatAll(ctx)
		if members, err = p.members(ctx, route); err != nil {
			return err
		}
	}
	return p.take(ctx, topic, p.o.Strategy.Allocate(p.c.id, members, route.Read))
}

// greet makes the consumer known to brokers that it has not met: only brokers
// that know a member count it.
func (p *PushConsumer) greet(ctx context.Context, route *Route) {
	met := true
	for _, addrs := range route.brokers {
		for _, addr := range addrs {
			met = met && p.greeted[addr]
			p.greeted[addr] = true
		}
	}
	if !met {
		p.c.heartbeatAll(ctx)
	}
}

// members asks the brokers of a route, in random order, for the members of the
// group until one answers.
func (p *PushConsumer) members(ctx context.Context, route *Route) ([]string, error) {
	names := slices.Collect(maps.Keys(route.brokers))
	rand.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
	failure := fmt.Errorf("members of %s: no broker in the route", p.o.Group)
	for _, name := range names {
		addr, _, ok := route.Broker(name, masterID)
		if !ok {
			continue
		}
		header := protocol.GetConsumerListByGroupRequest{ConsumerGroup: p.o.Group}
		resp, err := p.c.CallOK(ctx, addr, protocol.NewRequest(protocol.GetConsumerListByGroup, &header, nil))
		var answer *protocol.Error
		if errors.As(err, &answer) && answer.Code == protocol.SystemError {
			return nil, nil // how a broker says that it knows no member
		}
		if err != nil {
			failure = fmt.Errorf("members of %s: %w", p.o.Group, err)
			continue
		}
		var body protocol.GetConsumerListByGroupBody
		if err := protocol.Unmarshal(resp.Body, &body); err != nil {
			failure = fmt.Errorf("members of %s: %w", p.o.Group, err)
			continue
		}
		return body.ConsumerIDList, nil
	}
	return nil, failure
}

// take makes the consumer own exactly these queues of a topic. It returns the
// first failure to find out where to start in a new one; that queue is left for
// the next round.
func (p *PushConsumer) take(ctx context.Context, topic string, allotted []protocol.MessageQueue) error {
	var missing []protocol.MessageQueue
	p.mu.Lock()
	for mq, q := range p.queues {
		if mq.Topic == topic && !q.revoked && !slices.Contains(allotted, mq) {
			q.revoked = true
			q.cancel()
			p.c.logger.Info("queue given up", "group", p.o.Group, "queue", mq)
		}
	}
	for _, mq := range allotted {
		q := p.queues[mq]
		if q == nil {
			missing = append(missing, mq)
		} else if q.revoked {
			q.wantedAgain = true
		}
	}
	p.mu.Unlock()

	var failure error
	for _, mq := range missing {
		offset, err := p.startOffset(ctx, mq)
		if err != nil {
			if failure == nil {
				failure = fmt.Errorf("start of queue %d of %s: %w", mq.QueueID, mq.BrokerName, err)
			}
			continue
		}
		p.start(ctx, mq, offset)
	}
	return failure
}

func (p *PushConsumer) start(ctx context.Context, mq protocol.MessageQueue, offset int64) {
	own, cancel := context.WithCancel(ctx)
	q := newProcessQueue(mq, offset, cancel)
	p.mu.Lock()
	p.queues[mq] = q
	p.mu.Unlock()
	p.c.logger.Info("queue taken", "group", p.o.Group, "queue", mq, "offset", offset)
	p.running.Add(1)
	go p.runQueue(own, q)
}

// startOffset is where the group goes on in a queue, or begins.
func (p *PushConsumer) startOffset(ctx context.Context, mq protocol.MessageQueue) (int64, error) {
	offset, known, err := p.c.CommittedOffset(ctx, p.o.Group, mq)
	if err != nil || known {
		return offset, err
	}
	retry := strings.HasPrefix(mq.Topic, message.RetryPrefix)
	switch p.o.FromWhere {
	case FromFirst:
		return 0, nil
	case FromTimestamp:
		if retry {
			return p.c.MaxOffset(ctx, mq)
		}
		return p.c.OffsetByTime(ctx, mq, p.o.FromTime)
	}
	if retry {
		return 0, nil
	}
	return p.c.MaxOffset(ctx, mq)
}
