package sidecar

import (
	"context"
	"time"

	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol/message"
)

// upstreamPatience is how long the first message of a new topic waits to learn
// the upstream's queue count. Longer would make an upstream that is away felt by
// local producers.
const upstreamPatience = 300 * time.Millisecond

// queueCounts decides how many queues a local topic has: as many as upstream,
// so that one local queue feeds one upstream queue, else the configured number.
type queueCounts struct {
	lanes    *lanes
	fallback int
}

// upstream asks the upstreams that a topic would go to.
func (q *queueCounts) upstream(ctx context.Context, topic string) (int, bool) {
	if !forwarded(topic) {
		return 0, false
	}
	ctx, cancel := context.WithTimeout(ctx, upstreamPatience)
	defer cancel()
	for _, up := range q.lanes.destinations(topic) {
		if n, err := up.Sender.Queues(ctx, topic); err == nil && n > 0 {
			return n, true
		}
	}
	return 0, false
}

// forTopic is the queue count for a topic that is about to be created.
func (q *queueCounts) forTopic(topic string) int {
	if n, ok := q.upstream(context.Background(), topic); ok {
		return n
	}
	return q.fallback
}

// settled is the queue count of a local topic, which is made when there is none:
// asked twice, an upstream might answer once only, and a queue chosen by the one
// count might not be there by the other. Topics that lanes do not forward are
// left to the engine.
func (q *queueCounts) settled(table *topics.Table, topic string) int {
	t, ok := table.Get(topic)
	if !ok {
		if !forwarded(topic) || message.IsSendForbidden(topic) {
			return 1
		}
		var err error
		if t, err = table.Ensure(topics.ReadWrite(topic, q.forTopic(topic))); err != nil {
			return 1
		}
	}
	return int(t.WriteQueueNums)
}

// ensure creates a topic that is known upstream, so that local clients see it
// before anything was sent.
func (q *queueCounts) ensure(table *topics.Table) func(context.Context, string) (*topics.Topic, bool) {
	return func(ctx context.Context, topic string) (*topics.Topic, bool) {
		n, ok := q.upstream(ctx, topic)
		if !ok {
			return nil, false
		}
		t, err := table.Ensure(topics.ReadWrite(topic, n))
		return t, err == nil
	}
}
