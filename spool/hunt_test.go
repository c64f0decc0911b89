package spool

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

func huntFS(t *testing.T, change func(*Options)) (*Spool, *faultfs.FS, Options) {
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

// huntCrash returns options of what the power cut leaves, losing all unsynced.
func huntCrash(t *testing.T, ffs *faultfs.FS, o Options, seed uint64) Options {
	t.Helper()
	dst := filepath.Join(t.TempDir(), "c")
	if err := ffs.Crash(newRand(seed), dst); err != nil {
		t.Fatal(err)
	}
	o.Dir, o.FS = dst, nil
	return o
}

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

// T1: the sync of a fill step takes the error that the flush should have seen.
func TestHuntFillStepSwallowsSyncError(t *testing.T) {
	s, ffs, o := huntFS(t, func(o *Options) { o.SegmentBytes = 4 << 20 })
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
		s2 := mustOpen(t, huntCrash(t, ffs, o, seed))
		if got := bodies(t, s2, s2.Queue("TopicTest", 0)); len(got) < 2 {
			lost++
		}
		s2.Close()
	}
	t.Errorf("fill step: %v; WaitDurable: %v; acknowledged message lost in %d of 6 power cuts", ferr, err, lost)
}

// T2: the directory sync of a recycled segment fails once (EMFILE); the next
// append goes to it nevertheless.
func TestHuntRecycledNameNotDurable(t *testing.T) {
	s, ffs, o := huntFS(t, func(o *Options) { o.SegmentBytes = 16 << 10; o.MaxBytes = 64 << 10 })
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
		s2, err := Open(huntCrash(t, ffs, o, seed))
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

// T3: a queue file's failed sync is tried again and then believed.
func TestHuntQueueSyncFailureBelieved(t *testing.T) {
	s, ffs, o := huntFS(t, nil)
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
		s2 := mustOpen(t, huntCrash(t, ffs, o, seed))
		q2 := s2.Queue("TopicTest", 0)
		if got := bodies(t, s2, q2); len(got) != 91 {
			t.Errorf("seed %d (saves: %v, %v): %d of 91 messages readable, queue [%d,%d)", seed, err1, err2, len(got), q2.Min(), q2.Max())
		}
		s2.Close()
	}
}

// T4: a mapping that fails for the moment makes a reader pass messages.
func TestHuntReadSkipsOnMapFailure(t *testing.T) {
	s, ffs, o := huntFS(t, func(o *Options) { o.SegmentBytes = 16 << 10 })
	q := s.Queue("TopicTest", 0)
	for i := range 40 {
		put(t, s, q, fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000)))
	}
	drain(t, s)
	if err := s.saveCheckpoint(); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = mustOpen(t, o)
	defer s.Close()
	q = s.Queue("TopicTest", 0)
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Map {
			return &faultfs.Fault{Err: syscall.ENOMEM}
		}
		return nil
	})
	var recs Records
	r := s.Read(q, 0, Limit{Messages: 5}, nil, &recs)
	n := recs.Len()
	recs.Release()
	ffs.SetHook(nil)
	t.Logf("%+v, %d records", r, n)
	if r.Next > int64(n) {
		t.Errorf("status %v, no messages, next %d of [%d,%d): the reader passes messages that are there", r.Status, r.Next, r.Min, r.Max)
	}
}

// plainStore writes a store as RocketMQ's broker would, records without CRC.
func plainStore(t *testing.T, dir string, n int, seg int) {
	t.Helper()
	os.MkdirAll(filepath.Join(dir, "commitlog"), 0o755)
	buf := make([]byte, seg)
	base, pos := 0, 0
	flush := func() {
		if err := os.WriteFile(filepath.Join(dir, "commitlog", segment.FileName(int64(base))), buf, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		m := msg(fmt.Sprintf("apache %d %s", i, strings.Repeat("x", 500)))
		m.Topic, m.QueueOffset, m.PhysicalOffset, m.StoreTimestamp = "TopicTest", int64(i), int64(base+pos), 1000
		m.StoreHost = m.BornHost
		rec, err := message.AppendRecord(nil, m, false)
		if err != nil {
			t.Fatal(err)
		}
		if pos+len(rec)+8 > seg {
			b := message.BlankRecord(nil, int32(seg-pos))
			copy(buf[pos:], b)
			flush()
			base, pos, buf = base+seg, 0, make([]byte, seg)
			m.PhysicalOffset = int64(base)
			rec, _ = message.AppendRecord(nil, m, false)
		}
		copy(buf[pos:], rec)
		pos += len(rec)
	}
	flush()
	cp := make([]byte, 4096)
	binary.BigEndian.PutUint64(cp, 1000)
	binary.BigEndian.PutUint64(cp[8:], 1000)
	os.WriteFile(filepath.Join(dir, "checkpoint"), cp, 0o644)
}

// T5: one mapping that fails while recovery looks for the first record.
func TestHuntMapFailureInRecoveryCutsLog(t *testing.T) {
	for at := range 12 {
		dir := filepath.Join(t.TempDir(), "s")
		os.Mkdir(dir, 0o755)
		o := testOptions(t, dir)
		plainStore(t, dir, 60, int(o.SegmentBytes))
		ffs, err := faultfs.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		o.FS = ffs
		n := 0
		ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
			if op.Kind == faultfs.Map {
				if n++; n-1 == at {
					return &faultfs.Fault{Err: syscall.ENOMEM}
				}
			}
			return nil
		})
		s, err := Open(o)
		if err == nil {
			s.Close()
		}
		ffs.SetHook(nil)
		s = mustOpen(t, o)
		if got := s.Queue("TopicTest", 0).Max(); got != 60 {
			t.Errorf("map %d failed once (first open: %v): %d of 60 messages are left", at, err, got)
		}
		s.Close()
	}
}

// T6: segments whose units are dispatched but not yet durable retire; a power
// cut then takes a queue's next offset back.
func TestHuntRetireBeyondCheckpointReusesOffsets(t *testing.T) {
	s, ffs, o := huntFS(t, func(o *Options) { o.SegmentBytes = 16 << 10; o.MaxBytes = 64 << 10 })
	defer s.Close()
	a, b := s.Queue("A", 0), s.Queue("B", 0)
	for range 5 {
		put(t, s, a, strings.Repeat("a", 1000))
	}
	drain(t, s)
	if err := s.saveCheckpoint(); err != nil {
		t.Fatal(err)
	}
	for range 5 {
		put(t, s, a, strings.Repeat("a", 1000))
	}
	for s.seq.Base() < 32<<10 {
		if _, err := tryPut(t, s, b, strings.Repeat("b", 3000)); err != nil {
			t.Fatal(err)
		}
		drain(t, s)
		if s.Stats().MaxOffset > 1<<20 {
			t.Fatalf("nothing retires: %+v", s.Stats())
		}
	}
	for seed := range uint64(6) {
		s2, err := Open(huntCrash(t, ffs, o, seed))
		if err != nil {
			t.Fatal(err)
		}
		if r := put(t, s2, s2.Queue("A", 0), "new"); r.QueueOffset < 10 {
			t.Errorf("seed %d: offset %d given again, 10 were acknowledged", seed, r.QueueOffset)
		}
		s2.Close()
	}
}

// T7: a reader opens a queue file between drop and RemoveAll of DeleteTopic.
func TestHuntDeleteTopicReaderKeepsUnlinkedFile(t *testing.T) {
	s, ffs, o := huntFS(t, nil)
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	for i := range 5 {
		put(t, s, q, fmt.Sprint("old", i))
	}
	drain(t, s)
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.RemoveAll {
			done := make(chan struct{})
			go func() {
				defer close(done)
				var recs Records
				s.Read(q, 0, Limit{Messages: 1}, nil, &recs)
				recs.Release()
			}()
			select { // a fix may make the reader wait
			case <-done:
			case <-time.After(500 * time.Millisecond):
			}
		}
		return nil
	})
	if err := s.DeleteTopic("TopicTest"); err != nil {
		t.Fatal(err)
	}
	ffs.SetHook(nil)
	for i := range 5 {
		put(t, s, q, fmt.Sprint("new", i))
	}
	drain(t, s)
	if f := globSorted(t, o.Dir, "consumequeue", "TopicTest", "0", "*"); len(f) == 0 {
		t.Errorf("the new units went to a file without a name")
	}
	// The file falls out of the cache, as with more than MaxOpenFiles queues.
	s.files.drop(q, math.MaxInt64)
	put(t, s, q, "new5")
	drain(t, s)
	if got := bodies(t, s, q); len(got) != 6 {
		t.Errorf("%d of 6 acknowledged messages are readable: %v", len(got), got)
	}
}

// T8: after a save that failed in Cursor, moves of cursors wake nobody.
func TestHuntCursorLostWakeUp(t *testing.T) {
	s, ffs, _ := huntFS(t, nil)
	stop := start(t, s)
	defer stop()
	q := s.Queue("TopicTest", 0)
	for i := range 10 {
		put(t, s, q, fmt.Sprint(i))
	}
	c, err := s.Cursor("lane", q, 0)
	if err != nil {
		t.Fatal(err)
	}
	var fail atomic.Bool
	fail.Store(true)
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if fail.Load() && op.Kind == faultfs.Create && strings.HasSuffix(op.Name, "cursors.json.tmp") {
			return &faultfs.Fault{Err: syscall.ENOSPC}
		}
		return nil
	})
	if _, err := s.Cursor("other", q, 0); err == nil {
		t.Fatal("no error")
	}
	fail.Store(false)
	c.Advance(5)
	for end := time.Now().Add(3 * time.Second); c.durable.Load() != 5; time.Sleep(20 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("after 3 s the cursor is durable at %d, moved to 5", c.durable.Load())
		}
	}
}

// T9: a store that was ours goes to RocketMQ's broker, which appends records
// without CRC behind ours, and comes back.
func TestHuntStoreComesBackFromApache(t *testing.T) {
	o := testOptions(t, t.TempDir())
	s := mustOpen(t, o)
	stop := start(t, s)
	q := s.Queue("TopicTest", 0)
	for i := range 10 {
		put(t, s, q, fmt.Sprint(i))
	}
	end := s.Stats().MaxOffset
	stop()
	file := globSorted(t, o.Dir, "commitlog", "*")[0]
	pos := end
	for i := range 10 {
		m := msg("apache")
		m.Topic, m.QueueOffset, m.PhysicalOffset, m.StoreTimestamp, m.StoreHost = "TopicTest", int64(10+i), pos, time.Now().UnixMilli(), m.BornHost
		rec, _ := message.AppendRecord(nil, m, false)
		overwrite(t, file, int(pos), rec)
		pos += int64(len(rec))
	}
	// RocketMQ also writes the units and the head of the checkpoint; its units
	// are behind what ours says is dispatched.
	s = mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max(); got != 20 {
		t.Errorf("queue ends at %d, RocketMQ's broker acknowledged up to 20", got)
	}
}

// T10: a spool that is closed still deletes in a directory that is another's.
func TestHuntClosedSpoolDeletes(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.QueueFileEntries = 20
	s := mustOpen(t, o)
	stop := start(t, s)
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "a")
	stop()
	other := mustOpen(t, o)
	defer other.Close()
	put(t, other, other.Queue("TopicTest", 0), "b")
	drain(t, other)
	if _, err := other.Cursor("lane", other.Queue("TopicTest", 0), 0); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(o.Dir, "cursors.json"))
	err := s.RemoveCursor("x", q)
	after, _ := os.ReadFile(filepath.Join(o.Dir, "cursors.json"))
	if string(before) != string(after) {
		t.Errorf("RemoveCursor (%v) of a closed spool rewrote another's cursors: %s -> %s", err, before, after)
	}
	err = s.DeleteTopic("TopicTest")
	if f := globSorted(t, o.Dir, "consumequeue", "TopicTest", "0", "*"); len(f) == 0 {
		t.Errorf("DeleteTopic (%v) of a closed spool removed another's queue files", err)
	}
}

// T11: the first bytes of the last segment in use are gone; everything behind
// them in it goes with the file.
func TestHuntLastSegmentHeadZero(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 400, true)
	file, at, _ := lastRecords(t, o.Dir, 3)
	t.Logf("last segment %s has records at %v", filepath.Base(file), at)
	overwrite(t, file, 0, make([]byte, 512))
	s := mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max() + s.Queue("TopicTest", 1).Max(); got != 400 {
		q := globSorted(t, o.Dir, "quarantine", "*")
		t.Errorf("queues hold %d of 400 offsets; quarantine %v; %+v", got, q, s.Stats())
	}
}

// T12: a tombstone beyond the log's end is bounded in memory only.
func TestHuntTombstoneBoundNotSaved(t *testing.T) {
	o := testOptions(t, t.TempDir())
	s := mustOpen(t, o)
	stop := start(t, s)
	put(t, s, s.Queue("Other", 0), "keep")
	cut := s.Stats().MaxOffset
	for range 20 {
		put(t, s, s.Queue("TopicTest", 0), strings.Repeat("old", 100))
	}
	s.Queue("TopicTest", 0).Wait(t.Context(), 19)
	if err := s.DeleteTopic("TopicTest"); err != nil {
		t.Fatal(err)
	}
	stop()
	// The device loses the log's end.
	overwrite(t, globSorted(t, o.Dir, "commitlog", "*")[0], int(cut), make([]byte, 20000))
	s = mustOpen(t, o)
	for range 5 {
		put(t, s, s.Queue("TopicTest", 0), "new life")
	}
	drain(t, s)
	if got := s.Queue("TopicTest", 0).Max(); got != 5 {
		t.Fatalf("queue at %d", got)
	}
	s.Close()
	s = mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max(); got != 5 {
		t.Errorf("after a restart the queue ends at %d, 5 were acknowledged", got)
	}
}

// T13: after a failed flush and a restart, what the page cache shows is served
// although the disk does not have it.
func TestHuntRestartAfterFailedFlush(t *testing.T) {
	s, ffs, o := huntFS(t, nil)
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
		s2 := mustOpen(t, huntCrash(t, ffs, o, seed))
		got := bodies(t, s2, s2.Queue("TopicTest", 0))
		if len(got) < len(seen)+1 {
			t.Errorf("seed %d: read %q before the power cut (plus third), %q after", seed, seen, got)
		}
		s2.Close()
	}
}

// T15: a clock in the checkpoint's head that is far off.
func TestHuntPhysicTimestampGarbage(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 10, true)
	b := make([]byte, 8)
	binary.BigEndian.PutUint64(b, 1<<61)
	overwrite(t, filepath.Join(o.Dir, "checkpoint"), 0, b)
	s := mustOpen(t, o)
	defer s.Close()
	if r := put(t, s, s.Queue("TopicTest", 0), "x"); r.StoreTimestamp > time.Now().UnixMilli()+1000 {
		t.Errorf("store time %d from a field without a checksum", r.StoreTimestamp)
	}
}

// T16: a retired file that cannot be used again keeps the log from growing.
func TestHuntBadSpareStopsAppends(t *testing.T) {
	s, ffs, _ := huntFS(t, func(o *Options) { o.SegmentBytes = 16 << 10 })
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

// T17: queue files of another size are removed; a queue whose messages are all
// deleted begins at 0 again.
func TestHuntQueueFileEntriesChanged(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 16 << 10
	o.MaxBytes = 64 << 10
	s := mustOpen(t, o)
	stop := start(t, s)
	a, b := s.Queue("A", 0), s.Queue("B", 0)
	for range 7 {
		put(t, s, a, "a")
	}
	if err := a.Wait(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	for a.Min() < 7 {
		r := put(t, s, b, strings.Repeat("b", 3000))
		b.Wait(t.Context(), r.QueueOffset)
		s.correctMins()
	}
	stop()
	o.QueueFileEntries = 50
	s = mustOpen(t, o)
	defer s.Close()
	if r := put(t, s, s.Queue("A", 0), "new"); r.QueueOffset != 7 {
		t.Errorf("offset %d, want 7", r.QueueOffset)
	}
}

// T15b: hostile queue offsets in records without a record CRC.
func TestHuntHostileQueueOffset(t *testing.T) {
	for _, at := range []int64{-1, math.MinInt64, 1 << 40, 1 << 60, math.MaxInt64 - 1} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			if at == math.MinInt64 && os.Getenv("HUNT_OOM") == "" {
				t.Skip("eats all memory: run it under ulimit -v")
			}
			o := testOptions(t, t.TempDir())
			plainStore(t, o.Dir, 20, int(o.SegmentBytes))
			b := make([]byte, 8)
			binary.BigEndian.PutUint64(b, uint64(at))
			overwrite(t, globSorted(t, o.Dir, "commitlog", "*")[0], 20, b)
			s, err := Open(o)
			if err != nil {
				t.Fatalf("one flipped field of the first record: %v", err)
			}
			defer s.Close()
			q := s.Queue("TopicTest", 0)
			if got := len(bodies(t, s, q)); got < 19 {
				t.Errorf("%d of 19 undamaged messages readable, queue [%d,%d)", got, q.Min(), q.Max())
			}
		})
	}
}

// T19: behind RocketMQ's records our own torn ones pass without a record CRC.
func TestHuntPlainCoversOurRecords(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	os.Mkdir(dir, 0o755)
	o := testOptions(t, dir)
	plainStore(t, dir, 5, int(o.SegmentBytes))
	s := mustOpen(t, o)
	r := put(t, s, s.Queue("TopicTest", 0), "ours")
	if s.plain > r.PhysicalOffset {
		t.Errorf("records from %d on carry a CRC, ours is at %d", s.plain, r.PhysicalOffset)
	}
	end := s.Stats().MaxOffset
	s.Close()
	// A torn write: the last bytes of the record did not arrive.
	overwrite(t, globSorted(t, dir, "commitlog", "*")[0], int(end)-24, make([]byte, 24))
	s = mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max(); got != 5 {
		t.Errorf("a record with torn properties is believed: %d messages", got)
	}
}

// T20: the device cannot read a page of the log.
func TestHuntUnreadablePageStopsDispatch(t *testing.T) {
	s, _, o := huntFS(t, nil)
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	for i := range 30 {
		put(t, s, q, fmt.Sprintf("%d %s", i, strings.Repeat("x", 1000)))
	}
	file := globSorted(t, o.Dir, "commitlog", "*")[0]
	// A shorter file faults like a bad sector.
	if err := os.Truncate(file, 8192); err != nil {
		t.Fatal(err)
	}
	var errs []error
	for range 20 {
		if err := s.dispatchRound(); err != nil {
			errs = append(errs, err)
			if errors.Is(err, errCaughtUp) {
				break
			}
		}
	}
	if !errors.Is(errs[len(errs)-1], errCaughtUp) {
		t.Errorf("dispatch stays at %d of %d: %v", s.dispatch.pos.Load(), s.Durable(), errs[len(errs)-1])
	}
}

// T22: a queue made between the snapshot and the deletion, and the model of a
// reader beside: only for the race detector.
func TestHuntConcurrentCursorNotDurable(t *testing.T) {
	s, ffs, _ := huntFS(t, nil)
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	in, out := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Create && strings.HasSuffix(op.Name, "cursors.json.tmp") {
			var ft *faultfs.Fault
			once.Do(func() { close(in); <-out; ft = &faultfs.Fault{Err: syscall.ENOSPC} })
			return ft
		}
		return nil
	})
	first := make(chan error)
	go func() { _, err := s.Cursor("lane", q, 0); first <- err }()
	<-in
	type res struct {
		c   *Cursor
		err error
	}
	second := make(chan res, 1)
	go func() { c, err := s.Cursor("lane", q, 0); second <- res{c, err} }()
	var r res
	select {
	case r = <-second:
		close(out)
	case <-time.After(300 * time.Millisecond):
		close(out)
		r = <-second
	}
	err := <-first
	if r.err == nil && len(s.Cursors()) == 0 {
		t.Errorf("first: %v; the second got a cursor that nobody saves", err)
	}
}

var _ = context.Background

// T5b: damage in one segment and one mapping of the next that fails: what is
// behind counts as not there, and goes.
func TestHuntMapFailureInLaterRemovesSegments(t *testing.T) {
	for at := range 8 {
		dir := filepath.Join(t.TempDir(), "s")
		os.Mkdir(dir, 0o755)
		o := testOptions(t, dir)
		want := fillStore(t, o, 400, true)
		files := globSorted(t, dir, "commitlog", "*")
		// The end of the first segment is damaged, and the queues are gone, so
		// that the walk passes there.
		overwrite(t, files[0], 60000, []byte(strings.Repeat("x", 5536)))
		os.RemoveAll(filepath.Join(dir, "consumequeue"))
		ffs, err := faultfs.New(dir)
		if err != nil {
			t.Fatal(err)
		}
		o.FS = ffs
		n := 0
		ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
			if op.Kind == faultfs.Map {
				if n++; n-1 == at {
					return &faultfs.Fault{Err: syscall.EMFILE}
				}
			}
			return nil
		})
		s, err := Open(o)
		if err == nil {
			s.Close()
		}
		ffs.SetHook(nil)
		s = mustOpen(t, o)
		if got := len(bodies(t, s, s.Queue("TopicTest", 0))); got < len(want["TopicTest/0"])-5 {
			t.Errorf("map %d failed once (first open: %v): %d of %d messages left, 4 were damaged", at, err, got, len(want["TopicTest/0"]))
		}
		s.Close()
	}
}

// T11b: the end of one segment and the head of the last one are damaged.
func TestHuntDamageAcrossIntoLastSegment(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 400, true)
	files := globSorted(t, o.Dir, "commitlog", "*")
	last, at, _ := lastRecords(t, o.Dir, 3)
	i := 0
	for files[i] != last {
		i++
	}
	t.Logf("last %s, records at %v, prepared: %v", filepath.Base(last), at, i < len(files)-1)
	overwrite(t, files[i-1], 64000, []byte(strings.Repeat("x", 1536)))
	overwrite(t, last, 0, make([]byte, 4096))
	s := mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max() + s.Queue("TopicTest", 1).Max(); got != 400 {
		t.Errorf("queues hold %d of 400 offsets; quarantine %v; %+v", got, globSorted(t, o.Dir, "quarantine", "*"), s.Stats())
	}
}

// T21: a gap makes the search by time miss messages.
func TestHuntOffsetByTimeAcrossGap(t *testing.T) {
	o := testOptions(t, t.TempDir())
	s := mustOpen(t, o)
	stop := start(t, s)
	q := s.Queue("TopicTest", 0)
	first := put(t, s, q, strings.Repeat("x", 300))
	var mid Result
	for i := 1; i < 40; i++ {
		r := put(t, s, q, strings.Repeat("x", 300))
		if i == 20 {
			mid = r
		}
	}
	stop()
	overwrite(t, globSorted(t, o.Dir, "commitlog", "*")[0], int(mid.PhysicalOffset)+100, []byte("damage"))
	os.RemoveAll(filepath.Join(o.Dir, "consumequeue"))
	s = mustOpen(t, o)
	defer s.Close()
	q = s.Queue("TopicTest", 0)
	if got := s.OffsetByTime(q, first.StoreTimestamp, false); got != 0 {
		t.Errorf("the first message stored at %d or later is at 0, found %d", first.StoreTimestamp, got)
	}
}

// T23: a stray file far behind the log.
func TestHuntStrayLogFile(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 10, true)
	const n = 3000
	stray := filepath.Join(o.Dir, "commitlog", segment.FileName(n*o.SegmentBytes))
	os.WriteFile(stray, nil, 0o644)
	s, err := Open(o)
	if err == nil {
		s.Close()
	}
	made := 0
	files := globSorted(t, o.Dir, "commitlog", "*")
	for _, f := range files {
		if f != stray {
			made++
		}
	}
	counters := int64(0)
	if err == nil {
		counters = s.Stats().MaxOffset
	}
	t.Logf("open: %v, %d files left, end %d", err, made, counters)
}

// T24: a checkpoint of a store with larger segments.
func TestHuntForeignCheckpointExtendsFiles(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 300, true)
	other := testOptions(t, t.TempDir())
	other.SegmentBytes = 256 << 10
	fillStore(t, other, 10, true)
	own, _ := os.ReadFile(filepath.Join(o.Dir, "checkpoint"))
	foreign, _ := os.ReadFile(filepath.Join(other.Dir, "checkpoint"))
	os.WriteFile(filepath.Join(o.Dir, "checkpoint"), foreign, 0o644)
	s, err := Open(o)
	if err == nil {
		s.Close()
	}
	t.Logf("with the foreign checkpoint: %v", err)
	os.WriteFile(filepath.Join(o.Dir, "checkpoint"), own, 0o644)
	s, err = Open(o)
	if err != nil {
		t.Fatalf("with its own checkpoint again: %v", err)
	}
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max(); got != 150 {
		t.Errorf("queue ends at %d", got)
	}
}

// T25: a segment whose first record cannot be read stops retention by age.
func TestHuntAgeRetentionStopsAtDamage(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 16 << 10
	old := time.Now().Add(-1000 * time.Hour)
	o.Now = func() time.Time { return old }
	fillStore(t, o, 200, true)
	files := globSorted(t, o.Dir, "commitlog", "*")
	overwrite(t, files[2], 4, []byte{0xff})
	o.Now = time.Now
	s := mustOpen(t, o)
	defer s.Close()
	s.clock.start = time.Now().UnixMilli()
	for range 5 {
		s.retain()
	}
	if got := len(s.seq.Segments()); got > 2 {
		t.Errorf("%d segments of 1000 hours' age stay, the log begins at %d", got, s.seq.Base())
	}
}

// T26: a disk that is full of something else, and a store with everything read.
func TestHuntFullDiskKeepUnreadAllRead(t *testing.T) {
	s, ffs, _ := huntFS(t, func(o *Options) { o.SegmentBytes = 16 << 10; o.KeepUnread = true })
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	c, err := s.Cursor("lane", q, 0)
	if err != nil {
		t.Fatal(err)
	}
	for range 40 {
		put(t, s, q, strings.Repeat("x", 3000))
	}
	drain(t, s)
	c.Advance(q.Max())
	if err := s.saveCursors(); err != nil {
		t.Fatal(err)
	}
	ffs.SetFree(1000)
	for range 20 {
		s.retain()
	}
	if s.seq.Base() == 0 {
		t.Errorf("nothing deleted, %d segments all read; %v", len(s.seq.Segments()), s.Writable())
	}
}

// T27: segments of 1 GiB in a 32-bit address space.
func TestHuntManyGiBSegments(t *testing.T) {
	if os.Getenv("HUNT_32") == "" {
		t.Skip("only for GOARCH=386")
	}
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 1 << 30
	os.MkdirAll(filepath.Join(o.Dir, "commitlog"), 0o755)
	var off int64
	for i := range 6 {
		name := filepath.Join(o.Dir, "commitlog", segment.FileName(int64(i)<<30))
		f, _ := os.Create(name)
		f.Truncate(1 << 30)
		m := msg("apache")
		m.Topic, m.QueueOffset, m.PhysicalOffset, m.StoreTimestamp, m.StoreHost = "TopicTest", off, int64(i)<<30, 1000, m.BornHost
		rec, _ := message.AppendRecord(nil, m, true)
		f.WriteAt(rec, 0)
		if i < 5 {
			f.WriteAt(message.BlankRecord(nil, int32(1<<30-len(rec))), int64(len(rec)))
		}
		f.Close()
		off++
	}
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	t.Logf("queue [%d,%d)", q.Min(), q.Max())
	var recs [3]Records
	for i := range recs {
		r := s.Read(q, int64(i), Limit{Messages: 1}, nil, &recs[i])
		t.Logf("read %d: %v next %d, %d records", i, r.Status, r.Next, recs[i].Len())
		if recs[i].Len() != 1 || r.Next != int64(i)+1 {
			t.Errorf("reader %d passes its message: %v, next %d", i, r.Status, r.Next)
		}
	}
	for i := range recs {
		recs[i].Release()
	}
}

// A sweep: every call fails once, the work goes on, then the power is cut.
func TestHuntSingleFaultSweep(t *testing.T) {
	if os.Getenv("HUNT_SWEEP") == "" {
		t.Skip("takes half a minute")
	}
	bad := map[string]int{}
	for at := huntFrom(); at < 3000; at++ {
		what, op := huntSweepRun(t, at, uint64(at))
		if op == "" {
			t.Logf("%d calls", at)
			break
		}
		if what != "" {
			k := what + " <- " + op
			if bad[k]++; bad[k] <= 1 {
				t.Logf("call %d: %s", at, k)
			}
		}
	}
	for k, n := range bad {
		t.Errorf("%dx %s", n, k)
	}
}

func huntSweepRun(t *testing.T, at int, seed uint64) (what, opName string) {
	dir := filepath.Join(t.TempDir(), "s")
	os.Mkdir(dir, 0o755)
	ffs, err := faultfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(t, dir)
	o.FS, o.SegmentBytes, o.QueueFileEntries, o.MaxOpenFiles = ffs, 16<<10, 16, 3
	o.MaxBytes = 5 * o.SegmentBytes
	s := mustOpen(t, o)
	defer s.Close()
	n, armed, width := 0, true, 0
	fmt.Sscan(os.Getenv("HUNT_WIDTH"), &width)
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if !armed {
			return nil
		}
		if n++; n-1 >= at && n-1 < at+max(1, width) {
			rel, _ := filepath.Rel(dir, op.Name)
			opName += fmt.Sprintf("[%s %s] ", op.Kind, rel)
			return &faultfs.Fault{Err: syscall.EIO, Written: op.Len / 2}
		}
		return nil
	})
	type ack struct {
		off  int64
		body string
	}
	acked := map[*Queue][]ack{}
	qs := []*Queue{s.Queue("A", 0), s.Queue("B", 0), s.Queue("B", 1)}
	rng := newRand(seed)
	c, cerr := s.Cursor("lane", qs[0], 0)
	left := 1 << 30
	if os.Getenv("HUNT_SOON") != "" {
		left = int(seed % 5)
	}
	for i := range 60 {
		if opName != "" {
			if left--; left < 0 {
				break
			}
		}
		q := qs[rng.IntN(3)]
		body := fmt.Sprintf("%d-%0*d", i, 300+rng.IntN(1500), i)
		r, err := tryPut(t, s, q, body)
		if err == nil {
			acked[q] = append(acked[q], ack{r.QueueOffset, body})
		}
		_ = s.dispatchRound()
		_ = s.dispatchRound()
		switch i % 12 {
		case 3:
			_, _ = s.fillStep()
		case 5:
			_ = s.saveCheckpoint()
		case 7:
			s.retain()
		case 9:
			if cerr == nil {
				c.Advance(qs[0].Max())
				_ = s.saveCursors()
			}
		case 11:
			if i == 23 || i == 47 {
				_ = s.DeleteTopic("B") // what a failed one leaves is open
				delete(acked, qs[1])
				delete(acked, qs[2])
			}
		}
	}
	armed = false
	check := func(s *Spool, phase string) string {
		for q0, as := range acked {
			q := s.Queue(q0.Topic(), q0.ID())
			got := map[int64]string{}
			var recs Records
			for at := q.Min(); at < q.Max(); {
				r := s.Read(q, at, Limit{Messages: 8}, nil, &recs)
				recs.Each(func(rec []byte) bool {
					var m message.Message
					if message.Decode(rec, &m) == nil {
						got[m.QueueOffset] = string(m.Body)
					}
					return true
				})
				recs.Release()
				if r.Next <= at {
					return fmt.Sprintf("%s: reader stuck: %v", phase, r.Status)
				}
				at = r.Next
			}
			seen := map[int64]bool{}
			for _, a := range as {
				if seen[a.off] {
					return phase + ": offset given twice"
				}
				seen[a.off] = true
				if a.off >= q.Min() && got[a.off] != a.body {
					return phase + ": acknowledged message lost"
				}
				if a.off >= q.Max() {
					return phase + ": acknowledged offset beyond max"
				}
			}
		}
		return ""
	}
	for range 5 {
		_ = s.dispatchRound()
	}
	if w := check(s, "running"); w != "" && s.brokenErr() == nil {
		return w, opName
	}
	for k := range 3 {
		dst := filepath.Join(t.TempDir(), "c")
		if err := ffs.Crash(newRand(seed*7+uint64(k)), dst); err != nil {
			t.Fatal(err)
		}
		o2 := o
		o2.Dir, o2.FS = dst, nil
		s2, err := Open(o2)
		if err != nil {
			return "crash: open fails: " + strings.Split(err.Error(), ": ")[len(strings.Split(err.Error(), ": "))-1], opName
		}
		w := check(s2, "crash")
		s2.Close()
		if w != "" {
			return w, opName
		}
	}
	return "", opName
}

func huntFrom() int {
	var n int
	fmt.Sscan(os.Getenv("HUNT_FROM"), &n)
	return n
}

// A power cut before every call of a run with deletions and a proper stop.
func TestHuntCutSweep(t *testing.T) {
	if os.Getenv("HUNT_SWEEP") == "" {
		t.Skip("takes half a minute")
	}
	bad := map[string]int{}
	for at := 0; at < 3000; at++ {
		what, op := huntCutRun(t, at)
		if op == "" {
			t.Logf("%d calls", at)
			break
		}
		if what != "" {
			if bad[what+" <- "+op]++; bad[what+" <- "+op] == 1 {
				t.Logf("call %d: %s <- %s", at, what, op)
			}
		}
	}
	for k, n := range bad {
		t.Errorf("%dx %s", n, k)
	}
}

func huntCutRun(t *testing.T, at int) (what, opName string) {
	dir := filepath.Join(t.TempDir(), "s")
	os.Mkdir(dir, 0o755)
	ffs, _ := faultfs.New(dir)
	o := testOptions(t, dir)
	o.FS, o.SegmentBytes, o.QueueFileEntries, o.MaxOpenFiles = ffs, 16<<10, 16, 3
	o.MaxBytes = 5 * o.SegmentBytes
	s := mustOpen(t, o)
	qs := []*Queue{s.Queue("A", 0), s.Queue("B", 0), s.Queue("B", 1)}
	acked := map[*Queue]map[int64]string{}
	life := map[*Queue]map[string]bool{} // bodies of this life
	deleting := false
	for _, q := range qs {
		acked[q], life[q] = map[int64]string{}, map[string]bool{}
	}
	n := 0
	var dirs []string
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Read {
			return nil
		}
		if n++; n-1 != at {
			return nil
		}
		rel, _ := filepath.Rel(dir, op.Name)
		opName = fmt.Sprintf("%s %s", op.Kind, rel)
		for k := range 3 {
			dst := filepath.Join(t.TempDir(), "c")
			if err := ffs.Crash(newRand(uint64(at*5+k)), dst); err != nil {
				t.Fatal(err)
			}
			dirs = append(dirs, dst)
		}
		for _, d := range dirs {
			o2 := o
			o2.Dir, o2.FS = d, nil
			s2, err := Open(o2)
			if err != nil {
				what = "open: " + err.Error()[max(0, len(err.Error())-60):]
				return nil
			}
			for _, q0 := range qs {
				q := s2.Queue(q0.Topic(), q0.ID())
				got := map[int64]string{}
				var recs Records
				for p := q.Min(); p < q.Max(); {
					r := s2.Read(q, p, Limit{Messages: 8}, nil, &recs)
					recs.Each(func(rec []byte) bool {
						var m message.Message
						if message.Decode(rec, &m) == nil {
							got[m.QueueOffset] = string(m.Body)
						}
						return true
					})
					recs.Release()
					if r.Next <= p {
						what = "stuck"
						break
					}
					p = r.Next
				}
				if deleting && q.Topic() == "B" {
					continue
				}
				for off, body := range acked[q0] {
					if off >= q.Min() && got[off] != body {
						what = "acknowledged lost"
					}
				}
				for _, body := range got {
					if !life[q0][body] {
						what = "deleted message came back"
					}
				}
			}
			s2.Close()
		}
		return nil
	})
	rng := newRand(uint64(at % 3))
	for i := range 60 {
		if opName != "" {
			break
		}
		q := qs[rng.IntN(3)]
		body := fmt.Sprintf("%d-%0*d", i, 300+rng.IntN(1500), i)
		life[q][body] = true
		if r, err := tryPut(t, s, q, body); err == nil {
			acked[q][r.QueueOffset] = body
		}
		_ = s.dispatchRound()
		_ = s.dispatchRound()
		switch i % 12 {
		case 3:
			_, _ = s.fillStep()
		case 5:
			_ = s.saveCheckpoint()
		case 7:
			s.retain()
		case 11:
			if i == 23 || i == 47 {
				deleting = true
				if err := s.DeleteTopic("B"); err != nil {
					t.Fatal(err)
				}
				for _, q := range qs[1:] {
					acked[q], life[q] = map[int64]string{}, map[string]bool{}
				}
				deleting = false
			}
		}
	}
	if opName == "" {
		if err := s.stop(); err != nil {
			t.Fatal(err)
		}
	} else {
		s.Close()
	}
	return what, opName
}

// T28: a clock that was wrong once stays in every later message, and keeps
// retention by age from ever deleting.
func TestHuntClockStepForward(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 16 << 10
	wrong := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	o.Now = func() time.Time { return wrong }
	fillStore(t, o, 1, true)
	o.Now = time.Now
	s := mustOpen(t, o)
	defer s.Close()
	if r := put(t, s, s.Queue("TopicTest", 0), "right clock"); r.StoreTimestamp > time.Now().Add(time.Hour).UnixMilli() {
		t.Errorf("stored today with the time %v", time.UnixMilli(r.StoreTimestamp).UTC())
	}
}

// T29: EIO while a consumer's answer is copied: Err tells, the broker's pull
// does not ask. Here: what AppendTo gives then.
func TestHuntReadErrorKeepsNext(t *testing.T) {
	s, ffs, _ := huntFS(t, func(o *Options) { o.MaxOpenFiles = 1 })
	defer s.Close()
	q, other := s.Queue("TopicTest", 0), s.Queue("Other", 0)
	for i := range 5 {
		put(t, s, q, fmt.Sprint(i))
		put(t, s, other, fmt.Sprint(i))
	}
	drain(t, s)
	s.files.drop(q, math.MaxInt64)
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Read {
			return &faultfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	var recs Records
	r := s.Read(q, 0, Limit{Messages: 5}, nil, &recs)
	recs.Release()
	ffs.SetHook(nil)
	if r.Next != 0 {
		t.Errorf("a queue file that cannot be read: %v, next %d", r.Status, r.Next)
	}
	t.Logf("%v next %d: the broker's wait takes this for 'nothing yet' and reads again at once", r.Status, r.Next)
}
