package spool

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
)

// model is what a spool holds, as plain data.
type model struct {
	queues  map[string][]string // all that was ever appended since the topic was made
	cursors map[string]int64
}

// TestModel does random operations on a spool and on a map, and compares them.
// A crash here is one without loss of written data, as by kill -9.
func TestModel(t *testing.T) {
	for seed := range uint64(4) {
		for _, mode := range []FlushMode{FlushSync, FlushAsync} {
			t.Run(fmt.Sprintf("%v/seed=%d", mode, seed), func(t *testing.T) {
				modelRun(t, mode, rand.New(rand.NewPCG(seed, 3)))
			})
		}
	}
}

func modelRun(t *testing.T, mode FlushMode, rng *rand.Rand) {
	o := testOptions(t, t.TempDir())
	o.Flush, o.SegmentBytes, o.QueueFileEntries = mode, 16<<10, 16
	m := &model{queues: make(map[string][]string), cursors: make(map[string]int64)}
	topics := []string{"TopicA", "%RETRY%group", strings.Repeat("LongName", 20)}
	s := mustOpen(t, o)
	stop := start(t, s)
	for step := range 400 {
		topic, id := topics[rng.IntN(len(topics))], int32(rng.IntN(3))
		q := s.Queue(topic, id)
		switch op := rng.IntN(100); {
		case op < 60:
			m.append(t, s, rng, topics, step)
		case op < 75:
			m.compare(t, s, q)
		case op < 85:
			c, err := s.Cursor("lane", q, 0)
			if err != nil {
				t.Fatal(err)
			}
			key := fmt.Sprintf("%s/%d", topic, id)
			to := rng.Int64N(int64(len(m.queues[key])) + 1)
			c.Advance(to)
			m.cursors[key] = max(m.cursors[key], to)
		case op < 88:
			if err := s.DeleteTopic(topic); err != nil {
				t.Fatal(err)
			}
			for i := range int32(3) {
				delete(m.queues, fmt.Sprintf("%s/%d", topic, i))
				delete(m.cursors, fmt.Sprintf("%s/%d", topic, i))
			}
		case op < 92:
			if err := s.saveCheckpoint(); err != nil {
				t.Fatal(err)
			}
		case op < 96: // stop and start
			stop()
			checkStore(t, o.Dir, int64(o.QueueFileEntries), true)
			s = mustOpen(t, o)
			m.compareAll(t, s)
			stop = start(t, s)
		default: // crash between two runs
			stop()
			s = mustOpen(t, o)
			m.append(t, s, rng, topics, step)
			if err := s.Close(); err != nil {
				t.Fatal(err)
			}
			s = mustOpen(t, o)
			m.compareAll(t, s)
			stop = start(t, s)
		}
		if t.Failed() {
			t.Fatalf("at step %d", step)
		}
	}
	m.compareAll(t, s)
}

func (m *model) append(t *testing.T, s *Spool, rng *rand.Rand, topics []string, step int) {
	t.Helper()
	var b Batch
	type place struct {
		key  string
		i, n int
	}
	var places []place
	for n := rng.IntN(4); n >= 0; n-- {
		topic, id := topics[rng.IntN(len(topics))], int32(rng.IntN(3))
		q, key := s.Queue(topic, id), fmt.Sprintf("%s/%d", topic, id)
		var ms []message.Message
		for range 1 + rng.IntN(3) {
			body := fmt.Sprintf("%d-%0*d", step, rng.IntN(1500), rng.IntN(10))
			ms = append(ms, *msg(body))
			m.queues[key] = append(m.queues[key], body)
		}
		first, err := b.AddGroup(q, ms)
		if err != nil {
			t.Fatal(err)
		}
		places = append(places, place{key, first, len(ms)})
	}
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitDurable(t.Context(), b.End()); err != nil {
		t.Fatal(err)
	}
	for _, p := range places {
		first := b.Result(p.i)
		for j := range p.n {
			r := b.Result(p.i + j)
			if r.Err != nil || r.QueueOffset != first.QueueOffset+int64(j) {
				t.Errorf("group of %d: message %d has %+v, the first %+v", p.n, j, r, first)
			}
			if r.PhysicalOffset/s.o.SegmentBytes != first.PhysicalOffset/s.o.SegmentBytes {
				t.Errorf("group in two segments: %d and %d", first.PhysicalOffset, r.PhysicalOffset)
			}
		}
	}
}

func (m *model) compare(t *testing.T, s *Spool, q *Queue) {
	t.Helper()
	key := fmt.Sprintf("%s/%d", q.Topic(), q.ID())
	want := m.queues[key]
	if len(want) > 0 {
		if err := q.Wait(t.Context(), int64(len(want))-1); err != nil {
			t.Fatal(err)
		}
	}
	if got := bodies(t, s, q); !slices.Equal(got, want) {
		t.Errorf("%.20s: %d messages, want %d", key, len(got), len(want))
	}
}

func (m *model) compareAll(t *testing.T, s *Spool) {
	t.Helper()
	for key := range m.queues {
		topic, id, err := cutName(key)
		if err != nil {
			t.Fatal(err)
		}
		m.compare(t, s, s.Queue(topic, id))
	}
	for _, c := range s.Cursors() {
		if want := m.cursors[fmt.Sprintf("%s/%d", c.Topic, c.QueueID)]; c.Offset != want {
			t.Errorf("cursor in %.20s queue %d is at %d, want %d", c.Topic, c.QueueID, c.Offset, want)
		}
	}
}
