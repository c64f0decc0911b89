package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sync"
	"sync/atomic"
)

// Options say where a Sequence lives.
type Options struct {
	FS FS
	// Dir holds the log files; SpareDir, on the same file system, holds at
	// most one retired file that waits to be used again.
	Dir, SpareDir string
	// Size is the length of every file, a multiple of 4096.
	Size int64
	// MapLimit is how many segments may stay mapped while nobody reads them;
	// 0 stands for as many as the address space allows.
	MapLimit int
}

// A Sequence is the ordered set of segments of one log. Readers use the list
// that Segments returns without a lock; everything that changes the set takes
// the sequence's lock.
//
// A file is always in one of these places, and a power cut between any two
// steps leaves it in one of them:
//
//	Dir/<base>        part of the log; or, beyond the last one with a record
//	                  in it, ready to become part of it
//	SpareDir/<base>   retired; its content means nothing
type Sequence struct {
	fs            FS
	dir, spareDir string
	size          int64
	mapLimit      int
	zeros         []byte

	list atomic.Pointer[[]*Segment] // ascending, no gaps; the last is written to

	mu     sync.Mutex
	next   *Segment // ready to follow the last of list, or nil
	spare  string   // path of a retired file that nobody reads any more, or ""
	pinned int      // retired files that somebody still reads
	mapped int      // segments that the sequence itself keeps mapped
	closed bool
}

// Segments returns the segments in order. The slice must not be changed.
func (q *Sequence) Segments() []*Segment { return *q.list.Load() }

// Size is the length of every segment in bytes.
func (q *Sequence) Size() int64 { return q.size }

// Last is the segment that is written to.
func (q *Sequence) Last() *Segment {
	l := q.Segments()
	return l[len(l)-1]
}

// Base is the log offset of the first byte that is kept.
func (q *Sequence) Base() int64 { return q.Segments()[0].base }

// Find returns the segment that holds the byte at offset, or nil.
func (q *Sequence) Find(offset int64) *Segment {
	l := q.Segments()
	if offset < l[0].base {
		return nil
	}
	i := (offset - l[0].base) / q.size
	if i >= int64(len(l)) {
		return nil
	}
	return l[i]
}

// Files is the number of files that take disk space: the log's, the one made
// ready, and retired ones.
func (q *Sequence) Files() int {
	q.mu.Lock()
	defer q.mu.Unlock()
	n := len(q.Segments()) + q.pinned
	if q.next != nil {
		n++
	}
	if q.spare != "" {
		n++
	}
	return n
}

// Ready reports whether Advance has a segment to go to.
func (q *Sequence) Ready() bool {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next != nil
}

// Next is the segment made ready, or nil.
func (q *Sequence) Next() *Segment {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.next
}

// Prepare makes the segment after the last one ready, if it is not, from the
// retired file when there is one. reuseOnly leaves it at that: no new file is
// made, and the result says whether one is ready.
func (q *Sequence) Prepare(reuseOnly bool) (bool, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	return q.prepareLocked(reuseOnly)
}

func (q *Sequence) prepareLocked(reuseOnly bool) (bool, error) {
	if q.next != nil {
		return true, nil
	}
	base := q.Last().End()
	var failed error
	if q.spare != "" {
		if q.next, failed = q.recycleLocked(base); failed == nil {
			return true, nil
		}
	}
	if reuseOnly {
		return false, nil
	}
	// A retired file that cannot be used again is no reason not to go on.
	s, err := q.create(base)
	if err != nil {
		return false, fmt.Errorf("prepare segment %s: %w", FileName(base), errors.Join(err, failed))
	}
	q.next = s
	return true, nil
}

// create makes a new sparse file: it reads as zeros, so from its first moment
// on it is a segment without records.
func (q *Sequence) create(base int64) (*Segment, error) {
	path := filepath.Join(q.dir, FileName(base))
	f, err := q.fs.Create(path)
	if errors.Is(err, fs.ErrExist) { // what is left of a try that failed
		if err = q.fs.Remove(path); err == nil {
			f, err = q.fs.Create(path)
		}
	}
	if err != nil {
		return nil, err
	}
	err = f.Truncate(q.size)
	if err == nil {
		err = f.Sync()
	}
	if err == nil {
		err = q.fs.SyncDir(q.dir)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close(), q.fs.Remove(path))
	}
	return q.newSegment(base, f), nil
}

func (q *Sequence) newSegment(base int64, f File) *Segment {
	s := &Segment{seq: q, base: base, name: filepath.Join(q.dir, FileName(base)), file: f}
	s.fill.ended.L = &s.fill.mu
	return s
}

// recycleLocked turns the retired file into the segment at base. Its first
// record is destroyed durably before the file gets its new name; what else is
// in it cannot be taken for a record of the new place, because every record
// states its own offset. A file with which any of that fails is given up.
func (q *Sequence) recycleLocked(base int64) (*Segment, error) {
	at := q.spare
	q.spare = ""
	f, err := q.fs.Open(at)
	if err != nil {
		return nil, errors.Join(err, q.fs.Remove(at))
	}
	var zero [8]byte
	_, err = f.WriteAt(zero[:], 0)
	if err == nil {
		err = f.Sync()
	}
	path := filepath.Join(q.dir, FileName(base))
	if err == nil {
		err = q.fs.Rename(at, path)
	}
	if err == nil {
		at = path
		// Until its name is durable nothing may be written to it.
		err = errors.Join(q.fs.SyncDir(q.dir), q.fs.SyncDir(q.spareDir))
	}
	if err != nil {
		return nil, fmt.Errorf("recycle %s: %w", at, errors.Join(err, f.Close(), q.fs.Remove(at)))
	}
	s := q.newSegment(base, f)
	s.fill.done.Store(true)
	return s, nil
}

// Advance appends the segment made ready to the list, making one ready first
// when there is none, and returns it.
func (q *Sequence) Advance() (*Segment, error) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil, ErrRetired
	}
	if _, err := q.prepareLocked(false); err != nil {
		return nil, err
	}
	old := q.Segments()
	list := append(old[:len(old):len(old)], q.next)
	q.list.Store(&list)
	s := q.next
	q.next = nil
	return s, nil
}

// RetireFirst takes the first segment out of the log. Its file waits to be
// used again once nobody reads it, or is removed when one waits already. The
// last segment cannot retire.
func (q *Sequence) RetireFirst() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.Segments()
	if len(list) < 2 {
		return errors.New("retire: the segment being written to stays")
	}
	s := list[0]
	if err := s.Seal(); err != nil {
		return fmt.Errorf("retire %s: %w", s.name, err)
	}
	keep := q.spare == "" && q.pinned == 0
	if keep {
		spare := filepath.Join(q.spareDir, FileName(s.base))
		if err := q.fs.Rename(s.name, spare); err != nil {
			return fmt.Errorf("retire %s: %w", s.name, err)
		}
		s.name = spare
	} else if err := q.fs.Remove(s.name); err != nil {
		return fmt.Errorf("retire %s: %w", s.name, err)
	} else {
		s.name = ""
	}
	rest := list[1:len(list):len(list)]
	q.list.Store(&rest)
	q.dropLocked(s)
	if keep {
		if err := q.fs.SyncDir(q.spareDir); err != nil {
			return err
		}
	}
	return q.fs.SyncDir(q.dir)
}

// DropSpare removes the retired file that waits to be used again, if any.
func (q *Sequence) DropSpare() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.spare == "" {
		return nil
	}
	err := q.fs.Remove(q.spare)
	if err == nil {
		q.spare = ""
	}
	return err
}

// dropLocked marks a segment retired and lets go of its mapping.
func (q *Sequence) dropLocked(s *Segment) {
	s.retired = true
	q.pinned++
	switch {
	case s.mapped:
		q.unkeepLocked(s)
	case s.refs.Load() == 0:
		q.idleLocked(s)
	}
}

// Close closes every file and lets go of all mappings. Readers that hold a
// segment may go on until they release it; no new one can be acquired.
func (q *Sequence) Close() error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if q.closed {
		return nil
	}
	q.closed = true
	list := q.Segments()
	if q.next != nil {
		list = append(list[:len(list):len(list)], q.next)
	}
	var errs []error
	for _, s := range list {
		errs = append(errs, s.close(false))
		if s.mapped {
			q.unkeepLocked(s)
		}
	}
	return errors.Join(errs...)
}
