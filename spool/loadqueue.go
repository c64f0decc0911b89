package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"path/filepath"
	"sort"
	"strconv"

	"github.com/sluicemq/sluice/spool/segment"
)

// errQueueFiles: queue files do not fit together and must be made anew.
var errQueueFiles = errors.New("queue files do not fit together")

// loadQueues finds the queues on disk and sets their bounds to the units of
// records before the log offset limit. What is behind is cleared, so that it
// cannot pass for a unit once the log has grown beyond it.
func (s *Spool) loadQueues(limit int64) error {
	err := s.eachQueueDir(func(q *Queue, indexes []int64, err error) error {
		if err != nil {
			return err
		}
		return s.loadQueue(q, indexes, limit)
	})
	s.sumUnits()
	return err
}

// eachQueueDir calls f with every queue directory and the indexes of the files
// in it, ascending, or why their names make no sense.
func (s *Spool) eachQueueDir(f func(q *Queue, indexes []int64, err error) error) error {
	topics, err := s.readDir(s.files.dir)
	if err != nil {
		return err
	}
	for _, te := range topics {
		if !te.IsDir() {
			continue
		}
		queues, err := s.readDir(filepath.Join(s.files.dir, te.Name()))
		if err != nil {
			return err
		}
		for _, qe := range queues {
			id, err := strconv.ParseInt(qe.Name(), 10, 32)
			if err != nil || id < 0 || !qe.IsDir() {
				continue
			}
			q := s.Queue(te.Name(), int32(id))
			indexes, err := s.queueIndexes(q)
			if err = f(q, indexes, err); err != nil {
				return fmt.Errorf("load queue %d of %s: %w", id, te.Name(), err)
			}
		}
	}
	return nil
}

func (s *Spool) readDir(dir string) ([]fs.DirEntry, error) {
	entries, err := s.fs.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return entries, err
}

func (s *Spool) queueIndexes(q *Queue) ([]int64, error) {
	bases, err := segment.Bases(s.fs, s.files.queueDir(q))
	if err != nil {
		return nil, err
	}
	size := s.files.entries * unitSize
	indexes := bases
	for i, b := range bases {
		if b%size != 0 {
			return nil, fmt.Errorf("%w: %s does not begin a file of %d bytes", errQueueFiles, segment.FileName(b), size)
		}
		indexes[i] = b / size
	}
	return indexes, nil
}

func (s *Spool) loadQueue(q *Queue, indexes []int64, limit int64) error {
	if len(indexes) == 0 {
		return nil
	}
	for i, x := range indexes {
		if x != indexes[0]+int64(i) {
			return fmt.Errorf("%w: a file is missing before %d", errQueueFiles, x)
		}
		if err := s.fullSize(fileKey{q, x}); err != nil {
			return err
		}
	}
	first := indexes[0] * s.files.entries
	last := (indexes[len(indexes)-1] + 1) * s.files.entries
	end, err := s.searchUnits(q, first, last, func(_ int64, u unit) bool { return !u.valid() || u.phys >= limit })
	if err != nil {
		return err
	}
	if stale, err := s.staleQueue(q, first, end); err != nil {
		return err
	} else if stale {
		return s.removeQueueFiles(q)
	}
	q.max.Store(end)
	q.min.Store(end)
	if err := s.correctMin(q, first); err != nil {
		return err
	}
	if err := s.clearUnits(q, end, indexes[len(indexes)-1]); err != nil {
		return err
	}
	return s.removeBelowMin(q, indexes[0])
}

// fullSize extends a file that a power cut left shorter than the others.
func (s *Spool) fullSize(k fileKey) error {
	fi, err := s.fs.Stat(s.files.path(k))
	want := s.files.entries * unitSize
	if err != nil || fi.Size() == want {
		return err
	}
	if fi.Size() > want {
		return fmt.Errorf("%w: %s has %d bytes, want %d", errQueueFiles, s.files.path(k), fi.Size(), want)
	}
	qf, err := s.files.get(k, false)
	if err != nil {
		return err
	}
	defer s.files.put(qf)
	return qf.f.Truncate(want)
}

// staleQueue tells whether a queue's units are of a topic's former life: it
// was deleted after them, and a crash came before its files were.
func (s *Spool) staleQueue(q *Queue, first, end int64) (bool, error) {
	deletedAt := s.tombs.at[q.Topic()]
	if deletedAt == 0 || end == first {
		return false, nil
	}
	u, err := s.files.unitAt(q, end-1)
	return u.phys < deletedAt, err
}

// searchUnits returns the first offset in [from, to) whose unit f holds for,
// or to. f must hold for all units behind one it holds for.
func (s *Spool) searchUnits(q *Queue, from, to int64, f func(at int64, u unit) bool) (int64, error) {
	var failed error
	i := sort.Search(int(to-from), func(i int) bool {
		if failed != nil {
			return true
		}
		u, err := s.files.unitAt(q, from+int64(i))
		if err != nil {
			failed = err
			return true
		}
		return f(from+int64(i), u)
	})
	return from + int64(i), failed
}

// correctMin sets a queue's minimum to the first offset from on whose record
// the log still has.
func (s *Spool) correctMin(q *Queue, from int64) error {
	at, err := s.newMin(q, from)
	q.min.Store(at)
	return err
}

// newMin finds that offset.
func (s *Spool) newMin(q *Queue, from int64) (int64, error) {
	base := s.seq.Base()
	kept := func(_ int64, u unit) bool { return u.phys >= base && !(u.gap() && u.phys == 0) }
	end := q.max.Load()
	if from == end {
		return end, nil
	}
	// Mostly nothing changed, which one unit tells.
	u, err := s.files.unitAt(q, from)
	if err != nil || kept(from, u) {
		return from, err
	}
	return s.searchUnits(q, from, end, kept)
}

// clearUnits zeroes what is behind offset end and removes files behind its
// file.
func (s *Spool) clearUnits(q *Queue, end, lastIndex int64) error {
	index := end / s.files.entries
	for x := lastIndex; x > index; x-- {
		if err := s.files.remove(fileKey{q, x}); err != nil {
			return err
		}
	}
	if lastIndex < index { // the last file is full
		return nil
	}
	k := fileKey{q, index}
	qf, err := s.files.get(k, false)
	if err != nil {
		return err
	}
	defer s.files.put(qf)
	pos := (end - index*s.files.entries) * unitSize
	allocated, err := qf.f.Allocated()
	if err != nil {
		return err
	}
	// Blocks are behind the last unit's only when something was written there.
	if allocated <= (pos+4095)&^4095 && !s.tailWritten(qf, pos) {
		return nil
	}
	cleared, err := clearTail(qf.f, pos, s.files.entries*unitSize)
	if cleared {
		s.files.touch(k)
	}
	return err
}

// tailWritten looks at the rest of the block that pos is in.
func (s *Spool) tailWritten(qf *queueFile, pos int64) bool {
	var b [4096]byte
	n, _ := qf.f.ReadAt(b[:(4096-pos%4096)%4096], pos)
	for _, c := range b[:n] {
		if c != 0 {
			return true
		}
	}
	return false
}

// clearTail zeroes what is not zero in [from, to) of f.
func clearTail(f segment.File, from, to int64) (cleared bool, err error) {
	buf := make([]byte, 64<<10)
	zeros := make([]byte, len(buf))
	for from < to {
		n := min(int64(len(buf)), to-from)
		if _, err := f.ReadAt(buf[:n], from); err != nil {
			return cleared, err
		}
		if string(buf[:n]) != string(zeros[:n]) {
			cleared = true
			if _, err := f.WriteAt(zeros[:n], from); err != nil {
				return cleared, err
			}
		}
		from += n
	}
	return cleared, nil
}

// cutQueues drops the units of records from the log offset end on.
func (s *Spool) cutQueues(end int64) error {
	for _, q := range s.table.all() {
		from, to := q.min.Load(), q.max.Load()
		at, err := s.searchUnits(q, from, to, func(_ int64, u unit) bool { return u.phys >= end })
		if err == nil && at < to {
			q.max.Store(at)
			err = s.clearUnits(q, at, (to-1)/s.files.entries)
		}
		if err != nil {
			return fmt.Errorf("cut queue %d of %s: %w", q.id, q.Topic(), err)
		}
	}
	s.sumUnits()
	return nil
}

// resetQueues empties every queue of what the log, which begins at base, still
// has, and removes files that make no sense. A queue whose messages are all
// gone keeps its next offset.
func (s *Spool) resetQueues(base int64) error {
	err := s.eachQueueDir(func(q *Queue, indexes []int64, err error) error {
		s.files.drop(q, math.MaxInt64)
		q.min.Store(0)
		q.max.Store(0)
		if err == nil {
			err = s.loadQueue(q, indexes, base)
		}
		if errors.Is(err, errQueueFiles) {
			s.log.Error("queue files removed, to be made anew", "topic", q.Topic(), "queue", q.id, "err", err)
			err = s.removeQueueFiles(q)
		}
		return err
	})
	s.sumUnits()
	return err
}

func (s *Spool) sumUnits() {
	s.dispatch.units = 0
	for _, q := range s.table.all() {
		s.dispatch.units += q.max.Load()
	}
}

// sumMins is the sum of all queues' minimum offsets. Called with dispatcher.mu
// held or before anything runs.
func (s *Spool) sumMins() (sum int64) {
	for _, q := range s.table.all() {
		sum += q.min.Load()
	}
	return sum
}

func (s *Spool) removeQueueFiles(q *Queue) error {
	s.files.drop(q, math.MaxInt64)
	q.min.Store(0)
	q.max.Store(0)
	return s.fs.RemoveAll(s.files.queueDir(q))
}
