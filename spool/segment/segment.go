package segment

import (
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
)

// ErrRetired tells that a segment left the log.
var ErrRetired = errors.New("segment retired")

// A Segment is one file of the log: bytes [Base, Base+Size) of it.
//
// One goroutine at a time writes; any number read. A reader pins the segment
// with Acquire, may then use Data, and lets go with Release. The mapping is
// made by the first Acquire and ends when nobody holds it: the sequence itself
// holds mapped segments within its budget.
type Segment struct {
	seq  *Sequence
	base int64
	name string // path, guarded by seq.mu; "" when removed

	// refs counts the holders of data. It rises from 0 only under seq.mu.
	refs    atomic.Int64
	data    []byte // set while refs > 0
	mapped  bool   // guarded by seq.mu: the sequence itself holds one ref
	retired bool   // guarded by seq.mu: left the log
	freed   bool   // guarded by seq.mu: retired, and nobody reads it any more

	// fileMu keeps Close of a sealed segment's file away from calls under way.
	fileMu sync.RWMutex
	file   File // nil when closed
	sealed bool // closed because it is full and synced

	syncMu sync.Mutex // one sync at a time
	failed error      // of a sync, for good

	fill filler
}

// FileName is the name of the log file that begins at offset: 20 digits, as
// RocketMQ names it.
func FileName(offset int64) string { return fmt.Sprintf("%020d", offset) }

// Base is the log offset of the segment's first byte.
func (s *Segment) Base() int64 { return s.base }

// End is the log offset after the segment's last byte.
func (s *Segment) End() int64 { return s.base + s.seq.size }

// Acquire pins the segment's mapping. It fails with ErrRetired when the
// segment left the log, or with the error of mapping it.
func (s *Segment) Acquire() error {
	for {
		n := s.refs.Load()
		if n == 0 {
			return s.seq.mapSegment(s)
		}
		if s.refs.CompareAndSwap(n, n+1) {
			return nil
		}
	}
}

// Release ends what one Acquire began.
func (s *Segment) Release() {
	if s.refs.Add(-1) == 0 {
		s.seq.unmapIdle(s)
	}
}

// Data is the whole segment. It must only be used between Acquire and Release.
func (s *Segment) Data() []byte { return s.data }

// WriteAt writes p at a log offset inside the segment. Only the log's one
// writer calls it.
func (s *Segment) WriteAt(p []byte, offset int64) (int, error) {
	s.fileMu.RLock()
	defer s.fileMu.RUnlock()
	if s.file == nil {
		return 0, fmt.Errorf("write to segment %s: sealed", FileName(s.base))
	}
	at := offset - s.base
	s.fill.reserve(at, at+int64(len(p)), s.seq.size)
	return s.file.WriteAt(p, at)
}

// Sync makes the segment's bytes durable. Once it, or the sync of a fill step,
// has failed in a segment that was written to, it always does.
func (s *Segment) Sync() error {
	s.fileMu.RLock()
	defer s.fileMu.RUnlock()
	if s.file == nil {
		if s.sealed {
			return nil // synced before it was closed
		}
		return ErrRetired
	}
	return s.sync()
}

// sync syncs the file. Of several syncs only one is told that bytes did not
// reach the disk, whoever wrote them; so once one failed in a file that is
// written to, all fail. Called with fileMu held and the file open.
func (s *Segment) sync() error {
	s.syncMu.Lock()
	defer s.syncMu.Unlock()
	if s.failed != nil {
		return s.failed
	}
	err := s.file.Sync()
	if err != nil && s.fill.claimed() {
		s.failed = err
	}
	return err
}

// Seal closes the file of a segment that is full and synced. Reads go on from
// the mapping.
func (s *Segment) Seal() error { return s.close(true) }

func (s *Segment) close(sealed bool) error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if s.file == nil {
		return nil
	}
	err := s.file.Close()
	s.file, s.sealed = nil, sealed
	return err
}

// Reopen opens the file of a sealed segment for writing again: repair needs it.
func (s *Segment) Reopen() error {
	s.fileMu.Lock()
	defer s.fileMu.Unlock()
	if s.file != nil {
		return nil
	}
	f, err := s.seq.fs.Open(s.name)
	if err != nil {
		return err
	}
	s.file = f
	return nil
}
