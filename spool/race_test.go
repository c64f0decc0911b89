package spool

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"testing"

	"go.uber.org/goleak"
)

// TestConcurrent lets producers, consumers, cursors, searches, retention and
// deletion of topics loose on one spool. The race detector and the order of
// what consumers see are the test.
func TestConcurrent(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes, o.MaxBytes, o.QueueFileEntries = 16<<10, 256<<10, 32
	s := mustOpen(t, o)
	stop := start(t, s)
	const producers, messages = 4, 300
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var wg sync.WaitGroup
	for p := range producers {
		q := s.Queue("TopicTest", int32(p))
		wg.Go(func() { produce(t, s, q, messages) })
		wg.Go(func() { consume(t, s, q, messages) })
	}
	var busy sync.WaitGroup
	for _, f := range []func(i int){
		func(int) { s.Stats(); s.retain() },
		func(i int) { s.OffsetByTime(s.Queue("TopicTest", int32(i%producers)), 1, false) },
		func(int) {
			q := s.Queue("Gone", 0)
			var b Batch
			if _, err := b.Add(q, msg("m")); err != nil {
				t.Error(err)
			}
			if err := s.Append(&b); err == nil {
				if err := s.DeleteTopic("Gone"); err != nil {
					t.Error(err)
				}
			}
		},
		func(int) {
			if err := s.saveCheckpoint(); err != nil {
				t.Error(err)
			}
		},
	} {
		busy.Go(func() {
			for i := 0; ctx.Err() == nil; i++ {
				f(i)
			}
		})
	}
	wg.Wait()
	cancel()
	busy.Wait()
	stop()
	checkStore(t, o.Dir, int64(o.QueueFileEntries), false)
}

func produce(t *testing.T, s *Spool, q *Queue, n int) {
	var b Batch
	for i := 0; i < n; {
		b.Reset()
		if _, err := b.Add(q, msg(fmt.Sprintf("%d %0300d", i, i))); err != nil {
			t.Error(err)
			return
		}
		switch err := s.Append(&b); {
		case errors.Is(err, ErrFull): // what is not dispatched yet cannot be deleted
			continue
		case err != nil:
			t.Error(err)
			return
		}
		if r := b.Result(0); r.QueueOffset != int64(i) {
			t.Errorf("offset %d, want %d", r.QueueOffset, i)
		}
		if i%3 == 0 {
			if err := s.WaitDurable(t.Context(), b.End()); err != nil {
				t.Error(err)
			}
		}
		i++
	}
}

func consume(t *testing.T, s *Spool, q *Queue, n int) {
	c, err := s.Cursor("reader", q, 0)
	if err != nil {
		t.Error(err)
		return
	}
	var recs Records
	for at := int64(0); at < int64(n); {
		if err := q.Wait(t.Context(), at); err != nil {
			t.Error(err)
			return
		}
		r := s.Read(q, at, Limit{Messages: 16, Bytes: 4 << 10}, nil, &recs)
		recs.Each(func(rec []byte) bool {
			var i int
			m := decode(t, rec)
			if _, err := fmt.Sscanf(string(m.Body), "%d", &i); err != nil || int64(i) != m.QueueOffset || m.QueueOffset < at {
				t.Errorf("read at %d: offset %d holds %.10q", at, m.QueueOffset, m.Body)
			}
			return true
		})
		recs.Release()
		if r.Next < at {
			t.Errorf("read at %d sends back to %d", at, r.Next)
		}
		at = r.Next
		c.Advance(at)
	}
}

// Nothing goes on behind a spool that has stopped, and calls say so.
func TestAfterStop(t *testing.T) {
	defer goleak.VerifyNone(t)
	s := mustOpen(t, testOptions(t, t.TempDir()))
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "m")
	cancel()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	var b Batch
	if _, err := b.Add(q, msg("late")); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&b); !errors.Is(err, ErrClosed) || !errors.Is(s.Writable(), ErrClosed) {
		t.Errorf("append after the stop: %v", err)
	}
	if err := s.WaitDurable(t.Context(), s.written.Load()+1); !errors.Is(err, ErrClosed) {
		t.Errorf("wait after the stop: %v", err)
	}
	var recs Records
	if r := s.Read(q, 0, Limit{Messages: 1}, nil, &recs); r.Status == Found {
		t.Error("a stopped spool still reads")
	}
	recs.Release()
	if err := s.ReadAt(0, &recs); err == nil {
		t.Error("a stopped spool still reads")
	}
	if err := s.Close(); err != nil {
		t.Errorf("close after the stop: %v", err)
	}
}
