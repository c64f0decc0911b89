package spool

import (
	"fmt"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// writer is the append position. Guarded by Spool.appendMu.
type writer struct {
	seg  *segment.Segment
	end  int64 // log offset where the next record goes
	last int64 // store time of the newest record, ms
}

// Append stores a batch: it gives every message its offsets and store time and
// writes the records with one write, two where a segment ends. It returns the
// error of the first message that was not stored; Result has each one's. What
// was stored is durable only after WaitDurable(End()).
//
// After an error the log is as if the failed messages had never been there,
// and the next Append may succeed.
func (s *Spool) Append(b *Batch) error {
	if len(b.entries) == 0 {
		return nil
	}
	b.end = 0
	// Room for the zeros that follow the last record, see writeRun.
	n := len(b.buf)
	b.buf = append(b.buf, zeroPage[:]...)
	b.buf = append(b.buf, zeroPage[:cutLen]...)
	s.appendMu.Lock()
	err := s.appendLocked(b)
	s.appendMu.Unlock()
	b.buf = b.buf[:n]
	if b.end > 0 {
		s.noteAppended()
	}
	return err
}

func (s *Spool) appendLocked(b *Batch) error {
	if err := s.refusal(b.reserve); err != nil {
		b.fail(0, len(b.entries), err)
		return err
	}
	s.advanceTime(b.reserve)
	var first error
	for i := 0; i < len(b.entries); {
		end, err := s.appendRun(b, i)
		if err != nil {
			b.fail(i, end, err)
			if first == nil {
				first = err
			}
		}
		i = end
	}
	return first
}

// maxClockLag is how far the wall clock may be behind the newest message before
// the log gives in.
const maxClockLag = time.Hour

// advanceTime sets the store time of the next messages. Within a segment it
// never falls: while the clock is behind, it stands still. If the clock is far
// behind, the messages before were stored with a clock that was wrong; a new
// segment then begins, with the right time.
func (s *Spool) advanceTime(reserve bool) {
	now := s.o.Now().UnixMilli()
	if now < s.w.last-maxClockLag.Milliseconds() && s.w.end > s.w.seg.Base() {
		if err := s.roll(reserve); err != nil {
			s.log.Warn("the clock is behind, and no segment can begin", "err", err)
		}
	}
	if now < s.w.last && s.w.end == s.w.seg.Base() {
		s.log.Warn("store time goes back", "from", s.w.last, "to", now, "offset", s.w.end)
		s.backAt.Store(s.w.end)
		s.w.last = now
	}
	s.w.last = max(s.w.last, now)
}

// refusal is why no message is taken, or nil. The limit does not stop those that
// may use the reserve.
func (s *Spool) refusal(reserve bool) error {
	err := s.gate.err()
	if err == nil || !reserve {
		return err
	}
	for kind := range refuseLimit { // the graver ones
		if err := s.gate.reason(kind); err != nil {
			return err
		}
	}
	return nil
}

// appendRun stores the entries from i on that fit into one segment, and
// returns the end of those it stored or failed to store.
func (s *Spool) appendRun(b *Batch, i int) (end int, err error) {
	if end = s.run(b, i); end == i { // the group at i does not fit here
		if err := s.roll(b.reserve); err != nil {
			return b.groupEnd(i), err
		}
		end = s.run(b, i)
	}
	return end, s.writeRun(b, i, end)
}

// run returns the end of the entries from i on that fit into the segment,
// whole groups only. Behind the last record there must be room for a blank one.
func (s *Spool) run(b *Batch, i int) int {
	room := s.w.seg.End() - s.w.end - cutLen
	start := b.entries[i].start
	end := i
	for end < len(b.entries) {
		next := b.groupEnd(end)
		if int64(b.entries[next-1].end-start) > room {
			break
		}
		end = next
	}
	return end
}

func (b *Batch) groupEnd(i int) int {
	g := b.entries[i].group
	for i < len(b.entries) && b.entries[i].group == g {
		i++
	}
	return i
}

func (b *Batch) fail(from, to int, err error) {
	for i := from; i < to; i++ {
		b.entries[i].result = Result{Err: err}
	}
}

// writeRun seals and writes entries [i, end), which fit into the segment, and
// then makes them part of the log.
//
//	| records of the log | records of the run | 0 0 0 0 0 0 0 0 … 0 | old bytes
//	                    w.end                                       page
//
// The first eight zeros end the log for recovery, whatever the file held there
// before; the next run overwrites them. The others fill the page, if the run is
// the batch's last: a page that is written whole need not be read first, and in
// a segment that was filled ahead or used before it would have to be.
func (s *Spool) writeRun(b *Batch, i, end int) error {
	run := b.entries[i:end]
	from, to := run[0].start, run[len(run)-1].end
	for j := range run {
		e := &run[j]
		e.result = Result{PhysicalOffset: s.w.end + int64(e.start-from), StoreTimestamp: s.w.last}
		if e.queued {
			e.result.QueueOffset = e.queue.next
			e.queue.next++
		}
		message.Seal(b.buf[e.start:e.end], e.result.QueueOffset, e.result.PhysicalOffset, s.w.last)
	}
	// The marker is written in place of the first bytes of the next run.
	var saved [cutLen]byte
	marker := b.buf[to : to+cutLen]
	copy(saved[:], marker)
	clear(marker)
	tail := to + cutLen
	if end == len(b.entries) {
		tail += s.toPageEnd(s.w.end + int64(tail-from))
	}
	n, err := s.w.seg.WriteAt(b.buf[from:tail], s.w.end)
	copy(marker, saved[:])
	if err != nil {
		for j := range run {
			if run[j].queued {
				run[j].queue.next--
			}
		}
		s.erase(n)
		return s.writeError(err)
	}
	s.w.end += int64(to - from)
	b.end = s.w.end
	s.written.Store(s.w.end)
	return nil
}

// zeroPage is what a run is filled up with. It is only read.
var zeroPage [pageSize]byte

// toPageEnd is how many bytes there are from a log offset to the end of its page.
// Segments begin and end with a page.
func (s *Spool) toPageEnd(offset int64) int { return int(-offset & (pageSize - 1)) }

// roll ends the segment with a blank record and goes to the next one.
//
//	| records | totalSize 4 = bytes to the end | magic 4 | old bytes |
func (s *Spool) roll(reserve bool) error {
	if err := s.ensureNext(reserve); err != nil {
		return err
	}
	var blank [cutLen]byte
	rest := message.BlankRecord(blank[:0], int32(s.w.seg.End()-s.w.end))
	if n, err := s.w.seg.WriteAt(rest, s.w.end); err != nil {
		s.erase(n)
		return s.writeError(err)
	}
	seg, err := s.seq.Advance()
	if err != nil {
		s.erase(cutLen)
		return s.writeError(err)
	}
	s.w.seg, s.w.end = seg, seg.Base()
	s.written.Store(s.w.end)
	s.nudgePrepare()
	return nil
}

// erase overwrites what a failed write may have left at the append position,
// so that no record of it can come back. If that fails too, the records before
// the position are still whole, and the next append overwrites the rest.
func (s *Spool) erase(written int) {
	n := min(max(written, 0)+cutLen, int(s.w.seg.End()-s.w.end))
	if _, err := s.w.seg.WriteAt(make([]byte, n), s.w.end); err != nil {
		s.log.Warn("erase failed append", "offset", s.w.end, "bytes", n, "err", err)
	}
}

func (s *Spool) writeError(err error) error {
	if noSpace(err) {
		s.nudgeRetain()
		return fmt.Errorf("%w: no space left on the disk of %s", ErrFull, s.o.Dir)
	}
	return fmt.Errorf("append: %w", err)
}
