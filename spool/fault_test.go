package spool

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// faulty opens a running spool on a file system whose calls hook decides about.
func faulty(t *testing.T, change func(o *Options)) (*Spool, *faultfs.FS, func()) {
	t.Helper()
	dir := t.TempDir()
	ffs, err := faultfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := testOptions(t, dir)
	o.FS = ffs
	if change != nil {
		change(&o)
	}
	s := mustOpen(t, o)
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	var once sync.Once
	stop := func() {
		once.Do(func() {
			ffs.SetHook(nil)
			cancel()
			<-ended // what it returns depends on what was broken
		})
	}
	t.Cleanup(stop)
	return s, ffs, stop
}

func inLog(name string) bool { return filepath.Base(filepath.Dir(name)) == "commitlog" }

// F04: while the disk does not sync, nothing is acknowledged, nothing can be
// read, and no cut of power can show anybody a message that is gone after it.
func TestNothingUndurableIsReadable(t *testing.T) {
	s, ffs, _ := faulty(t, nil)
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "first")
	if err := q.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	blocked, release := make(chan struct{}), make(chan struct{})
	var once sync.Once
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Sync && inLog(op.Name) {
			once.Do(func() { close(blocked) })
			<-release
		}
		return nil
	})
	acked := make(chan Result, 1)
	go func() { acked <- put(t, s, q, "second") }()
	<-blocked
	var recs Records
	if r := s.Read(q, 1, Limit{Messages: 1}, nil, &recs); r.Status != OffsetOverflowOne {
		t.Errorf("read what is not durable: %v", r.Status)
	}
	recs.Release()
	if err := s.ReadAt(s.Durable(), &recs); err == nil {
		t.Error("read by log offset what is not durable")
	}
	recs.Release()
	if d := s.Stats(); d.DispatchedOffset > d.DurableOffset {
		t.Errorf("dispatched to %d, durable to %d", d.DispatchedOffset, d.DurableOffset)
	}
	select {
	case r := <-acked:
		t.Fatalf("acknowledged while not durable: %+v", r)
	default:
	}
	close(release)
	if r := <-acked; r.QueueOffset != 1 {
		t.Errorf("offset %d", r.QueueOffset)
	}
	if err := q.Wait(t.Context(), 1); err != nil {
		t.Fatal(err)
	}
	if got := bodies(t, s, q); !slices.Equal(got, []string{"first", "second"}) {
		t.Errorf("read %q", got)
	}
}

// F10, F20, F22, F51: an append that fails for whatever reason takes no offset,
// leaves nothing in the log, and the next one succeeds.
func TestFailedAppendLeavesNothing(t *testing.T) {
	for _, fault := range []error{syscall.ENOSPC, syscall.EIO, syscall.EROFS} {
		for _, written := range []int{0, 3, 100, 900, 1 << 20} {
			t.Run(fmt.Sprintf("%v after %d bytes", fault, written), func(t *testing.T) {
				s, ffs, stop := faulty(t, nil)
				q := s.Queue("TopicTest", 0)
				put(t, s, q, "before")
				var fail atomic.Bool
				ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
					if op.Kind == faultfs.Write && inLog(op.Name) && op.Len < 60<<10 && fail.CompareAndSwap(true, false) {
						return &faultfs.Fault{Err: fault, Written: written}
					}
					return nil
				})
				var b Batch
				for range 3 {
					if _, err := b.Add(q, msg(strings.Repeat("lost", 100))); err != nil {
						t.Fatal(err)
					}
				}
				fail.Store(true)
				err := s.Append(&b)
				if !errors.Is(err, fault) && !(fault == syscall.ENOSPC && errors.Is(err, ErrFull)) {
					t.Errorf("append: %v", err)
				}
				if b.End() != 0 || b.Result(0).Err == nil || b.Result(2).Err == nil {
					t.Errorf("results of a failed append: end %d, %+v", b.End(), b.entries)
				}
				if r := put(t, s, q, "after"); r.QueueOffset != 1 {
					t.Errorf("the next offset is %d", r.QueueOffset)
				}
				stop()
				got := checkStore(t, s.o.Dir, 100, true)["TopicTest/0"]
				if !slices.Equal(got, []string{"before", "after"}) {
					t.Errorf("log holds %q", got)
				}
			})
		}
	}
}

// A crash right after a failed append shows none of it either.
func TestFailedAppendThenCrash(t *testing.T) {
	s, ffs, _ := faulty(t, nil)
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "before")
	var b Batch
	for range 4 {
		if _, err := b.Add(q, msg(strings.Repeat("lost", 100))); err != nil {
			t.Fatal(err)
		}
	}
	first := true
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Write && inLog(op.Name) && first && op.Len < 60<<10 {
			first = false
			return &faultfs.Fault{Err: syscall.ENOSPC, Written: 1200}
		}
		return nil
	})
	if err := s.Append(&b); !errors.Is(err, ErrFull) {
		t.Fatalf("append: %v", err)
	}
	ffs.SetHook(nil)
	r := put(t, s, q, "x")
	if r.QueueOffset != 1 {
		t.Errorf("offset %d", r.QueueOffset)
	}
	for seed := range uint64(8) {
		o := testOptions(t, filepath.Join(t.TempDir(), "crash"))
		if err := ffs.Crash(newRand(seed), o.Dir); err != nil {
			t.Fatal(err)
		}
		c := mustOpen(t, o)
		if got := bodies(t, c, c.Queue("TopicTest", 0)); !slices.Equal(got, []string{"before", "x"}) {
			t.Errorf("after the crash: %d messages", len(got))
		}
		c.Close()
	}
}

// A failed flush is final: no acknowledgement, no further append, reads go on,
// and a restart finds what was acknowledged.
func TestFailedSync(t *testing.T) {
	s, ffs, stop := faulty(t, nil)
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "first")
	if err := q.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Sync && inLog(op.Name) {
			return &faultfs.Fault{Err: syscall.EIO}
		}
		return nil
	})
	var b Batch
	if _, err := b.Add(q, msg("second")); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	durable := s.Durable()
	if err := s.WaitDurable(t.Context(), b.End()); !errors.Is(err, ErrBroken) || !errors.Is(err, syscall.EIO) {
		t.Errorf("wait: %v", err)
	}
	ffs.SetHook(nil) // the disk is well again: that proves nothing
	if err := s.WaitDurable(t.Context(), b.End()); !errors.Is(err, ErrBroken) {
		t.Errorf("wait again: %v", err)
	}
	b.Reset()
	if _, err := b.Add(q, msg("third")); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&b); !errors.Is(err, ErrBroken) || !errors.Is(s.Writable(), ErrBroken) {
		t.Errorf("append: %v, writable: %v", err, s.Writable())
	}
	if s.Durable() != durable {
		t.Errorf("durable went from %d to %d", durable, s.Durable())
	}
	if got := bodies(t, s, q); !slices.Equal(got, []string{"first"}) {
		t.Errorf("read %q", got)
	}
	stop()
	o := testOptions(t, filepath.Join(t.TempDir(), "crash"))
	if err := ffs.Crash(newRand(1), o.Dir); err != nil {
		t.Fatal(err)
	}
	s = mustOpen(t, o)
	defer s.Close()
	if got := bodies(t, s, s.Queue("TopicTest", 0)); !slices.Equal(got, []string{"first"}) {
		t.Errorf("after the restart: %q", got)
	}
}

// F11: records that cannot be queued do not stop the ones behind them.
func TestPoisonRecords(t *testing.T) {
	s := mustOpen(t, testOptions(t, t.TempDir()))
	q := s.Queue("TopicTest", 0)
	var results []Result
	for i := range 6 {
		results = append(results, put(t, s, q, fmt.Sprintf("m%d", i)))
	}
	// Damaged after it was written: its magic, its lengths, its size.
	file := globSorted(t, s.o.Dir, "commitlog", "*")[0]
	overwrite(t, file, int(results[1].PhysicalOffset)+4, []byte{1, 2, 3, 4})
	overwrite(t, file, int(results[2].PhysicalOffset)+84, []byte{0x7f, 0, 0, 0})
	overwrite(t, file, int(results[4].PhysicalOffset), []byte{0x7f, 0xff, 0xff, 0xff})
	stop := start(t, s)
	if err := q.Wait(t.Context(), 5); err != nil {
		t.Fatal(err)
	}
	var got []string
	for at := int64(0); at < q.Max(); {
		var recs Records
		r := s.Read(q, at, Limit{Messages: 32}, nil, &recs)
		_ = message.EachRecord(recs.AppendTo(nil), func(rec []byte) bool {
			var m message.Message
			if err := message.Decode(rec, &m); err == nil {
				got = append(got, string(m.Body))
			}
			return true
		})
		recs.Release()
		at = r.Next
	}
	if !slices.Equal(got, []string{"m0", "m3", "m5"}) {
		t.Errorf("read %q", got)
	}
	stop()
	// Two that follow one another are found as one.
	if st := s.Stats(); st.BadRecords != 2 || st.Gaps != 3 || st.DispatchBehind != 0 {
		t.Errorf("%+v", st)
	}
}

// Queue files that cannot be written hold dispatch up, not appends, and lose
// nothing once they can.
func TestQueueWriteFails(t *testing.T) {
	s, ffs, _ := faulty(t, nil)
	failed := make(chan struct{})
	var n atomic.Int32
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Write && strings.Contains(op.Name, "consumequeue") && n.Add(1) <= 3 {
			if n.Load() == 3 {
				close(failed)
			}
			return &faultfs.Fault{Err: syscall.ENOSPC, Written: 7}
		}
		return nil
	})
	q0, q1 := s.Queue("TopicTest", 0), s.Queue("TopicTest", 1)
	for i := range 5 {
		put(t, s, q0, fmt.Sprintf("a%d", i))
		put(t, s, q1, fmt.Sprintf("b%d", i))
	}
	<-failed
	for _, q := range []*Queue{q0, q1} {
		if err := q.Wait(t.Context(), 4); err != nil {
			t.Fatal(err)
		}
		if got := bodies(t, s, q); len(got) != 5 {
			t.Errorf("queue %d: %q", q.ID(), got)
		}
	}
	if s.Stats().DispatchErrors == 0 {
		t.Error("failed rounds are not counted")
	}
}

// F20: too little free disk refuses messages with a text that helps, reads go
// on, and free space is noticed without a restart.
func TestDiskNearlyFull(t *testing.T) {
	s, ffs, _ := faulty(t, nil)
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "first")
	ffs.SetFree(1000)
	s.retain()
	err := s.Writable()
	if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), s.o.Dir) || !strings.Contains(err.Error(), "1000 bytes free") {
		t.Errorf("writable: %v", err)
	}
	var b Batch
	if _, err := b.Add(q, msg("refused")); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&b); !errors.Is(err, ErrFull) {
		t.Errorf("append: %v", err)
	}
	if err := q.Wait(t.Context(), 0); err != nil || len(bodies(t, s, q)) != 1 {
		t.Errorf("reads do not go on: %v", err)
	}
	if c, err := s.Cursor("lane", q, 0); err != nil {
		t.Errorf("cursor: %v", err)
	} else {
		c.Advance(1)
	}
	ffs.SetFree(1 << 40)
	s.retain()
	if r := put(t, s, q, "second"); r.QueueOffset != 1 {
		t.Errorf("offset %d", r.QueueOffset)
	}
}
