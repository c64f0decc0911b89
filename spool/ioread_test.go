package spool

import (
	"errors"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// A mapping that fails for the moment does not make a reader pass messages.
func TestReadWaitsForMemory(t *testing.T) {
	s, ffs, o := faultStore(t, func(o *Options) { o.SegmentBytes = 16 << 10 })
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

// A queue file that cannot be read for the moment does not move a reader.
func TestReadErrorKeepsNext(t *testing.T) {
	s, ffs, _ := faultStore(t, func(o *Options) { o.MaxOpenFiles = 1 })
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

// reopenAfterMapFailure opens and closes the store of o while its mapping number
// at (from 0) fails with mapErr, then opens it with no fault. The error is that
// of the first open.
func reopenAfterMapFailure(t *testing.T, o Options, at int, mapErr error) (*Spool, error) {
	t.Helper()
	ffs, err := faultfs.New(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	o.FS = ffs
	n := 0
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Map {
			if n++; n-1 == at {
				return &faultfs.Fault{Err: mapErr}
			}
		}
		return nil
	})
	s, firstErr := Open(o)
	if firstErr == nil {
		s.Close()
	}
	ffs.SetHook(nil)
	return mustOpen(t, o), firstErr
}

// A mapping that fails once while recovery looks around costs no message.
func TestMapFailureAtOpenCutsNothing(t *testing.T) {
	for at := range 12 {
		dir := filepath.Join(t.TempDir(), "s")
		os.Mkdir(dir, 0o755)
		o := testOptions(t, dir)
		plainStore(t, dir, 60, int(o.SegmentBytes))
		s, err := reopenAfterMapFailure(t, o, at, syscall.ENOMEM)
		if got := s.Queue("TopicTest", 0).Max(); got != 60 {
			t.Errorf("map %d failed once (first open: %v): %d of 60 messages are left", at, err, got)
		}
		s.Close()
	}
}

// The same behind damage: what cannot be looked at counts as neither there nor
// not there.
func TestMapFailureBehindDamageCutsNothing(t *testing.T) {
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
		s, err := reopenAfterMapFailure(t, o, at, syscall.EMFILE)
		if got := len(bodies(t, s, s.Queue("TopicTest", 0))); got < len(want["TopicTest/0"])-5 {
			t.Errorf("map %d failed once (first open: %v): %d of %d messages left, 4 were damaged", at, err, got, len(want["TopicTest/0"]))
		}
		s.Close()
	}
}

// Dispatch passes a page of the log that the device cannot read.
func TestUnreadablePageIsPassed(t *testing.T) {
	s, _, o := faultStore(t, nil)
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

// Moves of cursors are saved also after a save that failed.
func TestCursorMovesAfterFailedSave(t *testing.T) {
	s, ffs, _ := faultStore(t, nil)
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
	for end := time.Now().Add(3 * time.Second); c.durable.Load() != 5; runtime.Gosched() {
		if time.Now().After(end) {
			t.Fatalf("after 3 s the cursor is durable at %d, moved to 5", c.durable.Load())
		}
	}
}

// Of two who make the same cursor, neither gets one that is not durable.
func TestCursorMadeTwice(t *testing.T) {
	s, ffs, _ := faultStore(t, nil)
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

// On a full disk, segments that every cursor has passed go.
func TestFullDiskFreesWhatIsRead(t *testing.T) {
	s, ffs, _ := faultStore(t, func(o *Options) { o.SegmentBytes = 16 << 10; o.KeepUnread = true })
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

// Segments whose units are not durable yet do not go: a power cut would take
// back the queue's next offset.
func TestDeletionKeepsOffsetsDurable(t *testing.T) {
	s, ffs, o := faultStore(t, func(o *Options) { o.SegmentBytes = 16 << 10; o.MaxBytes = 64 << 10 })
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
		s2, err := Open(cutPower(t, ffs, o, seed))
		if err != nil {
			t.Fatal(err)
		}
		if r := put(t, s2, s2.Queue("A", 0), "new"); r.QueueOffset < 10 {
			t.Errorf("seed %d: offset %d given again, 10 were acknowledged", seed, r.QueueOffset)
		}
		s2.Close()
	}
}

// A reader that opens a queue file while its topic is deleted does not make the
// new units go to the removed file.
func TestReaderBesideDeleteTopic(t *testing.T) {
	s, ffs, o := faultStore(t, nil)
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
