package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
)

// A Loaded says what Load found amiss and mended so that the log is whole
// files without a gap.
type Loaded struct {
	// Extended are bases of files that were shorter than they must be and got
	// zeros at the end; Missing are bases of files that were not there.
	Extended, Missing []int64
}

// Bases lists the log files in dir in ascending order; other names are left
// alone. A directory that does not exist has none.
func Bases(fsys FS, dir string) ([]int64, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var bases []int64
	for _, e := range entries {
		name := e.Name()
		base, err := strconv.ParseInt(name, 10, 64)
		if err == nil && len(name) == 20 && base >= 0 && !e.IsDir() {
			bases = append(bases, base)
		}
	}
	return bases, nil
}

// Load opens the sequence in o.Dir, all files of which are in the list
// afterwards: the caller finds the last one in use and calls Trim. An empty
// directory gets a first file at offset 0.
func Load(o Options) (*Sequence, Loaded, error) {
	q := &Sequence{
		fs: o.FS, dir: o.Dir, spareDir: o.SpareDir, size: o.Size, mapLimit: o.MapLimit,
		zeros: make([]byte, fillChunk),
	}
	if q.mapLimit <= 0 {
		q.mapLimit = defaultMapLimit(o.Size)
	}
	var report Loaded
	for _, dir := range []string{o.Dir, o.SpareDir} {
		if err := q.fs.MkdirAll(dir); err != nil {
			return nil, report, err
		}
	}
	bases, err := Bases(o.FS, o.Dir)
	if err != nil {
		return nil, report, err
	}
	list, err := q.loadFiles(bases, &report)
	if err != nil {
		return nil, report, fmt.Errorf("load %s: %w", o.Dir, err)
	}
	q.list.Store(&list)
	return q, report, q.loadSpare()
}

func (q *Sequence) loadFiles(bases []int64, report *Loaded) ([]*Segment, error) {
	if len(bases) == 0 {
		s, err := q.create(0)
		return []*Segment{s}, err
	}
	var list []*Segment
	for i, base := range bases {
		if i > 0 && (base-bases[0])%q.size != 0 {
			return nil, fmt.Errorf("file %s is no multiple of %d bytes after %s", FileName(base), q.size, FileName(bases[0]))
		}
		for i > 0 && list[len(list)-1].End() < base {
			gap, err := q.create(list[len(list)-1].End())
			if err != nil {
				return nil, err
			}
			if err := gap.Seal(); err != nil {
				return nil, err
			}
			report.Missing = append(report.Missing, gap.base)
			list = append(list, gap)
		}
		s := q.newSegment(base, nil)
		extended, err := s.restoreSize()
		if err != nil {
			return nil, err
		}
		if extended {
			report.Extended = append(report.Extended, base)
		}
		s.sealed = true
		s.fill.done.Store(true)
		list = append(list, s)
	}
	return list, nil
}

// restoreSize extends a file that is too short: mapped reads rely on whole
// files. One that is too long was not written with this segment size.
func (s *Segment) restoreSize() (extended bool, err error) {
	fi, err := s.seq.fs.Stat(s.name)
	if err != nil {
		return false, err
	}
	switch size := fi.Size(); {
	case size == s.seq.size:
		return false, nil
	case size > s.seq.size:
		return false, fmt.Errorf("%s has %d bytes, the segment size is %d", s.name, size, s.seq.size)
	}
	f, err := s.seq.fs.Open(s.name)
	if err != nil {
		return false, err
	}
	err = f.Truncate(s.seq.size)
	if err == nil {
		err = f.Sync()
	}
	return true, errors.Join(err, f.Close())
}

// loadSpare keeps one retired file and removes what else a crash left there.
func (q *Sequence) loadSpare() error {
	entries, err := q.fs.ReadDir(q.spareDir)
	if err != nil {
		return err
	}
	for _, e := range entries {
		path := filepath.Join(q.spareDir, e.Name())
		fi, err := q.fs.Stat(path)
		if err != nil {
			return err
		}
		if q.spare == "" && fi.Size() == q.size {
			q.spare = path
			continue
		}
		if err := q.fs.Remove(path); err != nil {
			return err
		}
	}
	return nil
}

// Trim makes the segment at base the last of the list, opens it for writing
// with the log ending at end, keeps the file after it as the one made ready if
// keepNext is set, and removes all others behind. Only recovery calls it,
// before anybody reads.
func (q *Sequence) Trim(base, end int64, keepNext bool) error {
	q.mu.Lock()
	defer q.mu.Unlock()
	list := q.Segments()
	n := 0
	for list[n].base != base {
		n++
	}
	rest := list[n+1:]
	for i := len(rest) - 1; i >= 0; i-- {
		if i == 0 && keepNext {
			q.next = rest[0]
			if err := rest[0].resume(0); err != nil {
				return err
			}
			continue
		}
		path := rest[i].name
		rest[i].name = "" // removed, so that nobody takes it for a file to use again
		q.dropLocked(rest[i])
		if err := q.fs.Remove(path); err != nil {
			return err
		}
	}
	list = list[: n+1 : n+1]
	q.list.Store(&list)
	if err := list[n].resume(end - base); err != nil {
		return err
	}
	return q.fs.SyncDir(q.dir)
}

// resume opens a segment for writing at the given position. One whose blocks
// were not all written before, as a crash leaves it, is filled from there on.
func (s *Segment) resume(at int64) error {
	if err := s.Reopen(); err != nil {
		return err
	}
	allocated, err := s.file.Allocated()
	if err != nil {
		return err
	}
	s.fill.reserved, s.fill.frontier = at, at
	s.fill.done.Store(allocated >= s.seq.size)
	return nil
}
