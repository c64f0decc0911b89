package spool

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicemq/sluice/spool/segment"
)

const (
	// prepareAt is the part of the segment written to, in percent, from which
	// the next one is made ready: a store that is hardly used stays one file.
	prepareAt = 50
	// fillWindow is how far ahead of appends blocks are written.
	fillWindow = 256 << 20
	// fillPause follows a fill step that failed.
	fillPause = time.Second
)

// ensureNext makes sure that there is a segment to go on to. When the limit
// allows no further file, the oldest segment makes room; when that may not go,
// the error is ErrFull and says who holds it. reserve allows one file more.
func (s *Spool) ensureNext(reserve bool) error {
	if s.seq.Ready() {
		return nil
	}
	s.retireMu.Lock()
	defer s.retireMu.Unlock()
	if ready, err := s.reuse(); ready || err != nil {
		return err
	}
	further := 1
	if reserve {
		further = 0
	}
	for s.overLimit(further) {
		if err := s.retireOldest(); err != nil {
			s.refuse(refuseLimit, err)
			return err
		}
		if ready, err := s.reuse(); ready || err != nil {
			return err
		}
	}
	if _, err := s.seq.Prepare(false); err != nil {
		return s.writeError(err)
	}
	return nil
}

// reuse makes the retired file ready, if there is one. The file that the reserve
// added goes instead, so that the reserve is there again.
func (s *Spool) reuse() (ready bool, err error) {
	if s.overLimit(0) {
		return false, s.seq.DropSpare()
	}
	return s.seq.Prepare(true)
}

// overLimit tells whether more further files would exceed MaxBytes.
func (s *Spool) overLimit(more int) bool {
	return s.o.MaxBytes > 0 && int64(s.seq.Files()+more)*s.o.SegmentBytes > s.o.MaxBytes
}

// refuse sets or takes away a reason to refuse messages, one log line each.
func (s *Spool) refuse(kind int, err error) {
	before := s.gate.set(kind, err)
	switch {
	case before == nil && err != nil:
		s.log.Warn("no more messages are taken", "err", err)
	case before != nil && err == nil:
		s.log.Info("messages are taken again", "was", before)
	}
}

// wantsNext tells whether it is time to make the next segment ready.
func (s *Spool) wantsNext() bool {
	used := s.written.Load() - s.seq.Last().Base()
	return used*100 >= s.o.SegmentBytes*prepareAt
}

func (s *Spool) nudgePrepare() { nudge(s.prepareWake) }

// runPrepare makes the next segment ready and fills blocks ahead of appends.
func (s *Spool) runPrepare(ctx context.Context) error {
	t := time.NewTicker(100 * time.Millisecond)
	defer t.Stop()
	failing := false
	for {
		if s.wantsNext() && !s.seq.Ready() && s.gate.err() == nil {
			if err := s.ensureNext(false); err != nil && !errors.Is(err, ErrFull) {
				s.log.Error("prepare segment", "err", err)
			}
		}
		did, err := s.fillStep()
		if err != nil {
			if !failing { // a full disk is told once
				s.log.Warn("write blocks ahead", "err", err)
			}
			if !pause(ctx, fillPause) {
				return nil
			}
		}
		failing = err != nil
		if did {
			if ctx.Err() != nil {
				return nil
			}
			continue
		}
		select {
		case <-t.C:
		case <-s.prepareWake:
		case <-ctx.Done():
			return nil
		}
	}
}

// fillStep fills a step of the segment written to, or of the next one. Blocks
// that were written before make a flush cheap. Under FlushAsync nobody waits for
// one, and writing everything twice would only cost: half the throughput where
// the filler has to keep up with a fast writer, and twice the wear of flash.
func (s *Spool) fillStep() (bool, error) {
	if s.o.Flush == FlushAsync || !s.roomToFill() {
		return false, nil
	}
	last := s.seq.Last()
	did, err := last.FillStep(fillWindow)
	if did || err != nil {
		return did, stepError(last, err)
	}
	next := s.seq.Next()
	if next == nil {
		return false, nil
	}
	did, err = next.FillIdleStep()
	return did, stepError(next, err)
}

func stepError(seg *segment.Segment, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("segment %s: %w", segment.FileName(seg.Base()), err)
}

// pause waits; false when ctx ended.
func pause(ctx context.Context, d time.Duration) bool {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
		return true
	case <-ctx.Done():
		return false
	}
}
