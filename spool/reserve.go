package spool

import (
	"errors"
	"fmt"
	"io/fs"
	"syscall"

	"github.com/sluicemq/sluice/spool/segment"
)

const (
	// reservePart and reserveMin: appends are refused while less than this is
	// free on the disk, so that cursors, checkpoint and queues can be written.
	reservePart = 100 // 1 %
	reserveMin  = 16 << 20
	// ballastBytes is the size of a file that is there to be given up: appends
	// can use up the reserve between two looks at the disk.
	ballastBytes = 2 << 20
)

// noSpace tells whether a write failed because the disk or a quota is full.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}

// diskSpace is what is free, and what must stay so.
func (s *Spool) diskSpace() (free, reserve int64, err error) {
	free, total, err := s.fs.Space(s.o.Dir)
	return free, min(max(total/reservePart, reserveMin), total/10), err
}

// roomToFill tells whether blocks may be written ahead: never into the reserve.
func (s *Spool) roomToFill() bool {
	free, reserve, err := s.diskSpace()
	return err == nil && free >= reserve+segment.MaxFillStep
}

// probeDisk refuses messages while the disk is nearly full. The oldest segments
// are deleted then, one a round, as far as cursors let them go.
func (s *Spool) probeDisk() {
	free, reserve, err := s.diskSpace()
	if err != nil {
		s.log.Error("ask for free space", "err", err)
		return
	}
	if free >= reserve {
		s.refuse(refuseDisk, nil)
		if free >= reserve+2*ballastBytes {
			s.loadBallast()
		}
		return
	}
	s.refuse(refuseDisk, fmt.Errorf("%w: %d bytes free on the disk of %s, %d are kept in reserve",
		ErrFull, free, s.o.Dir, reserve))
	s.retireMu.Lock()
	defer s.retireMu.Unlock()
	if s.seq.DropSpare() == nil && s.retireOldest() == nil {
		_ = s.seq.DropSpare() // else the next round does it
	}
}

// loadBallast writes the file that dropBallast gives up, if it is not there.
func (s *Spool) loadBallast() {
	if s.ballast.Load() {
		return
	}
	path := s.path("ballast")
	if fi, err := s.fs.Stat(path); err == nil && fi.Size() == ballastBytes {
		s.ballast.Store(true)
		return
	}
	if err := s.fs.Remove(path); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return
	}
	f, err := s.fs.Create(path)
	if err != nil {
		return // it is wanted, not needed
	}
	zeros := make([]byte, ballastBytes/8)
	for at := int64(0); at < ballastBytes && err == nil; at += int64(len(zeros)) {
		_, err = f.WriteAt(zeros, at)
	}
	if err = errors.Join(err, f.Close()); err != nil {
		_ = s.fs.Remove(path)
		return
	}
	s.ballast.Store(true)
}

// dropBallast makes room for what must be written so that a full disk can be
// emptied: positions of cursors, units of queues.
func (s *Spool) dropBallast() {
	s.ballast.Store(false)
	if err := s.fs.Remove(s.path("ballast")); err == nil {
		s.log.Warn("the disk is full; the room that was kept for this is given up", "bytes", int64(ballastBytes), "directory", s.o.Dir)
	}
	s.nudgeRetain()
}

// unloadForRecovery gives the ballast up before a recovery on a disk without
// room: recovery may have to write queues.
func (s *Spool) unloadForRecovery() {
	if free, _, err := s.fs.Space(s.o.Dir); err == nil && free < ballastBytes {
		s.dropBallast()
	}
}
