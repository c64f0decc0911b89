package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// faultStore opens a spool that does not run, on a faulty file system.
func faultStore(t *testing.T, change func(*Options)) (*Spool, *faultfs.FS, Options) {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "s")
	os.Mkdir(dir, 0o755)
	ffs, err := faultfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(t, dir)
	o.FS = ffs
	if change != nil {
		change(&o)
	}
	return mustOpen(t, o), ffs, o
}

// cutPower returns options to open what a power cut now would leave.
func cutPower(t *testing.T, ffs *faultfs.FS, o Options, seed uint64) Options {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "c")
	if err := ffs.Crash(newRand(seed), dst); err != nil {
		t.Fatal(err)
	}
	o.Dir, o.FS = dst, nil
	return o
}

// tryPut is put for a spool that may fail.
func tryPut(t *testing.T, s *Spool, q *Queue, body string) (Result, error) {
	t.Helper()
	var b Batch
	if _, err := b.Add(q, msg(body)); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&b); err != nil {
		return Result{}, err
	}
	return b.Result(0), s.WaitDurable(t.Context(), b.End())
}

// drain dispatches everything.
func drain(t *testing.T, s *Spool) {
	t.Helper()
	for {
		err := s.dispatchRound()
		if errors.Is(err, errCaughtUp) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
	}
}

// The sync of a fill step may be the one that learns of lost writes: what the
// flush should have seen must not be lost with it.
func TestFillStepTakesSyncError(t *testing.T) {
	s, ffs, o := faultStore(t, func(o *Options) { o.SegmentBytes = 4 << 20 })
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "first")
	var b Batch
	b.Add(q, msg("second"))
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	var once atomic.Bool
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Sync && inLog(op.Name) && once.CompareAndSwap(false, true) {
			return &faultfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	_, ferr := s.fillStep() // what runPrepare does beside appends
	ffs.SetHook(nil)
	err := s.WaitDurable(t.Context(), b.End())
	if err != nil {
		return // right: not acknowledged
	}
	lost := 0
	for seed := range uint64(6) {
		s2 := mustOpen(t, cutPower(t, ffs, o, seed))
		if got := bodies(t, s2, s2.Queue("TopicTest", 0)); len(got) < 2 {
			lost++
		}
		s2.Close()
	}
	t.Errorf("fill step: %v; WaitDurable: %v; acknowledged message lost in %d of 6 power cuts", ferr, err, lost)
}

// A used file whose new name could not be made durable gets no messages.
func TestUsedFileNeedsDurableName(t *testing.T) {
	s, ffs, o := faultStore(t, func(o *Options) { o.SegmentBytes = 16 << 10; o.MaxBytes = 64 << 10 })
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	for s.counters.retired.Load() == 0 || s.seq.Next() != nil || s.seq.Files() == len(s.seq.Segments()) {
		if _, err := tryPut(t, s, q, strings.Repeat("x", 3000)); err != nil {
			t.Fatal(err)
		}
		drain(t, s)
		if s.seq.Files() == 4 && s.counters.retired.Load() == 0 && s.seq.Next() == nil {
			s.retireMu.Lock()
			if err := s.retireOldest(); err != nil {
				t.Fatal(err)
			}
			s.retireMu.Unlock()
		}
		if s.Stats().MaxOffset > 1<<20 {
			t.Fatal("no state with a spare")
		}
	}
	if err := s.saveCheckpoint(); err != nil {
		t.Fatal(err)
	}
	var n int
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.SyncDir && filepath.Base(op.Name) == "commitlog" && n == 0 {
			n++
			return &faultfs.Fault{Err: syscall.EMFILE}
		}
		return nil
	})
	var last Result
	for i := 0; i < 12; i++ {
		r, err := tryPut(t, s, q, fmt.Sprintf("%d %s", i, strings.Repeat("y", 3000)))
		if err != nil {
			t.Logf("append %d: %v", i, err)
			continue
		}
		last = r
		if n == 1 && s.w.seg.Base() > 0 && r.PhysicalOffset-s.w.seg.Base() < 6000 {
			break
		}
	}
	if n == 0 {
		t.Fatal("no fault")
	}
	lost := 0
	for seed := range uint64(8) {
		s2, err := Open(cutPower(t, ffs, o, seed))
		if err != nil {
			t.Log(err)
			lost++
			continue
		}
		if m := s2.Queue("TopicTest", 0).Max(); m <= last.QueueOffset {
			t.Logf("seed %d: queue ends at %d, acknowledged %d", seed, m, last.QueueOffset)
			lost++
		}
		s2.Close()
	}
	if lost > 0 {
		t.Errorf("acknowledged message lost in %d of 8", lost)
	}
}

// After the sync of a queue file failed, the next one says nothing about what
// the first should have written.
func TestFailedQueueSyncIsNotBelieved(t *testing.T) {
	s, ffs, o := faultStore(t, nil)
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	for i := range 26 {
		put(t, s, q, fmt.Sprint(i))
	}
	drain(t, s)
	var once atomic.Bool
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Sync && strings.Contains(op.Name, "consumequeue") && once.CompareAndSwap(false, true) {
			return &faultfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	err1 := s.saveCheckpoint()
	for i := range 65 {
		put(t, s, q, fmt.Sprint("more", i))
	}
	drain(t, s)
	err2 := s.saveCheckpoint()
	ffs.SetHook(nil)
	for seed := range uint64(6) {
		s2 := mustOpen(t, cutPower(t, ffs, o, seed))
		q2 := s2.Queue("TopicTest", 0)
		if got := bodies(t, s2, q2); len(got) != 91 {
			t.Errorf("seed %d (saves: %v, %v): %d of 91 messages readable, queue [%d,%d)", seed, err1, err2, len(got), q2.Min(), q2.Max())
		}
		s2.Close()
	}
}

// A retired file that cannot be used again does not keep the log from growing.
func TestBadSpareIsGivenUp(t *testing.T) {
	s, ffs, _ := faultStore(t, func(o *Options) { o.SegmentBytes = 16 << 10 })
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	for range 20 {
		put(t, s, q, strings.Repeat("x", 3000))
	}
	drain(t, s)
	s.retireMu.Lock()
	err := s.retireOldest()
	s.retireMu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Write && filepath.Base(filepath.Dir(op.Name)) == "spare" {
			return &faultfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	failed := 0
	for range 20 {
		if _, err := tryPut(t, s, q, strings.Repeat("x", 3000)); err != nil {
			failed++
		}
	}
	if failed > 2 {
		t.Errorf("%d of 20 appends failed, a new file could have been made", failed)
	}
}

// After a failed flush and a restart of the process alone, what the page cache
// shows and the disk lacks is brought to disk before anybody reads it.
func TestRestartAfterFailedFlush(t *testing.T) {
	s, ffs, o := faultStore(t, nil)
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "first")
	var once atomic.Bool
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Sync && inLog(op.Name) && once.CompareAndSwap(false, true) {
			return &faultfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	if _, err := tryPut(t, s, q, "second"); err == nil {
		t.Fatal("no error")
	}
	ffs.SetHook(nil)
	s.Close()
	s = mustOpen(t, o) // the process restarts, the machine does not
	defer s.Close()
	q = s.Queue("TopicTest", 0)
	seen := bodies(t, s, q)
	put(t, s, q, "third")
	for seed := range uint64(6) {
		s2 := mustOpen(t, cutPower(t, ffs, o, seed))
		got := bodies(t, s2, s2.Queue("TopicTest", 0))
		if len(got) < len(seen)+1 {
			t.Errorf("seed %d: read %q before the power cut (plus third), %q after", seed, seen, got)
		}
		s2.Close()
	}
}
