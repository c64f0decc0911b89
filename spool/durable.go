package spool

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/sluicemq/sluice/spool/segment"
)

// lazyFlush is how long a message that nobody waits for stays unflushed under
// FlushSync: long enough that a flush somebody waits for usually comes first.
const lazyFlush = 2 * time.Millisecond

// A committer is the group commit: whoever needs a flush and finds none under
// way flushes everything appended so far, for all who wait.
type committer struct {
	mu    sync.Mutex
	round *round // the flush under way, or nil
	// oldest is the oldest segment that may have unsynced bytes. They must be
	// durable before those of later segments count. Only flush uses it.
	oldest *segment.Segment
}

// A round is one flush. done is made by the first who waits for it.
type round struct{ done chan struct{} }

// Durable is the log offset before which everything survives a power cut.
func (s *Spool) Durable() int64 { return s.durable.Load() }

// WaitDurable returns nil once everything before the log offset end survives
// a power cut; the caller may find itself doing the flush for all who wait.
// Under FlushAsync it returns at once. An error other than ctx's means that
// the bytes may not be on disk and that the spool refuses messages from now on.
func (s *Spool) WaitDurable(ctx context.Context, end int64) error {
	if s.o.Flush == FlushAsync {
		return s.brokenErr()
	}
	return s.flushTo(ctx, end)
}

func (s *Spool) flushTo(ctx context.Context, end int64) error {
	c := &s.commit
	for {
		if s.durable.Load() >= end {
			return nil
		}
		if err := s.brokenErr(); err != nil {
			return err
		}
		c.mu.Lock()
		if r := c.round; r != nil {
			if r.done == nil {
				r.done = make(chan struct{})
			}
			done := r.done
			c.mu.Unlock()
			select {
			case <-done:
			case <-ctx.Done():
				return ctx.Err()
			}
			continue
		}
		if s.durable.Load() >= end {
			c.mu.Unlock()
			return nil
		}
		r := &round{}
		c.round = r
		c.mu.Unlock()

		s.flush()

		c.mu.Lock()
		c.round = nil
		done := r.done
		c.mu.Unlock()
		if done != nil {
			close(done)
		}
	}
}

// flush syncs what is appended and publishes it. Rounds exclude each other.
// The segments from the oldest unsynced one to the one written to are synced
// in order, so that durable bytes are always a prefix of the log.
func (s *Spool) flush() {
	end := s.written.Load()
	for seg := s.commit.oldest; ; {
		if err := seg.Sync(); err != nil {
			s.breakDown(fmt.Errorf("flush %s: %w", segment.FileName(seg.Base()), err))
			return
		}
		next := s.seq.Find(seg.End())
		if next == nil || seg.End() > end {
			break
		}
		// Full and synced. A position at its very end belongs to the next one.
		if err := seg.Seal(); err != nil {
			s.log.Warn("close full segment", "segment", segment.FileName(seg.Base()), "err", err)
		}
		seg = next
		s.commit.oldest = next
	}
	s.durable.Store(end)
	s.check.mark(end)
	s.dispatch.nudge()
}

// breakDown stops appends for good: after a failed flush the kernel may have
// dropped the pages, and a later success would say nothing about them.
func (s *Spool) breakDown(err error) {
	err = fmt.Errorf("%w: %w", ErrBroken, err)
	if s.gate.set(refuseBroken, err) == nil {
		s.broken.Store(&err)
		s.log.Error("flush failed, no more messages are taken", "durable", s.durable.Load(), "err", err)
	}
}

func (s *Spool) brokenErr() error {
	if p := s.broken.Load(); p != nil {
		return *p
	}
	return nil
}

// readable is the log offset before which messages may be read.
func (s *Spool) readable() int64 {
	if s.o.Flush == FlushAsync {
		return s.written.Load()
	}
	return s.durable.Load()
}

// noteAppended tells the goroutines behind the log that it grew.
func (s *Spool) noteAppended() {
	if s.o.Flush == FlushAsync {
		s.dispatch.nudge()
		return
	}
	nudge(s.lazy)
}

// nudge wakes the receiver of a channel with room for one.
func nudge(c chan struct{}) {
	select {
	case c <- struct{}{}:
	default:
	}
}

// runFlush flushes what nobody waits for.
func (s *Spool) runFlush(ctx context.Context) error {
	pause := s.o.FlushInterval
	if s.o.Flush == FlushSync {
		pause = lazyFlush
	}
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		if s.o.Flush == FlushSync {
			select {
			case <-s.lazy:
			case <-ctx.Done():
				return nil
			}
			timer.Reset(pause)
		}
		select {
		case <-timer.C:
			timer.Reset(pause)
		case <-ctx.Done():
			return nil
		}
		// A failure is recorded in the gate; the loop then has nothing to do.
		_ = s.flushTo(ctx, s.written.Load())
	}
}
