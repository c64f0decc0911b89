package spool

import "sync/atomic"

// counters count events since Open.
type counters struct {
	badRecords, gaps, unreadable, dispatchErrors atomic.Int64
	damaged, quarantined, lost, retired          atomic.Int64
}

// Stats describe a spool at one moment. Offsets are in bytes of the log,
// counts are since Open.
type Stats struct {
	MinOffset        int64 // first byte kept
	MaxOffset        int64 // end of what is appended
	DurableOffset    int64 // end of what survives a power cut
	DispatchedOffset int64 // end of what is in the queues
	DispatchBehind   int64 // readable bytes that are not in the queues yet

	Segments  int   // files of the log
	Bytes     int64 // disk space of the log's files, the ready one included
	MaxBytes  int64 // the limit, 0 for none
	DiskFree  int64 // bytes this process may still allocate, -1 unknown
	DiskTotal int64

	Queues  int
	Cursors int

	BadRecords     int64 // damaged records that were skipped
	Gaps           int64 // queue offsets that have no message
	Unreadable     int64 // failed reads of records
	DispatchErrors int64 // rounds of dispatch that had to be tried again
	DamagedBytes   int64 // log bytes found damaged at Open
	Quarantined    int64 // files in the quarantine made at Open
	LostByCursors  int64 // messages deleted before a cursor read them
	Retired        int64 // segments deleted

	Refusing error // why appends are refused, or nil
}

// Stats returns the spool's figures.
func (s *Spool) Stats() Stats {
	st := Stats{
		MinOffset:        s.seq.Base(),
		MaxOffset:        s.written.Load(),
		DurableOffset:    s.durable.Load(),
		DispatchedOffset: s.dispatch.pos.Load(),
		Segments:         len(s.seq.Segments()),
		Bytes:            int64(s.seq.Files()) * s.o.SegmentBytes,
		MaxBytes:         s.o.MaxBytes,
		DiskFree:         -1,
		BadRecords:       s.counters.badRecords.Load(),
		Gaps:             s.counters.gaps.Load(),
		Unreadable:       s.counters.unreadable.Load(),
		DispatchErrors:   s.counters.dispatchErrors.Load(),
		DamagedBytes:     s.counters.damaged.Load(),
		Quarantined:      s.counters.quarantined.Load(),
		LostByCursors:    s.counters.lost.Load(),
		Retired:          s.counters.retired.Load(),
		Refusing:         s.gate.err(),
	}
	st.DispatchBehind = max(0, s.readable()-st.DispatchedOffset)
	if free, total, err := s.fs.Space(s.o.Dir); err == nil {
		st.DiskFree, st.DiskTotal = free, total
	}
	for range s.Queues() {
		st.Queues++
	}
	s.cursors.mu.Lock()
	st.Cursors = len(s.cursors.all)
	s.cursors.mu.Unlock()
	return st
}

// Writable returns nil while messages are taken, else why not: an error that
// wraps ErrFull, ErrBroken or ErrClosed.
func (s *Spool) Writable() error { return s.gate.err() }
