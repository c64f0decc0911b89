package spool

import (
	"errors"
	"math"
	"path/filepath"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// planWalk loads the queues and decides from where on records have to be
// dispatched again.
func (s *Spool) planWalk(cp checkpoint, stop stopKind, fresh bool) (*walk, error) {
	w := &walk{s: s, mark: cp.mark, clean: stop == stoppedProperly, from: -1}
	if cp.slot != nil {
		w.mark = max(w.mark, cp.slot.dispatched)
		w.before, w.back = cp.slot.last, cp.slot.back
	}
	if err := w.findUsed(); err != nil {
		return nil, err
	}
	segs := s.seq.Segments()
	if err := w.findSealed(cp.slot, stop); err != nil {
		return nil, err
	}
	var err error
	if sl := cp.slot; fresh {
		w.from = -1
	} else if sl != nil && sl.dispatched <= segs[len(segs)-1].End() {
		w.from = max(sl.dispatched, segs[0].Base())
	} else if sl == nil && cp.logics > 0 {
		if w.from, err = s.apacheStart(cp); err != nil {
			return nil, err
		}
	}
	if w.from < 0 {
		err := s.rebuild(w)
		w.clean = fresh // then there is nothing behind the first byte
		return w, err
	}
	return w, s.loadOrRebuild(w, cp.slot)
}

// findUsed finds the last segment with records in it: its first bytes are not
// zero, or what was durable once reaches into it.
func (w *walk) findUsed() error {
	segs := w.s.seq.Segments()
	for i := len(segs) - 1; i > 0; i-- {
		zero, err := headZero(segs[i])
		if err != nil {
			return err
		}
		if !zero || w.mark > segs[i].Base() {
			w.used = i
			break
		}
	}
	return nil
}

// findSealed finds between which offsets records must carry a record CRC: what
// RocketMQ's broker wrote does without, before us and after us. Where we stopped
// properly, and where it was the last, there is nothing of ours behind the
// checkpoint.
func (w *walk) findSealed(sl *slot, stop stopKind) (err error) {
	w.sealed.to = math.MaxInt64
	if sl == nil {
		w.sealed.from, err = plainEnd(w.s.seq.Segments(), w.used)
		return err
	}
	w.sealed.from = sl.plain
	if stop != crashed {
		w.sealed.to = sl.dispatched
	}
	return nil
}

// loadOrRebuild loads the queues as they were at the checkpoint; if their files
// do not fit together or some are gone, all are rebuilt from the log.
func (s *Spool) loadOrRebuild(w *walk, sl *slot) error {
	err := s.loadQueues(w.from)
	if errors.Is(err, errQueueFiles) {
		s.log.Error("queues are rebuilt from the log", "err", err)
		return s.rebuild(w)
	}
	if err != nil || sl == nil {
		return err
	}
	want, got := sl.units, s.dispatch.units
	if got == want && sl.base == s.seq.Base() && sl.mins >= 0 {
		want, got = sl.mins, s.sumMins()
	}
	if got != want {
		s.log.Error("queues are rebuilt from the log: units are missing", "want", want, "got", got)
		return s.rebuild(w)
	}
	return nil
}

// apacheStart is RocketMQ's rule, for a store that its broker wrote: the
// newest segment whose first message is older than the checkpoint by 3 s.
func (s *Spool) apacheStart(cp checkpoint) (int64, error) {
	segs := s.seq.Segments()
	limit := min(cp.physic, cp.logics) - 3000
	for i := len(segs) - 1; i > 0; i-- {
		var ms int64
		if _, err := withFirst(segs[i], func(v *message.View) { ms = v.StoreTimestamp() }); err != nil {
			return 0, err
		}
		if ms > 0 && ms <= limit {
			return segs[i].Base(), nil
		}
	}
	return segs[0].Base(), nil
}

// plainEnd finds from where on records carry a record CRC in a log whose
// checkpoint does not say it: RocketMQ's broker wrote the segments before.
func plainEnd(segs []*segment.Segment, used int) (int64, error) {
	for i := used; i >= 0; i-- {
		plain := false
		_, err := withFirst(segs[i], func(v *message.View) { plain = !v.HasCRC() && !isHole(v) })
		if err != nil {
			return 0, err
		}
		if plain {
			return segs[i].End(), nil
		}
	}
	return 0, nil
}

// rebuild makes the walk dispatch the whole log into empty queues. Queues
// without messages in the log keep what they know: their next offset.
func (s *Spool) rebuild(w *walk) error {
	base := s.seq.Base()
	w.from, w.clean, w.exact = base, false, false
	s.dispatch.rebuilding = true
	return s.resetQueues(base)
}

// settleQueueEntries decides the size of queue files: a store that has some
// keeps it, else they could not be read.
func (s *Spool) settleQueueEntries(cp checkpoint) error {
	was := int64(0)
	if cp.slot != nil {
		was = cp.slot.entries
	} else {
		files, err := s.someQueueFile()
		if err != nil || files == "" {
			return err
		}
		fi, err := s.fs.Stat(files)
		if err != nil {
			return err
		}
		if fi.Size()%unitSize == 0 {
			was = fi.Size() / unitSize
		}
	}
	if was > 0 && was != s.files.entries {
		s.log.Warn("queue files keep the size they were made with", "entries", was, "configured", s.files.entries)
		s.files.entries = was
	}
	return nil
}

// someQueueFile returns the path of any queue file, or "".
func (s *Spool) someQueueFile() (string, error) {
	dir := s.files.dir
	for range 3 {
		entries, err := s.readDir(dir)
		if err != nil || len(entries) == 0 {
			return "", err
		}
		dir = filepath.Join(dir, entries[0].Name())
	}
	return dir, nil
}
