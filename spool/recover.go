package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"strconv"

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
	unclean, err := s.exists("abort")
	if err != nil {
		return err
	}
	cp, err := readCheckpoint(s.fs, s.path("checkpoint"))
	if err != nil {
		return err
	}
	if cp.slot != nil {
		s.check.sequence = cp.slot.sequence
	}
	if err := s.loadTombstones(); err != nil {
		return err
	}
	fresh, err := s.loadLog(cp)
	if err != nil {
		return err
	}
	if err := s.markRunning(); err != nil {
		return err
	}
	w, err := s.planWalk(cp, unclean, fresh)
	if err != nil {
		return err
	}
	if err := s.walkLog(w, cp, unclean); err != nil {
		return err
	}
	s.boundTombstones(w.pos)
	for _, q := range s.table.all() {
		q.next = q.max.Load()
	}
	if err := s.loadCursors(); err != nil {
		return err
	}
	if w.clean && w.pos == w.from {
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

// markRunning makes the abort marker, durably: a power cut from here on is
// seen at the next start.
func (s *Spool) markRunning() error {
	if there, err := s.exists("abort"); err != nil || there {
		return err
	}
	f, err := s.fs.Create(s.path("abort"))
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte(strconv.Itoa(os.Getpid())), 0)
	if err == nil {
		err = f.Sync()
	}
	return errors.Join(err, f.Close(), s.fs.SyncDir(s.o.Dir))
}

// loadLog opens the commit log's files. fresh tells that there were none.
func (s *Spool) loadLog(cp checkpoint) (fresh bool, err error) {
	dir := s.path("commitlog")
	bases, err := segment.Bases(s.fs, dir)
	if err != nil {
		return false, err
	}
	if err := s.settleSegmentSize(cp, dir, bases); err != nil {
		return false, err
	}
	seq, report, err := segment.Load(segment.Options{
		FS: s.fs, Dir: dir, SpareDir: s.path("spare"), Size: s.o.SegmentBytes,
	})
	if err != nil {
		return false, err
	}
	s.seq = seq
	for _, b := range report.Extended {
		s.log.Error("log file was too short, extended with zeros", "segment", segment.FileName(b))
	}
	for _, b := range report.Missing {
		s.log.Error("log file is missing, its messages are lost", "segment", segment.FileName(b))
	}
	return len(bases) == 0, nil
}

// settleSegmentSize decides the segment size: a log that exists keeps its own.
func (s *Spool) settleSegmentSize(cp checkpoint, dir string, bases []int64) error {
	size := s.o.SegmentBytes
	if len(bases) == 0 {
		// A limit should leave room for a few segments, else the log is
		// deleted, or full, in leaps.
		if limit := s.o.MaxBytes; limit > 0 && limit/4 < size {
			size = max(limit/4&^4095, minSegmentBytes)
			s.log.Info("segments made smaller to fit the limit", "segment_bytes", size, "max_bytes", limit)
		}
		s.o.SegmentBytes = size
		return nil
	}
	was := int64(0)
	switch {
	case cp.slot != nil:
		was = cp.slot.segmentBytes
	case len(bases) == 1:
		fi, err := s.fs.Stat(filepath.Join(dir, segment.FileName(bases[0])))
		if err != nil {
			return err
		}
		was = fi.Size()
	default:
		was = math.MaxInt64
		for i := range bases[1:] {
			was = min(was, bases[i+1]-bases[i])
		}
	}
	if was%4096 != 0 || was < minSegmentBytes || was > maxSegmentBytes {
		was = size // nothing to be learned from a damaged file
	}
	if was != size {
		s.log.Warn("the log keeps the segment size it was made with", "segment_bytes", was, "configured", size)
	}
	if s.o.MaxBytes > 0 && s.o.MaxBytes < 2*was {
		return fmt.Errorf("spool: limit of %d bytes is below two segments of %d", s.o.MaxBytes, was)
	}
	s.o.SegmentBytes = was
	return nil
}

// planWalk loads the queues and decides from where on records have to be
// dispatched again.
func (s *Spool) planWalk(cp checkpoint, unclean, fresh bool) (*walk, error) {
	w := &walk{s: s, mark: cp.mark, clean: !unclean, from: -1}
	segs := s.seq.Segments()
	for i := len(segs) - 1; i > 0; i-- {
		zero, err := headZero(segs[i])
		if err != nil {
			return nil, err
		}
		if !zero {
			w.used = i
			break
		}
	}
	if cp.slot != nil {
		w.plain = cp.slot.plain
	} else {
		w.plain = plainEnd(segs, w.used)
	}
	s.plain = w.plain
	base, end := segs[0].Base(), segs[len(segs)-1].End()
	units := int64(-1)
	if sl := cp.slot; sl != nil && !fresh && sl.dispatched <= end {
		w.from, units = max(sl.dispatched, base), sl.units
		w.mark = max(w.mark, sl.dispatched)
	} else if !fresh && cp.slot == nil && cp.logics > 0 {
		w.from = s.apacheStart(cp)
	}
	if w.from < 0 {
		err := s.rebuild(w)
		w.clean = fresh // then there is nothing behind the first byte
		return w, err
	}
	if err := s.loadQueues(w.from); err != nil {
		if !errors.Is(err, errQueueFiles) {
			return nil, err
		}
		s.log.Error("queues are rebuilt from the log", "err", err)
		return w, s.rebuild(w)
	}
	got := s.dispatch.units
	if units >= 0 && got == units && cp.slot.base == base && cp.slot.mins >= 0 {
		units, got = cp.slot.mins, s.sumMins()
	}
	if units >= 0 && got != units {
		s.log.Error("queues are rebuilt from the log: units are missing", "want", units, "got", got)
		return w, s.rebuild(w)
	}
	return w, nil
}

// apacheStart is RocketMQ's rule, for a store that its broker wrote: the
// newest segment whose first message is older than the checkpoint by 3 s.
func (s *Spool) apacheStart(cp checkpoint) int64 {
	segs := s.seq.Segments()
	limit := min(cp.physic, cp.logics) - 3000
	for i := len(segs) - 1; i > 0; i-- {
		if ms := firstStoreTime(segs[i]); ms > 0 && ms <= limit {
			return segs[i].Base()
		}
	}
	return segs[0].Base()
}

// rebuild makes the walk dispatch the whole log into empty queues. Queues
// without messages in the log keep what they know: their next offset.
func (s *Spool) rebuild(w *walk) error {
	base := s.seq.Base()
	w.from, w.clean, w.exact = base, false, false
	s.dispatch.rebuilding = true
	return s.resetQueues(base)
}

// walkLog walks, opens the last segment for appends and sets all positions.
func (s *Spool) walkLog(w *walk, cp checkpoint, unclean bool) error {
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
	s.dispatch.rebuilding = false
	if w.pos < w.from {
		s.log.Error("the log ends before the offset that was durable", "end", w.pos, "was", w.from)
		if err := s.cutQueues(w.pos); err != nil {
			return err
		}
	}
	keepNext := !unclean && w.used <= s.indexOf(seg)
	if err := s.seq.Trim(seg.Base(), w.pos, keepNext); err != nil {
		return err
	}
	if err := s.syncWalked(min(w.from, w.mark), w.pos); err != nil {
		return err
	}
	s.w = writer{seg: seg, end: w.pos, last: max(w.last, cp.physic)}
	s.written.Store(w.pos)
	s.durable.Store(w.pos)
	s.dispatch.pos.Store(w.pos)
	s.dispatch.lastStore = max(s.dispatch.lastStore, w.last)
	s.commit.synced = seg
	s.check.mark(w.pos)
	if unclean || w.pos != w.from {
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

// syncWalked makes log bytes [from, to) durable. After a crash without a power
// cut they may be in the page cache only, and from here on they count as
// stored.
func (s *Spool) syncWalked(from, to int64) error {
	for _, seg := range s.seq.Segments() {
		if seg.End() <= from || seg.Base() > to {
			continue
		}
		err := seg.Reopen()
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
