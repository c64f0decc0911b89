package segment

import (
	"fmt"
	"math/bits"
)

// defaultMapBytes bounds the address space that idle mappings take on a
// 32-bit machine. On 64 bits only the number of mappings matters.
const (
	defaultMapBytes = 512 << 20
	defaultMaps     = 16384
)

func defaultMapLimit(size int64) int {
	if bits.UintSize == 64 {
		return defaultMaps
	}
	return int(max(1, defaultMapBytes/size))
}

// mapSegment is Acquire's slow path: nobody holds the mapping.
func (q *Sequence) mapSegment(s *Segment) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.retired || q.closed {
		return ErrRetired
	}
	if s.refs.Load() > 0 { // another Acquire was faster
		s.refs.Add(1)
		return nil
	}
	if q.mapped >= q.mapLimit {
		q.evictLocked(s)
	}
	if s.data == nil {
		data, err := q.mapFileLocked(s)
		if err != nil {
			return err
		}
		s.data = data
	}
	s.mapped = true
	q.mapped++
	s.refs.Store(2) // the sequence's and the caller's
	return nil
}

func (q *Sequence) mapFileLocked(s *Segment) ([]byte, error) {
	s.fileMu.RLock()
	f := s.file
	defer s.fileMu.RUnlock()
	if f == nil {
		var err error
		if f, err = q.fs.Open(s.name); err != nil {
			return nil, fmt.Errorf("map: %w", err)
		}
		defer f.Close()
	}
	return f.Map(q.size)
}

// evictLocked lets go of one mapping that nobody reads, other than s and the
// one written to: the oldest, because readers move on to newer ones.
func (q *Sequence) evictLocked(s *Segment) {
	list := q.Segments()
	for _, c := range list[:len(list)-1] {
		if c != s && c.mapped && c.refs.Load() == 1 {
			q.unkeepLocked(c)
			return
		}
	}
}

// unkeepLocked gives up the sequence's own hold on a mapping.
func (q *Sequence) unkeepLocked(s *Segment) {
	s.mapped = false
	q.mapped--
	if s.refs.Add(-1) == 0 {
		q.idleLocked(s)
	}
}

// unmapIdle follows the release of the last hold.
func (q *Sequence) unmapIdle(s *Segment) {
	q.mu.Lock()
	defer q.mu.Unlock()
	if s.refs.Load() == 0 {
		q.idleLocked(s)
	}
}

// idleLocked ends the mapping of a segment that nobody holds. A retired one's
// file is now free to be written again.
func (q *Sequence) idleLocked(s *Segment) {
	if s.data != nil {
		// Nothing is left to do for an address range that cannot be unmapped.
		_ = q.fs.Unmap(s.data)
		s.data = nil
	}
	if !s.retired || s.freed {
		return
	}
	s.freed = true
	q.pinned--
	if s.name != "" && q.spare == "" && !q.closed {
		q.spare = s.name
	}
}
