package spool

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"time"

	"github.com/sluicemq/sluice/spool/segment"
)

const retainInterval = time.Second

func (s *Spool) nudgeRetain() { nudge(s.retainWake) }

// runRetain deletes what is old or too much, keeps an eye on the disk, and
// opens the gate again when there is room.
func (s *Spool) runRetain(ctx context.Context) error {
	t := time.NewTicker(retainInterval)
	defer t.Stop()
	for {
		s.retain()
		select {
		case <-t.C:
		case <-s.retainWake:
		case <-ctx.Done():
			return nil
		}
	}
}

// retain is one round of retention.
func (s *Spool) retain() {
	s.retireExpired()
	s.probeDisk()
	if s.gate.reason(refuseLimit) != nil && s.ensureNext(false) == nil {
		s.refuse(refuseLimit, nil)
	}
	s.correctMins()
	s.nudgePrepare()
}

// retireExpired lets segments go whose newest message is older than MaxAge.
func (s *Spool) retireExpired() {
	s.retireMu.Lock()
	defer s.retireMu.Unlock()
	limit := s.clock.now(s.o.Now()) - s.o.MaxAge.Milliseconds()
	for {
		segs := s.seq.Segments()
		if len(segs) < 2 {
			return
		}
		// A message of a later segment is newer than all of this one. A segment
		// that recovery had to blank has none.
		newest := int64(0)
		for _, seg := range segs[1:] {
			if newest = firstStoreTime(seg); newest != 0 {
				break
			}
		}
		if newest == 0 || newest > limit || s.retireOldest() != nil {
			return
		}
	}
}

// retireOldest takes the oldest segment out of the log, or returns ErrFull and
// why it has to stay. Called with retireMu held.
func (s *Spool) retireOldest() error {
	segs := s.seq.Segments()
	if len(segs) < 2 {
		return s.fullError("only the segment being written to is left")
	}
	seg := segs[0]
	// Queues must remember the offsets of what goes, also after a power cut.
	if seg.End() > s.checked.Load() {
		if err := s.catchUp(); err != nil {
			return s.fullError("the oldest segment cannot be flushed and dispatched: " + err.Error())
		}
		if seg.End() > s.checked.Load() {
			return s.fullError("the oldest segment is not flushed and dispatched yet")
		}
	}
	if s.o.KeepUnread {
		if why := s.heldBy(seg); why != "" {
			return s.fullError(why)
		}
	}
	if err := s.seq.RetireFirst(); err != nil {
		s.log.Error("delete segment", "segment", segment.FileName(seg.Base()), "err", err)
		return err
	}
	s.counters.retired.Add(1)
	s.nudgeRetain()
	s.log.Info("segment deleted", "segment", segment.FileName(seg.Base()), "log begins at", seg.End())
	return nil
}

// catchUp flushes and dispatches all that is appended, durably.
func (s *Spool) catchUp() error {
	if err := s.flushTo(context.Background(), s.written.Load()); err != nil {
		return err
	}
	if err := s.dispatchAll(); err != nil {
		return err
	}
	return s.saveCheckpoint()
}

func (s *Spool) fullError(why string) error {
	return fmt.Errorf("%w: limit of %d bytes reached (%d used) and %s", ErrFull,
		s.o.MaxBytes, int64(s.seq.Files())*s.o.SegmentBytes, why)
}

// heldBy names a cursor whose durable position has not passed all messages of
// its queue in seg; "" when there is none.
func (s *Spool) heldBy(seg *segment.Segment) string {
	for _, c := range s.cursors.list() {
		at, q := c.durable.Load(), c.queue
		if s.cursors.noRoom.Load() {
			// On a full disk no position can be made durable before something is
			// deleted. What was passed was passed: at worst a restart finds the
			// cursor below the queue's minimum and moves it there.
			at = c.offset.Load()
		}
		if at >= q.Max() {
			continue
		}
		u, err := s.files.unitAt(q, max(at, q.Min()))
		if err != nil || u.phys < seg.End() {
			return fmt.Sprintf("cursor %q on %s queue %d is at offset %d of %d", c.name, q.Topic(), q.id, at, q.Max())
		}
	}
	return ""
}

// correctMins raises the queues' minimum offsets to what the log still has,
// and removes queue files that are wholly below.
func (s *Spool) correctMins() {
	base := s.seq.Base()
	if s.minsFor.Load() == base {
		return
	}
	ok := true
	for _, q := range s.table.all() {
		if q.min.Load() == q.max.Load() {
			continue
		}
		if err := s.correctQueue(q); err != nil {
			ok = false
			s.log.Error("correct minimum offset", "topic", q.Topic(), "queue", q.id, "err", err)
		}
	}
	s.forgetTombstones()
	if ok {
		s.minsFor.Store(base)
	}
}

// correctQueue does it for one queue, unless the topic is being deleted.
func (s *Spool) correctQueue(q *Queue) error {
	deletions := q.topic.deletions.Load()
	was := q.min.Load()
	to, err := s.newMin(q, was)
	if err != nil || to == was {
		return err
	}
	s.dispatch.mu.Lock()
	defer s.dispatch.mu.Unlock()
	if q.topic.deletions.Load() != deletions {
		return nil
	}
	q.min.Store(to)
	s.cursors.skip(s, q, to)
	return s.removeBelowMin(q, was/s.files.entries)
}

// removeBelowMin removes a queue's files from an index on that hold only units
// below its minimum. The last file stays in any case: its name says what the
// next offset is.
func (s *Spool) removeBelowMin(q *Queue, from int64) error {
	end := q.min.Load()
	if end > 0 && end == q.max.Load() {
		end--
	}
	for x := from; x < end/s.files.entries; x++ {
		if err := s.files.remove(fileKey{q, x}); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
	}
	return nil
}

// skip moves cursors that retention has overtaken, which it does only where
// cursors do not hold it back.
func (set *cursorSet) skip(s *Spool, q *Queue, to int64) {
	set.mu.Lock()
	defer set.mu.Unlock()
	for k, c := range set.all {
		if at := c.offset.Load(); k.q == q && at < to {
			s.counters.lost.Add(to - at)
			s.log.Error("messages deleted before a cursor read them", "cursor", k.name,
				"topic", q.Topic(), "queue", q.id, "from", at, "to", to)
			c.Advance(to)
		}
	}
}

// forgetTombstones drops those whose messages left the log.
func (s *Spool) forgetTombstones() {
	s.dispatch.mu.Lock()
	defer s.dispatch.mu.Unlock()
	base := s.seq.Base()
	for _, at := range s.tombs.at {
		if at <= base {
			if err := s.saveTombstones(); err != nil {
				s.log.Error("save deleted topics", "err", err)
			}
			return
		}
	}
}
