package spool

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
)

// retired makes a store whose first queue has lost its oldest messages with
// their segments, and returns it running.
func retired(t *testing.T) (*Spool, *Queue) {
	t.Helper()
	o := testOptions(t, t.TempDir())
	o.SegmentBytes, o.MaxBytes, o.QueueFileEntries = 16<<10, 64<<10, 20
	s := mustOpen(t, o)
	start(t, s)
	q := s.Queue("TopicTest", 0)
	for i := range 200 {
		put(t, s, q, fmt.Sprintf("message %04d %0600d", i, i))
	}
	if err := q.Wait(t.Context(), 199); err != nil {
		t.Fatal(err)
	}
	s.retain()
	if q.Min() == 0 || q.Min() >= q.Max() {
		t.Fatalf("queue is [%d, %d)", q.Min(), q.Max())
	}
	return s, q
}

// F45: what a read outside the queue's range is answered.
func TestReadStatus(t *testing.T) {
	s, q := retired(t)
	lo, hi := q.Min(), q.Max()
	var recs Records
	tests := []struct {
		name   string
		q      *Queue
		offset int64
		status ReadStatus
		next   int64
	}{
		{"at the end", q, hi, OffsetOverflowOne, hi},
		{"beyond the end", q, hi + 1, OffsetOverflowBadly, hi},
		{"far beyond", q, 1 << 60, OffsetOverflowBadly, hi},
		{"below the start", q, lo - 1, OffsetTooSmall, lo},
		{"negative", q, -1, OffsetTooSmall, lo},
		{"no data, offset 5", s.Queue("TopicTest", 9), 5, NoMessageInQueue, 0},
		{"no data, offset 0", s.Queue("TopicTest", 9), 0, NoMessageInQueue, 0},
		{"no queue", s.LookupQueue([]byte("Nope"), 0), 0, NoMatchedLogicQueue, 0},
		{"first", q, lo, Found, lo + 32},
	}
	for _, tt := range tests {
		r := s.Read(tt.q, tt.offset, Limit{Messages: 32}, nil, &recs)
		if r.Status != tt.status || r.Next != tt.next {
			t.Errorf("%s: %v next %d, want %v next %d", tt.name, r.Status, r.Next, tt.status, tt.next)
		}
		if tt.q == q && (r.Min != lo || r.Max != hi) {
			t.Errorf("%s: [%d, %d), want [%d, %d)", tt.name, r.Min, r.Max, lo, hi)
		}
		recs.Release()
	}
	if Found.String() != "FOUND" || NoMessageInQueue.String() != "NO_MESSAGE_IN_QUEUE" {
		t.Error("names of statuses differ from RocketMQ's")
	}
}

// Count and bytes bound a read, but the first record always comes.
func TestReadLimits(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 1 << 20
	s := mustOpen(t, o)
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	var b Batch
	for i := range 2000 {
		m := msg(strings.Repeat("x", 100))
		if i%1000 == 999 {
			m.Properties = []byte("TAGS\x01rare\x02")
		}
		if _, err := b.Add(q, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitDurable(t.Context(), b.End()); err != nil {
		t.Fatal(err)
	}
	for s.dispatchRound() == nil {
	}
	size := b.entries[0].end - b.entries[0].start
	rare := func(code int64) bool { return code == message.TagHash([]byte("rare")) }
	tests := []struct {
		name   string
		offset int64
		limit  Limit
		filter Filter
		status ReadStatus
		n      int
		next   int64
	}{
		{"count", 10, Limit{Messages: 7, Bytes: 1 << 20}, nil, Found, 7, 17},
		{"bytes", 10, Limit{Messages: 100, Bytes: 3*size + 1}, nil, Found, 3, 13},
		{"first is too big", 10, Limit{Messages: 100, Bytes: 1}, nil, Found, 1, 11},
		{"zero limit", 10, Limit{}, nil, Found, 1, 11},
		{"match within the scan", 500, Limit{Messages: 1}, rare, Found, 1, 1000},
		{"no match within the scan", 0, Limit{Messages: 32}, rare, NoMatchedMessage, 0, 800},
		{"longer scan for a longer limit", 0, Limit{Messages: 1000}, rare, Found, 1, 1000},
	}
	var recs Records
	for _, tt := range tests {
		r := s.Read(q, tt.offset, tt.limit, tt.filter, &recs)
		if r.Status != tt.status || recs.Len() != tt.n || r.Next != tt.next {
			t.Errorf("%s: %v, %d records, next %d; want %v, %d, %d", tt.name, r.Status, recs.Len(), r.Next, tt.status, tt.n, tt.next)
		}
		recs.Release()
	}
	if allocs := testing.AllocsPerRun(100, func() {
		s.Read(q, 0, Limit{Messages: 32}, nil, &recs)
		recs.Release()
	}); allocs > 0 {
		t.Errorf("a read allocates %v times", allocs)
	}
}

// ReadAt finds records by log offset and nothing else.
func TestReadAt(t *testing.T) {
	s := mustOpen(t, testOptions(t, t.TempDir()))
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "one")
	r := put(t, s, q, "two")
	var recs Records
	if err := s.ReadAt(r.PhysicalOffset, &recs); err != nil || recs.Len() != 1 {
		t.Fatalf("%d records: %v", recs.Len(), err)
	}
	recs.Each(func(rec []byte) bool {
		var m message.Message
		if err := message.Decode(rec, &m); err != nil || string(m.Body) != "two" {
			t.Errorf("%q: %v", m.Body, err)
		}
		return true
	})
	recs.Release()
	for _, at := range []int64{-1, 1, r.PhysicalOffset + 1, s.Stats().MaxOffset, 1 << 50} {
		if err := s.ReadAt(at, &recs); err == nil {
			t.Errorf("a record at %d", at)
		}
		recs.Release()
	}
}

// F15: search by time at its edges.
func TestOffsetByTime(t *testing.T) {
	for _, roll := range []bool{false, true} {
		o := testOptions(t, t.TempDir())
		o.SegmentBytes, o.QueueFileEntries = 16<<10, 2
		now := time.UnixMilli(0)
		o.Now = func() time.Time { return now }
		s := mustOpen(t, o)
		q := s.Queue("TopicTest", 0)
		for _, ms := range []int64{100, 200, 200, 200, 300} {
			now = time.UnixMilli(ms)
			put(t, s, q, "m")
			if roll {
				put(t, s, s.Queue("Other", 0), strings.Repeat("x", 15<<10))
			}
		}
		now = time.UnixMilli(50) // a clock that steps back
		put(t, s, s.Queue("Back", 0), "m")
		for s.dispatchRound() == nil {
		}
		tests := []struct {
			ms    int64
			upper bool
			want  int64
		}{
			{50, false, 0}, {100, false, 0}, {200, false, 1}, {250, false, 4}, {300, false, 4}, {301, false, 5},
			{99, true, 0}, {100, true, 0}, {200, true, 3}, {299, true, 3}, {300, true, 4}, {999, true, 4},
		}
		for _, tt := range tests {
			if got := s.OffsetByTime(q, tt.ms, tt.upper); got != tt.want {
				t.Errorf("roll %v, %d ms, upper %v: %d, want %d", roll, tt.ms, tt.upper, got, tt.want)
			}
		}
		if got := s.OffsetByTime(s.Queue("TopicTest", 5), 100, false); got != 0 {
			t.Errorf("empty queue: %d", got)
		}
		if got := s.EarliestStoreTime(q); got != 100 {
			t.Errorf("earliest store time %d", got)
		}
		if got := s.EarliestStoreTime(s.Queue("Back", 0)); got != 300 {
			t.Errorf("store time went back to %d", got)
		}
		if got := s.EarliestStoreTime(s.Queue("TopicTest", 5)); got != -1 {
			t.Errorf("earliest of an empty queue %d", got)
		}
		s.Close()
	}
	s, q := retired(t)
	if got := s.OffsetByTime(q, 0, false); got != q.Min() {
		t.Errorf("older than everything: %d, want the minimum %d", got, q.Min())
	}
	if got := s.OffsetByTime(q, 0, true); got != q.Min() {
		t.Errorf("upper, older than everything: %d, want the minimum %d", got, q.Min())
	}
}

// Waiting ends with growth, with the context, and is never missed.
func TestWait(t *testing.T) {
	s := mustOpen(t, testOptions(t, t.TempDir()))
	stop := start(t, s)
	q := s.Queue("TopicTest", 0)
	const n = 300
	ended := make(chan error)
	for range 4 {
		go func() {
			for at := int64(0); at < n; at++ {
				if err := q.Wait(t.Context(), at); err != nil {
					ended <- err
					return
				}
			}
			ended <- nil
		}()
	}
	for range n {
		put(t, s, q, "m")
	}
	for range 4 {
		if err := <-ended; err != nil {
			t.Error(err)
		}
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := q.Wait(ctx, n); err != context.Canceled {
		t.Errorf("wait beyond the end: %v", err)
	}
	stop()
}

// F44: steps of the wall clock, forward or back, are not age.
func TestRetentionClock(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		const age = 72 * time.Hour
		newest := time.Now().UnixMilli()
		c := newRetentionClock(time.Now(), newest, age)
		wall := time.Now()
		time.Sleep(time.Hour)
		for name, step := range map[string]time.Duration{"+25 y": 25 * 365 * 24 * time.Hour, "+1 h": time.Hour, "none": 0} {
			if got := c.now(wall.Add(time.Hour + step)); got != newest+time.Hour.Milliseconds() {
				t.Errorf("%s: the clock is at +%v", name, time.Duration(got-newest)*time.Millisecond)
			}
		}
		if got := c.now(wall.Add(-time.Hour)); got >= newest {
			t.Errorf("a wall clock behind makes messages older: +%v", time.Duration(got-newest)*time.Millisecond)
		}
		// Started with a clock in 2050, or after a long time off.
		c = newRetentionClock(wall.Add(25*365*24*time.Hour), newest, age)
		if got := c.now(wall.Add(25 * 365 * 24 * time.Hour)); got > newest+age.Milliseconds()/2 {
			t.Errorf("start in the future: +%v", time.Duration(got-newest)*time.Millisecond)
		}
	})
}

// F13: properties up to the format's limit are stored and read back exactly,
// longer ones are refused and leave nothing behind.
func TestPropertiesLimit(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 1 << 20
	s := mustOpen(t, o)
	defer s.Close()
	q := s.Queue("TopicTest", 0)
	props := func(n int) []byte { return []byte("k\x01" + strings.Repeat("v", n-3) + "\x02") }
	var b Batch
	for _, n := range []int{32768, 65546} {
		m := msg("m")
		m.Properties = props(n)
		if _, err := b.Add(q, m); err == nil {
			t.Errorf("%d bytes of properties accepted", n)
		}
		if _, err := b.AddGroup(q, []message.Message{*msg("a"), *m, *msg("b")}); err == nil {
			t.Errorf("%d bytes of properties accepted in a group", n)
		}
	}
	if b.Len() != 0 || b.Size() != 0 {
		t.Fatalf("refused messages left %d entries of %d bytes", b.Len(), b.Size())
	}
	sizes := []int{32767, 32747, 32746, 100}
	for _, n := range sizes {
		m := msg("m")
		m.Properties = props(n)
		if _, err := b.Add(q, m); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	s.Close()
	s = mustOpen(t, o)
	defer s.Close()
	q = s.Queue("TopicTest", 0)
	var recs Records
	s.Read(q, 0, Limit{Messages: 10}, nil, &recs)
	defer recs.Release()
	var got []int
	if err := message.EachRecord(recs.AppendTo(nil), func(rec []byte) bool {
		var m message.Message
		if err := message.Decode(rec, &m); err != nil || string(m.Properties) != string(props(len(m.Properties))) {
			t.Errorf("%d bytes of properties differ: %v", len(m.Properties), err)
		}
		got = append(got, len(m.Properties))
		return true
	}); err != nil || !slices.Equal(got, sizes) {
		t.Errorf("read properties of %v bytes, want %v: %v", got, sizes, err)
	}
}
