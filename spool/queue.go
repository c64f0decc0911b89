package spool

import (
	"context"
	"sync"
	"sync/atomic"
)

// A Queue is one queue of a topic: a numbered sequence of messages. Offsets
// count messages from 0. All methods may be called concurrently.
type Queue struct {
	spool *Spool
	topic *topic
	id    int32

	next int64 // offset of the next append, guarded by Spool.appendMu

	min, max atomic.Int64 // readable offsets are [min, max)

	// Units of records dispatched and not yet written; guarded by
	// dispatcher.mu.
	pending []byte

	waited atomic.Bool // somebody may wait on grown
	mu     sync.Mutex
	grown  chan struct{} // closed at the next growth; made by the first waiter
}

// Topic is the name of the topic.
func (q *Queue) Topic() string { return q.topic.name }

// ID is the queue's number within its topic.
func (q *Queue) ID() int32 { return q.id }

// Min is the smallest offset whose message is kept. It equals Max when there
// is none.
func (q *Queue) Min() int64 { return q.min.Load() }

// Max is the offset after the newest readable message. An appended message
// becomes readable shortly after it counts as stored.
func (q *Queue) Max() int64 { return q.max.Load() }

// Wait returns nil once Max is above offset, and also when the topic was
// deleted meanwhile; otherwise ctx's error.
func (q *Queue) Wait(ctx context.Context, offset int64) error {
	for {
		if q.max.Load() > offset {
			return nil
		}
		q.mu.Lock()
		if q.grown == nil {
			q.grown = make(chan struct{})
		}
		grown, deleted := q.grown, q.topic.deletions.Load()
		q.waited.Store(true)
		q.mu.Unlock()
		// Growth before waited was set is seen here, growth after it closes
		// the channel: none is missed.
		if q.max.Load() > offset {
			return nil
		}
		select {
		case <-grown:
			if q.topic.deletions.Load() != deleted {
				return nil
			}
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// publish makes messages before offset readable and wakes who waits.
func (q *Queue) publish(offset int64) {
	q.max.Store(offset)
	q.wake()
}

func (q *Queue) wake() {
	if !q.waited.Load() {
		return
	}
	q.mu.Lock()
	defer q.mu.Unlock()
	q.waited.Store(false)
	if q.grown != nil {
		close(q.grown)
		q.grown = nil
	}
}
