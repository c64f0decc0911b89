package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/sluicemq/sluice/spool/segment"
)

// recover brings files that a stop of any kind left behind into the state they
// were promised to be in, and sets every position of the spool:
//
//	lock, marker, checkpoint, tombstones
//	load the log's files                           segment.Load
//	load queues as they were at the checkpoint     loadQueues
//	walk the log: verify, dispatch the rest, mend, cut
//	make durable what the walk believed
//	cut queues to the log's end; cursors to their queues
//
// Only the tail of the log and what the queues lack is read; all else stays
// as it is.
func (s *Spool) recover() error {
	cp, err := readCheckpoint(s.fs, s.path("checkpoint"))
	if err != nil {
		return err
	}
	stop, err := s.lastStop()
	if err != nil {
		return err
	}
	if cp.slot != nil {
		s.check.sequence = cp.slot.sequence
	}
	if err := s.loadTombstones(); err != nil {
		return err
	}
	if err := s.markRunning(); err != nil {
		return err
	}
	fresh, err := s.loadLog(cp)
	if err != nil {
		return err
	}
	if err := s.settleQueueEntries(cp); err != nil {
		return err
	}
	w, err := s.planWalk(cp, stop, fresh)
	if err != nil {
		return err
	}
	if err := s.walkLog(w, cp, stop); err != nil {
		return err
	}
	if err := s.boundTombstones(w.pos); err != nil {
		return err
	}
	for _, q := range s.table.all() {
		q.next = q.max.Load()
	}
	if err := s.loadCursors(); err != nil {
		return err
	}
	if w.clean && w.pos == w.from {
		s.checked.Store(w.pos)
		return nil
	}
	s.minsFor.Store(s.seq.Base())
	return s.saveCheckpoint()
}

func (s *Spool) path(name string) string { return filepath.Join(s.o.Dir, name) }

func (s *Spool) exists(name string) (bool, error) {
	_, err := s.fs.Stat(s.path(name))
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	return err == nil, err
}

// A stopKind is how the store was left.
type stopKind int

const (
	stoppedProperly stopKind = iota
	crashed
	// crashedOther: RocketMQ's broker had it and did not stop properly.
	crashedOther
)

// abortMark tells our marker from that of RocketMQ's broker, which holds the
// process id alone.
const abortMark = "sluice"

// lastStop tells how the store was left.
func (s *Spool) lastStop() (stopKind, error) {
	b, err := s.fs.ReadFile(s.path("abort"))
	switch {
	case errors.Is(err, fs.ErrNotExist):
		return stoppedProperly, nil
	case err != nil:
		return crashed, err
	case len(bytes.TrimSpace(b)) > 0 && !bytes.Contains(b, []byte(abortMark)):
		return crashedOther, nil
	}
	return crashed, nil
}

// markRunning makes the abort marker, durably: a power cut from here on is
// seen at the next start.
func (s *Spool) markRunning() error {
	f, err := s.fs.Open(s.path("abort"))
	if errors.Is(err, fs.ErrNotExist) {
		f, err = s.fs.Create(s.path("abort"))
	}
	if err != nil {
		return err
	}
	text := fmt.Sprintf("%-10d %s\n", os.Getpid(), abortMark)
	_, err = f.WriteAt([]byte(text), 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), s.fs.SyncDir(s.o.Dir))
}

// walkLog walks, opens the last segment for appends and sets all positions.
func (s *Spool) walkLog(w *walk, cp checkpoint, stop stopKind) error {
	seg, err := w.run(s.walkStart(w))
	if err != nil {
		return err
	}
	if !w.exact && w.from < w.pos {
		// The checkpoint is of another log. The queues then are, too.
		s.log.Error("queues are rebuilt from the log: the checkpoint is no record boundary", "offset", w.from)
		if err := s.rebuild(w); err != nil {
			return err
		}
		if seg, err = w.run(0); err != nil {
			return err
		}
	}
	s.dispatch.rebuilding, s.dispatch.started = false, nil
	if w.pos < w.from {
		s.log.Error("the log ends before the offset that was durable", "end", w.pos, "was", w.from)
		if err := s.cutQueues(w.pos); err != nil {
			return err
		}
	}
	keepNext := stop == stoppedProperly && w.used <= s.indexOf(seg)
	if err := s.seq.Trim(seg.Base(), w.pos, keepNext); err != nil {
		return err
	}
	if err := s.syncWalked(w, stop); err != nil {
		return err
	}
	if w.pos > w.sealed.to {
		s.log.Info("RocketMQ's broker appended to the log meanwhile", "from", w.sealed.to, "to", w.pos)
		w.sealed.from = w.pos
	}
	s.plain = min(w.sealed.from, w.pos)
	s.w = writer{seg: seg, end: w.pos, last: w.last}
	s.backAt.Store(min(w.back, w.pos))
	if s.w.last == 0 {
		s.w.last = w.before
	}
	s.written.Store(w.pos)
	s.durable.Store(w.pos)
	s.dispatch.pos.Store(w.pos)
	s.dispatch.lastStore = s.w.last
	s.commit.oldest = seg
	s.check.mark(w.pos)
	if stop != stoppedProperly || w.pos != w.from {
		s.log.Info("log recovered", "end", w.pos, "dispatched from", w.from, "holes", w.holes)
	}
	return nil
}

// walkStart is the index of the segment where the walk begins: that of the
// first record to dispatch, and at the latest that of the last one in use,
// which is always verified.
func (s *Spool) walkStart(w *walk) int {
	i := min(int((w.from-s.seq.Base())/s.o.SegmentBytes), w.used)
	return max(i, 0)
}

func (s *Spool) indexOf(seg *segment.Segment) int {
	return int((seg.Base() - s.seq.Base()) / s.o.SegmentBytes)
}

// syncWalked makes durable what the walk believed and no flush is known to have
// brought to disk: from here on it counts as stored. After a crash without a
// power cut that may be in the page cache only; and if it was a failed flush
// that stopped the process, the page cache does not know any more that the disk
// lacks it. So it is written once more.
func (s *Spool) syncWalked(w *walk, stop stopKind) error {
	from := min(w.from, w.mark)
	rewrite := w.mark
	if rewrite == 0 { // nothing is known: the last segment must do
		rewrite = s.seq.Last().Base()
	}
	for _, seg := range s.seq.Segments() {
		if seg.End() <= from || seg.Base() > w.pos {
			continue
		}
		err := seg.Reopen()
		if err == nil && stop != stoppedProperly {
			err = rewriteLog(seg, max(rewrite, seg.Base()), min(w.pos, seg.End()))
		}
		if err == nil {
			err = seg.Sync()
		}
		if err == nil && seg != s.seq.Last() {
			err = seg.Seal()
		}
		if err != nil {
			return fmt.Errorf("sync segment %s: %w", segment.FileName(seg.Base()), err)
		}
	}
	return nil
}

// rewriteLog writes log bytes [from, to) of a segment again.
func rewriteLog(seg *segment.Segment, from, to int64) (err error) {
	if from >= to {
		return nil
	}
	if err := seg.Acquire(); err != nil {
		return err
	}
	defer seg.Release()
	defer segment.PanicOnFault()()
	defer segment.CatchFault(&err)
	buf := make([]byte, 256<<10)
	for from < to {
		n := copy(buf, seg.Data()[from-seg.Base():to-seg.Base()])
		if _, err := seg.WriteAt(buf[:n], from); err != nil {
			return err
		}
		from += int64(n)
	}
	return nil
}
