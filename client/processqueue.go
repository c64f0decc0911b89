package client

import (
	"context"
	"sync"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// A processQueue is what a consumer holds of one message queue that it owns:
// pulled messages that are not consumed yet, in order of their offsets.
//
//	 consumed        next
//	    ▼              ▼
//	────┬──────────────┬─────────▶ queue offsets
//	    │ pending      │ not pulled
//
// One goroutine pulls into it and one consumes from it.
type processQueue struct {
	queue  protocol.MessageQueue
	cancel context.CancelFunc // ends both goroutines

	// Owned by the consumer's mutex.
	revoked     bool // ending: its place in the table is not free yet
	wantedAgain bool // allotted again while it was ending

	// Each channel holds one token: something changed for the one who waits.
	work chan struct{} // for the consuming side: pending grew
	room chan struct{} // for the pulling side: pending shrank

	mu        sync.Mutex
	pending   []*message.Message
	bytes     int   // of the bodies and properties in pending
	next      int64 // where to pull from
	consumed  int64 // every message before it has been consumed
	committed int64 // what the broker was told, -1: nothing yet
	confirmed bool  // a broker has answered a pull: consumed is a real offset
}

func newProcessQueue(queue protocol.MessageQueue, offset int64, cancel context.CancelFunc) *processQueue {
	return &processQueue{
		queue: queue, cancel: cancel,
		work: make(chan struct{}, 1), room: make(chan struct{}, 1),
		next: offset, consumed: offset, committed: -1,
	}
}

func signal(ch chan struct{}) {
	select {
	case ch <- struct{}{}:
	default:
	}
}

// waitFor waits until the condition holds; it is asked again after each token.
func (q *processQueue) waitFor(ctx context.Context, token <-chan struct{}, conditionLocked func() bool) error {
	for {
		q.mu.Lock()
		ok := conditionLocked()
		q.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-token:
		}
	}
}

// waitRoom waits until fewer messages and bytes than the limits are pending.
func (q *processQueue) waitRoom(ctx context.Context, messages, bytes int) error {
	return q.waitFor(ctx, q.room, func() bool { return len(q.pending) < messages && q.bytes < bytes })
}

// waitIdle waits until everything pulled has been consumed.
func (q *processQueue) waitIdle(ctx context.Context) error {
	return q.waitFor(ctx, q.room, func() bool { return len(q.pending) == 0 })
}

// position is where to pull from.
func (q *processQueue) position() int64 {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next
}

// put adds what one pull found, which may be nothing, and moves on to next.
func (q *processQueue) put(ms []*message.Message, next int64) {
	q.mu.Lock()
	q.pending = append(q.pending, ms...)
	for _, m := range ms {
		q.bytes += len(m.Body) + len(m.Properties)
	}
	q.next, q.confirmed = next, true
	q.advanceLocked()
	q.mu.Unlock()
	if len(ms) > 0 {
		signal(q.work)
	}
}

// reset moves to an offset that a broker named because the old one was outside
// of the queue. Nothing may be pending.
func (q *processQueue) reset(offset int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.next, q.consumed, q.confirmed = offset, offset, true
}

// take waits for messages and returns up to n of the first. They stay pending
// until done: a message being consumed is not consumed yet.
func (q *processQueue) take(ctx context.Context, n int) ([]*message.Message, error) {
	err := q.waitFor(ctx, q.work, func() bool { return len(q.pending) > 0 })
	if err != nil {
		return nil, err
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	n = min(n, len(q.pending))
	return q.pending[:n:n], nil
}

// done removes the first n messages as consumed.
func (q *processQueue) done(n int) {
	q.mu.Lock()
	q.consumed = q.pending[n-1].QueueOffset + 1
	for _, m := range q.pending[:n] {
		q.bytes -= len(m.Body) + len(m.Properties)
	}
	clear(q.pending[:n]) // the array may live on
	q.pending = q.pending[n:]
	q.advanceLocked()
	q.mu.Unlock()
	signal(q.room)
}

// advanceLocked counts what filters left out as consumed, once nothing before it
// is pending.
func (q *processQueue) advanceLocked() {
	if len(q.pending) == 0 && q.next > q.consumed {
		q.consumed = q.next
	}
}

// uncommitted returns the offset to commit and whether the broker does not know
// it yet. The start is committed too, once a broker has confirmed it: else a group
// that starts at the end of an idle queue would miss what comes while it is away.
func (q *processQueue) uncommitted() (offset int64, pending bool) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.consumed, q.confirmed && q.consumed != q.committed
}

func (q *processQueue) markCommitted(offset int64) {
	q.mu.Lock()
	defer q.mu.Unlock()
	q.committed = offset
}
