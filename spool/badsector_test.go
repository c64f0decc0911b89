package spool

import (
	"fmt"
	"path/filepath"
	"sync/atomic"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluicemq/sluice/spool/segment"
)

// badSector is a file system on which one page of one file cannot be read
// through a mapping, until it is written: a bad sector.
type badSector struct {
	segment.FS
	file string // base name
	page int64
	bad  atomic.Bool
}

type badFile struct {
	segment.File
	fs *badSector
}

func (b *badSector) Open(name string) (segment.File, error) {
	f, err := b.FS.Open(name)
	if err != nil || filepath.Base(name) != b.file || filepath.Base(filepath.Dir(name)) != "commitlog" {
		return f, err
	}
	return badFile{f, b}, nil
}

func (f badFile) Map(size int64) ([]byte, error) {
	data, err := f.File.Map(size)
	if err == nil && f.fs.bad.Load() {
		err = unix.Mprotect(data[f.fs.page:f.fs.page+4096], unix.PROT_NONE)
	}
	return data, err
}

func (f badFile) WriteAt(p []byte, off int64) (int, error) {
	if off < f.fs.page+4096 && off+int64(len(p)) > f.fs.page {
		f.fs.bad.Store(false) // the device gives the sector a new place
	}
	return f.File.WriteAt(p, off)
}

// F22: what the device cannot read costs the messages in it. The process stays
// up, readers pass the place, and a restart mends it.
func TestBadSector(t *testing.T) {
	for _, where := range []int64{0, 20 << 10, 40 << 10} {
		t.Run(fmt.Sprint(where), func(t *testing.T) {
			o := testOptions(t, t.TempDir())
			want := fillStore(t, o, 170, true)
			b := &badSector{FS: segment.OS(), file: segment.FileName(64 << 10), page: where}
			b.bad.Store(true)
			o.FS = b
			for round := range 2 {
				s := mustOpen(t, o)
				total := 0
				for id := range 2 {
					q, name := s.Queue("TopicTest", int32(id)), fmt.Sprintf("TopicTest/%d", id)
					if q.Max() != 85 {
						t.Errorf("opening %d: %s ends at %d", round, name, q.Max())
					}
					got := bodies(t, s, q)
					total += len(got)
					for i, j := 0, 0; i < len(got); i, j = i+1, j+1 {
						for j < len(want[name]) && want[name][j] != got[i] {
							j++
						}
						if j == len(want[name]) {
							t.Fatalf("opening %d: %s message %d is not one of those stored, in order", round, name, i)
						}
					}
				}
				if total < 162 || total >= 170 {
					t.Errorf("opening %d: %d messages of 170 are left", round, total)
				}
				if damaged := s.Stats().DamagedBytes; (damaged > 0) != (round == 0) {
					t.Errorf("opening %d: %d bytes damaged", round, damaged)
				}
				put(t, s, s.Queue("Other", 0), "next")
				if err := s.Close(); err != nil {
					t.Fatal(err)
				}
				o.FS = segment.OS()
			}
		})
	}
}

// A sector that goes bad while the spool runs is an error of the read.
func TestBadSectorWhileReading(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 120, true)
	b := &badSector{FS: segment.OS(), file: segment.FileName(0), page: 20 << 10}
	b.bad.Store(true)
	o.FS = b
	s := mustOpen(t, o) // the walk does not come to the first file
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	if got := bodies(t, s, q); len(got) < 56 || len(got) >= 60 {
		t.Errorf("%d messages of 60", len(got))
	}
	if s.Stats().Unreadable == 0 {
		t.Error("failed reads are not counted")
	}
	if r := put(t, s, q, "next"); r.QueueOffset != 60 {
		t.Errorf("next offset %d", r.QueueOffset)
	}
}
