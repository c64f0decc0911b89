package spool

import (
	"fmt"
	"math"
	"math/bits"
	"path/filepath"
	"slices"

	"github.com/sluicemq/sluice/spool/segment"
)

// loadLog opens the commit log's files. fresh tells that there were none.
func (s *Spool) loadLog(cp checkpoint) (fresh bool, err error) {
	dir := s.path("commitlog")
	bases, err := segment.Bases(s.fs, dir)
	if err != nil {
		return false, err
	}
	if bases, err = s.setStraysAside(cp, dir, bases); err != nil {
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
		if bits.UintSize == 32 { // several have to fit into the address space
			size = min(size, 64<<20)
		}
		// A limit should leave room for a few segments, else the log is
		// deleted, or full, in leaps.
		if limit := s.o.MaxBytes; limit > 0 && limit/4 < size {
			size = max(limit/4&^4095, minSegmentBytes)
			s.log.Info("segments made smaller to fit the limit", "segment_bytes", size, "max_bytes", limit)
		}
		s.o.SegmentBytes = size
		return nil
	}
	was, err := s.sizeOnDisk(dir, bases)
	if err != nil {
		return err
	}
	// The checkpoint knows better when files were cut short, unless it is of
	// another store.
	if sl := cp.slot; sl != nil && fits(sl.segmentBytes, was, bases) {
		was = sl.segmentBytes
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

// sizeOnDisk is the segment size that the log's files tell: their least
// distance, or the length of the only one.
func (s *Spool) sizeOnDisk(dir string, bases []int64) (int64, error) {
	if len(bases) == 1 {
		fi, err := s.fs.Stat(filepath.Join(dir, segment.FileName(bases[0])))
		if err != nil {
			return 0, err
		}
		return fi.Size(), nil
	}
	size := int64(math.MaxInt64)
	for i := range bases[1:] {
		size = min(size, bases[i+1]-bases[i])
	}
	return size, nil
}

// fits tells whether files of that size can stand where the log's files stand,
// the least distance or length of which is seen.
func fits(size, seen int64, bases []int64) bool {
	if len(bases) == 1 {
		return seen <= size
	}
	return seen%size == 0
}

// maxMissing is how many log files in a row may be missing before what is
// behind is taken for files of another log.
const maxMissing = 16

// setStraysAside moves log files that are far from the others to the
// quarantine, and returns the bases of those that stay: the ones around the
// checkpoint's offset, or else the most.
func (s *Spool) setStraysAside(cp checkpoint, dir string, bases []int64) ([]int64, error) {
	far := maxMissing * s.o.SegmentBytes
	if cp.slot != nil {
		far = maxMissing * cp.slot.segmentBytes
	}
	var groups [][]int64
	for i, b := range bases {
		if i == 0 || b-bases[i-1] > far {
			groups = append(groups, nil)
		}
		groups[len(groups)-1] = append(groups[len(groups)-1], b)
	}
	if len(groups) < 2 {
		return bases, nil
	}
	keep := slices.MaxFunc(groups, func(a, b []int64) int { return len(a) - len(b) })
	for _, g := range groups {
		if sl := cp.slot; sl != nil && g[0] <= sl.dispatched && sl.dispatched <= g[len(g)-1]+sl.segmentBytes {
			keep = g
		}
	}
	for _, g := range groups {
		if g[0] == keep[0] {
			continue
		}
		for _, b := range g {
			name := segment.FileName(b)
			s.log.Error("log file is far from the others, moved to quarantine", "file", name)
			if err := s.setAside("commitlog/" + name); err != nil {
				return nil, err
			}
		}
	}
	return keep, s.fs.SyncDir(dir)
}
