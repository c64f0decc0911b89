package client

import (
	"context"
	"errors"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

const (
	flowControlWait = 20 * time.Millisecond // before a pull that a broker put off (215) is repeated
	// A broker that answers "nothing new" at once, again and again, cannot hold
	// requests now: it must not be asked in a tight loop.
	quickAnswer   = 100 * time.Millisecond
	quickAnswers  = 3
	quickPullWait = time.Second
)

// runQueue pulls and consumes one queue until ctx ends, then commits and frees
// its place.
func (p *PushConsumer) runQueue(ctx context.Context, q *processQueue) {
	defer p.running.Done()
	defer q.cancel()
	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return p.pull(running, q) })
	group.Go(func() error { return p.consume(running, q) })
	_ = group.Wait() // both end with ctx only

	last, cancel := context.WithTimeout(context.WithoutCancel(ctx), p.c.o.CallTimeout)
	defer cancel()
	p.commit(last, q)

	p.mu.Lock()
	delete(p.queues, q.queue)
	again := q.wantedAgain
	p.mu.Unlock()
	if again {
		p.RebalanceNow()
	}
}

// consume calls the listener for what was pulled, oldest first, again and again
// until it succeeds.
func (p *PushConsumer) consume(ctx context.Context, q *processQueue) error {
	for {
		batch, err := q.take(ctx, p.o.BatchSize)
		if err != nil {
			return err
		}
		for {
			err := p.o.Listener(ctx, batch)
			if err == nil {
				break
			}
			if ctx.Err() != nil {
				return ctx.Err()
			}
			p.c.logger.Warn("listener failed, the batch comes again", "group", p.o.Group, "queue", q.queue,
				"offset", batch[0].QueueOffset, "messages", len(batch), "wait", p.o.RetryInterval, "err", err)
			if err := sleep(ctx, p.o.RetryInterval); err != nil {
				return err
			}
			for _, m := range batch {
				m.ReconsumeTimes++
			}
		}
		q.done(len(batch))
	}
}

// pull fills the process queue from its broker until ctx ends.
func (p *PushConsumer) pull(ctx context.Context, q *processQueue) error {
	l := pullLoop{p: p, q: q, sub: p.subs[q.queue.Topic]}
	for {
		if err := q.waitRoom(ctx, p.o.MaxQueueMessages, p.o.MaxQueueBytes); err != nil {
			return err
		}
		wait, err := l.once(ctx)
		if err == nil && wait > 0 {
			err = sleep(ctx, wait)
		}
		if err != nil {
			return err
		}
	}
}

// A pullLoop is what one pull leaves for the next.
type pullLoop struct {
	p      *PushConsumer
	q      *processQueue
	sub    subscription
	broker int64 // the member to ask, as the last answer suggested

	failures, quick, illegal int // of each kind in a row
}

// once makes one pull and returns how long to wait before the next. An error is
// the end of ctx.
func (l *pullLoop) once(ctx context.Context) (time.Duration, error) {
	offset, asked := l.q.position(), time.Now()
	r, err := l.p.pullOnce(ctx, l.q.queue, &l.sub, offset, l.broker)
	if ctx.Err() != nil {
		return 0, ctx.Err()
	}
	if err == nil && r.Status == PullFound && r.Next <= offset {
		err = errors.New("broker found messages but does not move on")
	}
	if err != nil {
		// One line per outage and queue.
		if l.failures++; l.failures == 1 {
			l.p.c.logger.Warn("pull failed", "group", l.p.o.Group, "queue", l.q.queue, "offset", offset, "err", err)
		}
		l.broker = masterID
		return l.p.pullWait(err), nil
	}
	l.failures, l.broker = 0, r.BrokerID
	if r.Status == PullOffsetIllegal {
		l.illegal++
		return l.moveTo(ctx, offset, r.Next)
	}
	l.illegal = 0
	l.q.put(l.p.receive(&l.sub, r.Messages), r.Next)
	if r.Status != PullNoNew || time.Since(asked) >= quickAnswer {
		l.quick = 0
	} else if l.quick++; l.quick > quickAnswers {
		return quickPullWait, nil
	}
	return 0, nil
}

func (p *PushConsumer) pullOnce(ctx context.Context, mq protocol.MessageQueue, sub *subscription, offset, broker int64) (PullResult, error) {
	return p.c.Pull(ctx, PullRequest{
		Queue: mq, Group: p.o.Group, Offset: offset, Max: p.o.PullBatch,
		Subscription: sub.expression, Version: sub.version, Suspend: p.o.Suspend, BrokerID: broker,
	})
}

// pullWait is the pause after a failed pull.
func (p *PushConsumer) pullWait(err error) time.Duration {
	var answer *protocol.Error
	if errors.As(err, &answer) && answer.Code == protocol.FlowControl {
		return flowControlWait
	}
	return p.o.PullErrorInterval
}

// moveTo goes where the broker says after an offset that is outside of the
// queue: messages before it have expired, the queue was lost, or somebody reset
// the group. What was pulled before is consumed first, and the new place is
// committed at once. Only the first time in a row does it go on without a pause.
func (l *pullLoop) moveTo(ctx context.Context, from, to int64) (time.Duration, error) {
	if err := l.q.waitIdle(ctx); err != nil {
		return 0, err
	}
	l.p.c.logger.Warn("offset outside of the queue", "group", l.p.o.Group, "queue", l.q.queue, "offset", from, "next", to)
	l.q.reset(to)
	l.p.commit(ctx, l.q)
	if l.illegal > 1 {
		return l.p.o.PullErrorInterval, nil
	}
	return 0, nil
}

// receive prepares pulled messages for the listener.
func (p *PushConsumer) receive(sub *subscription, ms []*message.Message) []*message.Message {
	kept := ms[:0]
	for _, m := range ms {
		if !sub.matches(m) {
			continue
		}
		// A retried message comes in the group's retry topic.
		if origin, ok := message.Property(m.Properties, message.PropertyRetryTopic); ok && m.Topic == message.RetryTopic(p.o.Group) {
			m.Topic = string(origin)
		}
		if m.SysFlag&message.Compressed != 0 {
			p.decompress(m)
		}
		kept = append(kept, m)
	}
	return kept
}

func (p *PushConsumer) decompress(m *message.Message) {
	body, err := message.Decompress(m.SysFlag, m.Body, p.o.MaxBodyBytes)
	if err != nil {
		p.c.logger.Warn("body not decompressed", "topic", m.Topic, "queue", m.QueueID, "offset", m.QueueOffset, "err", err)
		return
	}
	m.Body = body
	m.SysFlag &^= message.Compressed | message.CompressionMask
}

func sleep(ctx context.Context, d time.Duration) error {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return ctx.Err()
	case <-timer.C:
		return nil
	}
}
