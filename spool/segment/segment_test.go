package segment_test

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime/debug"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/sluicemq/sluice/spool/segment"
	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

const size = 1 << 20

func load(t *testing.T, dir string, mapLimit int) *segment.Sequence {
	t.Helper()
	q, _, err := segment.Load(segment.Options{
		FS: segment.OS(), Dir: filepath.Join(dir, "log"), SpareDir: filepath.Join(dir, "spare"),
		Size: size, MapLimit: mapLimit,
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := q.Trim(q.Last().Base(), q.Last().Base(), true); err != nil {
		t.Fatal(err)
	}
	return q
}

// Blocks are filled ahead of a writer that is as fast as the filler, and never
// over what it wrote.
func TestFillNeverOverwrites(t *testing.T) {
	q := load(t, t.TempDir(), 0)
	defer q.Close()
	s := q.Last()
	var filling sync.WaitGroup
	stop := make(chan struct{})
	filling.Go(func() {
		for {
			select {
			case <-stop:
				return
			default:
			}
			if _, err := s.FillStep(size); err != nil {
				t.Error(err)
				return
			}
		}
	})
	b := make([]byte, 5000)
	for at := int64(0); at+int64(len(b)) <= size; at += int64(len(b)) {
		for i := range b {
			b[i] = byte(at/int64(len(b))) | 1
		}
		if _, err := s.WriteAt(b, at); err != nil {
			t.Fatal(err)
		}
	}
	close(stop)
	filling.Wait()
	if err := s.Acquire(); err != nil {
		t.Fatal(err)
	}
	defer s.Release()
	for i, c := range s.Data()[:size/5000*5000] {
		if want := byte(i/5000) | 1; c != want {
			t.Fatalf("byte %d is %d, want %d", i, c, want)
		}
	}
}

// Filled blocks are allocated, so that later writes need no space.
func TestFillAllocates(t *testing.T) {
	dir := t.TempDir()
	q := load(t, dir, 0)
	defer q.Close()
	for {
		did, err := q.Last().FillStep(size)
		if err != nil {
			t.Fatal(err)
		}
		if !did {
			break
		}
	}
	f, err := segment.OS().Open(filepath.Join(dir, "log", segment.FileName(0)))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if n, err := f.Allocated(); err != nil || n < size {
		t.Errorf("%d bytes allocated of %d: %v", n, size, err)
	}
}

// A retired file is used again only when nobody reads it any more, and then
// with its first bytes zeroed.
func TestRecycle(t *testing.T) {
	dir := t.TempDir()
	q := load(t, dir, 0)
	defer q.Close()
	first := q.Last()
	if _, err := first.WriteAt(bytes.Repeat([]byte("x"), size), 0); err != nil {
		t.Fatal(err)
	}
	if _, err := q.Advance(); err != nil {
		t.Fatal(err)
	}
	if err := first.Acquire(); err != nil {
		t.Fatal(err)
	}
	if err := q.RetireFirst(); err != nil {
		t.Fatal(err)
	}
	if q.Find(0) != nil || q.Base() != size {
		t.Error("a retired segment is still found")
	}
	if ready, err := q.Prepare(true); ready || err != nil {
		t.Fatalf("used again while somebody reads it: %v", err)
	}
	if string(first.Data()[:8]) != "xxxxxxxx" {
		t.Error("held bytes changed")
	}
	first.Release()
	if err := first.Acquire(); !errors.Is(err, segment.ErrRetired) {
		t.Errorf("acquire a retired segment: %v", err)
	}
	if ready, err := q.Prepare(true); !ready || err != nil {
		t.Fatalf("not used again: %v", err)
	}
	next, err := q.Advance()
	if err != nil || next.Base() != 2*size {
		t.Fatalf("next begins at %d: %v", next.Base(), err)
	}
	if err := next.Acquire(); err != nil {
		t.Fatal(err)
	}
	defer next.Release()
	if got := string(next.Data()[:9]); got != "\x00\x00\x00\x00\x00\x00\x00\x00x" {
		t.Errorf("a recycled file begins with %q", got)
	}
	if q.Files() != 2 {
		t.Errorf("%d files", q.Files())
	}
}

// With a small budget of mappings every segment is still readable.
func TestMapLimit(t *testing.T) {
	q := load(t, t.TempDir(), 2)
	defer q.Close()
	for i := range 6 {
		s := q.Last()
		if _, err := s.WriteAt([]byte{byte('a' + i)}, s.Base()); err != nil {
			t.Fatal(err)
		}
		if err := s.Sync(); err != nil {
			t.Fatal(err)
		}
		if i < 5 {
			if _, err := q.Advance(); err != nil {
				t.Fatal(err)
			}
			if err := s.Seal(); err != nil {
				t.Fatal(err)
			}
		}
	}
	var wg sync.WaitGroup
	for range 4 {
		wg.Go(func() {
			for i := range 300 {
				s := q.Segments()[i%6]
				if err := s.Acquire(); err != nil {
					t.Error(err)
					return
				}
				if got := s.Data()[0]; got != byte('a'+i%6) {
					t.Errorf("segment %d begins with %c", i%6, got)
				}
				s.Release()
			}
		})
	}
	wg.Wait()
}

// A fault in mapped memory is an error of the reader, not the end of the
// process.
func TestFaultIsError(t *testing.T) {
	f, err := segment.OS().Create(filepath.Join(t.TempDir(), "f"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := f.Truncate(8192); err != nil {
		t.Fatal(err)
	}
	data, err := f.Map(8192)
	if err != nil {
		t.Fatal(err)
	}
	defer segment.OS().Unmap(data)
	if err := f.Truncate(0); err != nil { // as a device that does not answer
		t.Fatal(err)
	}
	read := func(data []byte) (err error) {
		defer segment.PanicOnFault()()
		defer segment.CatchFault(&err)
		_ = bytes.Clone(data)
		return nil
	}
	if err := read(data); !errors.Is(err, segment.ErrFault) {
		t.Errorf("read: %v", err)
	}
	if debug.SetPanicOnFault(false) {
		t.Error("the goroutine was left panicking on faults")
	}
	defer func() {
		if r := recover(); fmt.Sprint(r) != "other" {
			t.Errorf("recovered %v", r)
		}
	}()
	func() (err error) {
		defer segment.CatchFault(&err)
		panic("other")
	}()
}

// F09: at every call of a replacement that a power cut or an error can end,
// the old or the new version is there afterwards.
func TestStateFileReplacement(t *testing.T) {
	parse := func(into *[]string) func([]byte) error {
		return func(b []byte) error { return json.Unmarshal(b, into) }
	}
	save := func(f *segment.StateFile, v ...string) error {
		b, err := json.Marshal(v)
		return errors.Join(err, f.Save(b))
	}
	for _, fail := range []bool{false, true} {
		for at := 0; ; at++ {
			root := t.TempDir()
			ffs, err := faultfs.New(root)
			if err != nil {
				t.Fatal(err)
			}
			f := segment.NewStateFile(ffs, filepath.Join(root, "s.json"))
			for _, v := range []string{"first", "old"} {
				if err := save(f, v, strings.Repeat("x", 2000)); err != nil {
					t.Fatal(err)
				}
			}
			n, reached := at, false
			crashed := filepath.Join(root, "..", "crashed")
			os.RemoveAll(crashed)
			ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
				if n--; n != -1 {
					return nil
				}
				reached = true
				if fail {
					return &faultfs.Fault{Err: syscall.ENOSPC, Written: 100}
				}
				if err := ffs.Crash(newRand(uint64(at)), crashed); err != nil {
					t.Error(err)
				}
				return nil
			})
			err = save(f, "new", strings.Repeat("y", 2000))
			ffs.SetHook(nil)
			if !reached {
				break
			}
			from := root
			if !fail {
				from = crashed
			} else if err == nil {
				t.Errorf("call %d failed and Save did not", at)
			}
			var got []string
			found, _, err := segment.NewStateFile(segment.OS(), filepath.Join(from, "s.json")).Load(parse(&got))
			if err != nil || !found || got[0] != "old" && got[0] != "new" {
				t.Errorf("fail=%v call %d: found %v %.10q: %v", fail, at, found, got, err)
			}
			if fail { // and the next one succeeds
				if err := save(f, "newer"); err != nil {
					t.Errorf("call %d, save again: %v", at, err)
				}
			}
		}
	}
}

// Nothing there, one of two bad, both bad.
func TestStateFileLoad(t *testing.T) {
	path := filepath.Join(t.TempDir(), "s.json")
	var v map[string]int
	load := func() (bool, error, error) {
		v = nil
		return segment.NewStateFile(segment.OS(), path).Load(func(b []byte) error { return json.Unmarshal(b, &v) })
	}
	if found, _, err := load(); found || err != nil {
		t.Errorf("nothing there: %v %v", found, err)
	}
	write := func(name, text string) {
		if err := os.WriteFile(name, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	write(path+".bak", `{"a":1}`)
	for _, bad := range []string{"", "\x00\x00", `{"a":`} {
		write(path, bad)
		if found, fallback, err := load(); !found || fallback == nil || err != nil || v["a"] != 1 {
			t.Errorf("main is %q: %v %v %v", bad, found, fallback, err)
		}
	}
	write(path+".bak", "bad")
	if _, _, err := load(); !errors.Is(err, segment.ErrStateLost) || !strings.Contains(err.Error(), path) {
		t.Errorf("both bad: %v", err)
	}
}

// The lock excludes a second opener, also within one process.
func TestLock(t *testing.T) {
	path := filepath.Join(t.TempDir(), "lock")
	l, err := segment.OS().Lock(path)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := segment.OS().Lock(path); !errors.Is(err, segment.ErrLocked) {
		t.Errorf("second lock: %v", err)
	}
	if err := l.Close(); err != nil {
		t.Fatal(err)
	}
	l, err = segment.OS().Lock(path)
	if err != nil {
		t.Fatalf("lock after release: %v", err)
	}
	l.Close()
}
