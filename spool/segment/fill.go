package segment

import (
	"errors"
	"sync"
	"sync/atomic"
)

// MaxFillStep is the most that FillStep or FillIdleStep allocates.
const MaxFillStep = fillIdleChunk

const (
	// fillChunk is what one fill step writes and syncs. A flush of the active
	// segment that meets a step waits for at most this much.
	fillChunk = 1 << 20
	// fillIdleChunk is the same for a segment that nobody writes to: fewer, larger
	// steps disturb the flushes of the one written to less.
	fillIdleChunk = 8 << 20
	// fillLead is the distance that a fill step keeps from the writer, so that
	// the writer seldom has to wait for a step.
	fillLead = 256 << 10
	pageSize = 4096
)

// A filler writes zeros ahead of the writer, so that appends go to blocks that
// were written before and a flush has no metadata to journal.
//
//	| records ......w| lead |zeros being written| not filled   |
//	0              reserved  from              to            size
//
// The invariant is that a step never covers a byte the writer has reserved:
// steps begin beyond reserved, and a writer that catches up with a step under
// way waits for it to end.
type filler struct {
	done atomic.Bool // nothing left to fill: the writer need not look

	mu       sync.Mutex
	ended    sync.Cond // a step ended; L is &mu
	reserved int64     // end of what the writer has claimed
	frontier int64     // bytes below it need no filling
	from, to int64     // the step under way, empty when equal
}

// reserve claims [from, to) for the writer.
func (f *filler) reserve(from, to, size int64) {
	if f.done.Load() {
		return
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	f.reserved = max(f.reserved, to)
	for f.from < to && f.to > from {
		f.ended.Wait()
	}
	if f.reserved >= size {
		f.done.Store(true)
	}
}

// claimed tells whether the writer has written anything.
func (f *filler) claimed() bool {
	if f.done.Load() {
		return true
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.reserved > 0
}

// begin chooses the next step; ok is false when none is due: the segment is
// filled up, or filled for window bytes beyond the writer.
func (f *filler) begin(size, window, chunk int64) (from, to int64, ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	from = f.frontier
	if f.reserved > 0 {
		from = max(from, (f.reserved+fillLead)&^(pageSize-1))
	}
	if from >= size {
		f.done.Store(true)
		return 0, 0, false
	}
	if from > f.reserved+window {
		return 0, 0, false
	}
	f.from, f.to = from, min(from+chunk, size)
	return f.from, f.to, true
}

// end ends the step; ok tells that its bytes were written.
func (f *filler) end(ok bool) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if ok {
		f.frontier = max(f.frontier, f.to)
	}
	f.from, f.to = 0, 0
	f.ended.Broadcast()
}

// A zeroFiller is a File that can make blocks of zeros durable past the page
// cache, which spares the copying. It reports errors.ErrUnsupported where the
// file system cannot. While it runs, other writes to the file may have to wait
// for the device.
type zeroFiller interface {
	FillZeros(offset, size int64) error
}

// FillStep fills the next part of the segment with zeros, at most window bytes
// ahead of the writer, and syncs it. It reports whether it did anything. One
// goroutine calls it.
func (s *Segment) FillStep(window int64) (bool, error) {
	s.fileMu.RLock()
	defer s.fileMu.RUnlock()
	return s.fillLocked(window, fillChunk, func(from, to int64) error {
		_, err := s.file.WriteAt(s.seq.zeros[:to-from], from)
		return err
	})
}

// FillIdleStep is FillStep for a segment that nobody writes to yet: it may be
// cheaper, but would hold up a writer.
func (s *Segment) FillIdleStep() (bool, error) {
	did, err := s.fillDirect()
	if errors.Is(err, errors.ErrUnsupported) {
		return s.FillStep(s.seq.size)
	}
	return did, err
}

func (s *Segment) fillDirect() (bool, error) {
	s.fileMu.RLock()
	defer s.fileMu.RUnlock()
	direct, ok := s.file.(zeroFiller)
	if s.file != nil && !ok {
		return false, errors.ErrUnsupported
	}
	return s.fillLocked(s.seq.size, fillIdleChunk, func(from, to int64) error {
		return direct.FillZeros(from, to-from)
	})
}

// fillLocked does one step of at most chunk bytes. A writer that has caught up
// waits for its write, not for its sync. Called with fileMu held.
func (s *Segment) fillLocked(window, chunk int64, write func(from, to int64) error) (bool, error) {
	if s.fill.done.Load() || s.file == nil {
		return false, nil
	}
	from, to, ok := s.fill.begin(s.seq.size, window, chunk)
	if !ok {
		return false, nil
	}
	err := write(from, to)
	s.fill.end(err == nil)
	if err == nil {
		err = s.sync()
	}
	return true, err
}
