package spool

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"testing"
	"time"
)

// limitedOptions are a store of at most 4 small segments.
func limitedOptions(t *testing.T) Options {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes, o.MaxBytes = 16<<10, 64<<10
	o.CursorInterval = time.Millisecond
	return o
}

// F07b: the limit deletes the oldest segments, never the one written to, and
// every queue begins at the first message that is still there.
func TestLimitDeletesOldest(t *testing.T) {
	o := limitedOptions(t)
	o.QueueFileEntries = 8
	s := mustOpen(t, o)
	stop := start(t, s)
	old := s.Queue("Old", 0)
	put(t, s, old, "only message of its queue")
	q := s.Queue("TopicTest", 0)
	for i := range 300 {
		put(t, s, q, fmt.Sprintf("message %04d %0600d", i, i))
		if i%10 == 0 { // let dispatch follow: what is not dispatched stays
			if err := q.Wait(t.Context(), int64(i)); err != nil {
				t.Fatal(err)
			}
		}
		if used := s.Stats().Bytes; used > o.MaxBytes {
			t.Fatalf("%d bytes used, limit %d", used, o.MaxBytes)
		}
	}
	stop()
	s = mustOpen(t, o)
	defer s.Close()
	old, q = s.Queue("Old", 0), s.Queue("TopicTest", 0)
	if old.Min() != 1 || old.Max() != 1 {
		t.Errorf("a queue without messages left is [%d, %d), want [1, 1)", old.Min(), old.Max())
	}
	got := bodies(t, s, q)
	if q.Max() != 300 || len(got) != int(300-q.Min()) || len(got) < 30 {
		t.Errorf("queue is [%d, %d) with %d messages", q.Min(), q.Max(), len(got))
	}
	if files := globSorted(t, o.Dir, "consumequeue", "TopicTest", "0", "*"); len(files) > 300/8-int(q.Min())/8+1 {
		t.Errorf("%d queue files for [%d, 300)", len(files), q.Min())
	}
	if r := put(t, s, old, "next"); r.QueueOffset != 1 {
		t.Errorf("next offset %d, want 1", r.QueueOffset)
	}
}

// A cursor holds back deletion; the store then refuses messages, names the
// cursor, and takes them again once it has moved and is durable.
func TestUnreadIsKept(t *testing.T) {
	o := limitedOptions(t)
	o.KeepUnread = true
	s := mustOpen(t, o)
	stop := start(t, s)
	q := s.Queue("TopicTest", 3)
	c, err := s.Cursor("lane-core", q, 0)
	if err != nil {
		t.Fatal(err)
	}
	var b Batch
	n := 0
	for ; n < 1000; n++ {
		b.Reset()
		if _, err := b.Add(q, msg(fmt.Sprintf("message %04d %0600d", n, n))); err != nil {
			t.Fatal(err)
		}
		if err = s.Append(&b); err != nil {
			break
		}
		if err := s.WaitDurable(t.Context(), b.End()); err != nil {
			t.Fatal(err)
		}
		if err := q.Wait(t.Context(), int64(n)); err != nil {
			t.Fatal(err)
		}
	}
	for _, part := range []string{"65536", "lane-core", "TopicTest", "offset 0"} {
		if !errors.Is(err, ErrFull) || !strings.Contains(err.Error(), part) {
			t.Fatalf("append %d: %v (want %q in it)", n, err, part)
		}
	}
	if w := s.Writable(); !errors.Is(w, ErrFull) {
		t.Errorf("writable: %v", w)
	}
	if got := bodies(t, s, q); q.Min() != 0 || len(got) != n {
		t.Errorf("%d of %d messages are left", len(got), n)
	}
	c.Advance(int64(n))
	for s.Writable() != nil { // until the cursor is saved and retention has seen it
		runtime.Gosched()
	}
	r := put(t, s, q, "again")
	if r.QueueOffset != int64(n) {
		t.Errorf("offset %d, want %d", r.QueueOffset, n)
	}
	stop()
	s = mustOpen(t, o)
	defer s.Close()
	if infos := s.Cursors(); len(infos) != 1 || infos[0].Offset != int64(n) || infos[0].Durable != int64(n) {
		t.Errorf("cursors after the restart: %+v", infos)
	}
}

// Messages older than MaxAge go, younger ones stay.
func TestMaxAge(t *testing.T) {
	o := limitedOptions(t)
	o.MaxBytes, o.MaxAge = 0, time.Hour
	now := time.Now()
	o.Now = func() time.Time { return now }
	s := mustOpen(t, o)
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	for i := range 60 {
		put(t, s, q, fmt.Sprintf("message %04d %0600d", i, i))
	}
	for s.dispatchRound() == nil {
	}
	now = now.Add(25 * 365 * 24 * time.Hour) // a step, not age
	s.retain()
	if n := s.Stats().Retired; n != 0 {
		t.Fatalf("a step of the clock deleted %d segments", n)
	}
	s.clock.start += time.Hour.Milliseconds() + 1
	s.retain()
	st := s.Stats()
	if st.Retired == 0 || st.Segments != 1 {
		t.Errorf("after an hour: %d segments deleted, %d left", st.Retired, st.Segments)
	}
	if got := bodies(t, s, q); len(got) == 0 || int64(len(got)) != q.Max()-q.Min() {
		t.Errorf("queue [%d, %d) has %d messages", q.Min(), q.Max(), len(got))
	}
}

// F23: who reads a segment while it is deleted reads on; its file is gone or
// used again only afterwards.
func TestReaderHoldsDeletedSegment(t *testing.T) {
	o := limitedOptions(t)
	s := mustOpen(t, o)
	start(t, s)
	q := s.Queue("TopicTest", 0)
	var want []string
	put1 := func(i int) {
		body := fmt.Sprintf("message %04d %0600d", i, i)
		if put(t, s, q, body); i < 8 {
			want = append(want, body)
		}
		if err := q.Wait(t.Context(), int64(i)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 8 {
		put1(i)
	}
	var recs Records
	if r := s.Read(q, 0, Limit{Messages: 8}, nil, &recs); r.Status != Found || recs.Len() != 8 {
		t.Fatalf("%v, %d records", r.Status, recs.Len())
	}
	for i := 8; i < 400; i++ {
		put1(i)
	}
	s.retain()
	if q.Min() < 8 {
		t.Fatalf("nothing was deleted: %d", q.Min())
	}
	var got []string
	recs.Each(func(rec []byte) bool {
		var m = decode(t, rec)
		got = append(got, string(m.Body))
		return true
	})
	if !slices.Equal(got, want) {
		t.Errorf("held records changed")
	}
	recs.Release()
	for i := 400; i < 600; i++ {
		put1(i)
	}
	files := globSorted(t, o.Dir, "commitlog", "*")
	if n := s.Stats().Segments; len(files) > n+1 {
		t.Errorf("%d files for %d segments", len(files), n)
	}
}

// F27: a deleted topic stays deleted whatever happens to the queue files, and
// a new one of the same name begins at 0.
func TestDeletedTopicStaysDeleted(t *testing.T) {
	for _, crash := range []bool{false, true} {
		for _, lose := range []bool{false, true} {
			t.Run(fmt.Sprintf("crash=%v/queues lost=%v", crash, lose), func(t *testing.T) {
				o := testOptions(t, t.TempDir())
				s := mustOpen(t, o)
				stop := func() { s.Close() }
				if !crash {
					stop = start(t, s)
				}
				q, other := s.Queue("TopicTest", 0), s.Queue("Other", 0)
				for i := range 10 {
					put(t, s, q, fmt.Sprint(i))
					put(t, s, other, fmt.Sprint(i))
				}
				if !crash {
					if err := q.Wait(t.Context(), 9); err != nil {
						t.Fatal(err)
					}
				}
				if _, err := s.Cursor("lane", q, 0); err != nil {
					t.Fatal(err)
				}
				if err := s.DeleteTopic("TopicTest"); err != nil {
					t.Fatal(err)
				}
				if q.Max() != 0 || len(s.Cursors()) != 0 {
					t.Errorf("deleted queue ends at %d, cursors %v", q.Max(), s.Cursors())
				}
				if r := put(t, s, q, "new"); r.QueueOffset != 0 {
					t.Errorf("first offset of the new topic %d", r.QueueOffset)
				}
				stop()
				if lose {
					os.RemoveAll(filepath.Join(o.Dir, "consumequeue"))
				}
				for range 2 {
					s = mustOpen(t, o)
					if got := bodies(t, s, s.Queue("TopicTest", 0)); !slices.Equal(got, []string{"new"}) {
						t.Errorf("after the restart: %q", got)
					}
					if got := bodies(t, s, s.Queue("Other", 0)); len(got) != 10 {
						t.Errorf("other topic has %d messages", len(got))
					}
					s.Close()
				}
			})
		}
	}
}

// Deleting wakes who waits, and a deleted topic that is not used again has no
// directory.
func TestDeleteTopicWakes(t *testing.T) {
	s := mustOpen(t, testOptions(t, t.TempDir()))
	start(t, s)
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "m")
	if err := q.Wait(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	ended := make(chan error)
	go func() { ended <- q.Wait(t.Context(), 5) }()
	for !q.waited.Load() {
		runtime.Gosched()
	}
	if err := s.DeleteTopic("TopicTest"); err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Errorf("wait: %v", err)
	}
	if _, err := os.Stat(filepath.Join(s.o.Dir, "consumequeue", "TopicTest")); !os.IsNotExist(err) {
		t.Errorf("directory of the deleted topic: %v", err)
	}
	if err := s.DeleteTopic("Unknown"); err != nil {
		t.Errorf("delete what is not there: %v", err)
	}
}

// Cursors come back where they were, within what their queues have.
func TestCursorsAfterCrash(t *testing.T) {
	o := testOptions(t, t.TempDir())
	want := fillStore(t, o, 20, true)
	write := func(name, text string) {
		if err := os.WriteFile(filepath.Join(o.Dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	cursors := func(offset int) string {
		return fmt.Sprintf(`{"cursors":[{"name":"lane","topic":"TopicTest","queue":0,"offset":%d}]}`, offset)
	}
	tests := []struct {
		name      string
		main, bak string
		want      int64
		none      bool
	}{
		{name: "as saved", main: cursors(7), bak: cursors(3), want: 7},
		{name: "beyond the queue", main: cursors(70), want: 10},
		{name: "negative", main: cursors(-5), want: 0},
		{name: "main empty", main: "", bak: cursors(3), want: 3},
		{name: "main half", main: cursors(7)[:20], bak: cursors(3), want: 3},
		{name: "main zeros", main: "\x00\x00\x00", bak: cursors(3), want: 3},
		{name: "both bad", main: "x", bak: "y", none: true},
	}
	for _, tt := range tests {
		os.Remove(filepath.Join(o.Dir, "cursors.json.bak"))
		write("cursors.json", tt.main)
		if tt.bak != "" {
			write("cursors.json.bak", tt.bak)
		}
		s := mustOpen(t, o)
		infos := s.Cursors()
		if tt.none {
			if len(infos) != 0 || len(globSorted(t, o.Dir, "quarantine", "cursors*")) != 2 {
				t.Errorf("%s: %+v", tt.name, infos)
			}
		} else if len(infos) != 1 || infos[0].Offset != tt.want {
			t.Errorf("%s: %+v, want offset %d", tt.name, infos, tt.want)
		}
		if c, err := s.Cursor("lane", s.Queue("TopicTest", 0), 1); err != nil || !tt.none && c.Offset() != tt.want {
			t.Errorf("%s: cursor %v: %v", tt.name, c.Offset(), err)
		}
		if tt.bak == cursors(3) && tt.main != cursors(7) { // a bad file never replaces a good backup
			if b, err := os.ReadFile(filepath.Join(o.Dir, "cursors.json.bak")); err != nil || string(b) != tt.bak {
				t.Errorf("%s: backup is now %q: %v", tt.name, b, err)
			}
		}
		s.Close()
	}
	demand(t, o, want)
}

// F25: many queues do not hold many files open, and come back.
func TestManyQueues(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes, o.MaxOpenFiles, o.QueueFileEntries = 1<<20, 16, 300000
	n := 3000
	if testing.Short() {
		n = 300
	}
	s := mustOpen(t, o)
	stop := start(t, s)
	var b Batch
	for i := range n {
		if _, err := b.Add(s.Queue(fmt.Sprintf("Topic%d", i/4), int32(i%4)), msg("m")); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitDurable(t.Context(), b.End()); err != nil {
		t.Fatal(err)
	}
	for i := range n {
		if err := b.entries[i].queue.Wait(t.Context(), 0); err != nil {
			t.Fatal(err)
		}
	}
	if open := len(s.files.open); open > 16 {
		t.Errorf("%d queue files are open, limit 16", open)
	}
	stop()
	began := time.Now()
	s = mustOpen(t, o)
	t.Logf("%d queues opened in %v", n, time.Since(began))
	defer s.Close()
	for i := range n {
		if q := s.Queue(fmt.Sprintf("Topic%d", i/4), int32(i%4)); q.Max() != 1 || len(bodies(t, s, q)) != 1 {
			t.Fatalf("queue %d is [%d, %d)", i, q.Min(), q.Max())
		}
	}
}
