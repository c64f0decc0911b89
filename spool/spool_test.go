package spool

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"math/rand/v2"
	"net/netip"
	"os"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
)

// testOptions are a store of small files in dir.
func testOptions(t testing.TB, dir string) Options {
	var w io.Writer = io.Discard
	if os.Getenv("SPOOL_TEST_LOG") != "" {
		w = os.Stderr
	}
	return Options{
		Dir: dir, SegmentBytes: 64 << 10, QueueFileEntries: 100,
		StoreHost: netip.MustParseAddrPort("127.0.0.1:10911"),
		Logger:    slog.New(slog.NewTextHandler(w, nil)),
	}
}

func mustOpen(t testing.TB, o Options) *Spool {
	t.Helper()
	s, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// start runs s and returns a function that stops it.
func start(t testing.TB, s *Spool) (stop func()) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- s.Run(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-ended; err != nil {
			t.Errorf("Run: %v", err)
		}
	}
	t.Cleanup(stop)
	return stop
}

func msg(body string) *message.Message {
	return &message.Message{
		BornHost: netip.MustParseAddrPort("10.0.0.1:4321"), BornTimestamp: 1,
		Body: []byte(body), Properties: []byte("TAGS\x01a\x02"),
	}
}

// put appends one message and waits until it is durable.
func put(t testing.TB, s *Spool, q *Queue, body string) Result {
	t.Helper()
	var b Batch
	if _, err := b.Add(q, msg(body)); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	if err := s.WaitDurable(t.Context(), b.End()); err != nil {
		t.Fatal(err)
	}
	return b.Result(0)
}

// bodies reads everything in q.
func bodies(t testing.TB, s *Spool, q *Queue) []string {
	t.Helper()
	var out []string
	var recs Records
	for at := q.Min(); at < q.Max(); {
		r := s.Read(q, at, Limit{Messages: 32, Bytes: 256 << 10}, nil, &recs)
		if r.Next <= at {
			t.Fatalf("read at %d: %v, next %d", at, r.Status, r.Next)
		}
		body := recs.AppendTo(nil)
		if err := message.EachRecord(body, func(rec []byte) bool {
			var m message.Message
			if err := message.Decode(rec, &m); err != nil {
				t.Fatal(err)
			}
			out = append(out, string(m.Body))
			return true
		}); err != nil {
			t.Fatal(err)
		}
		recs.Release()
		at = r.Next
	}
	return out
}

func TestAppendReadReopen(t *testing.T) {
	dir := t.TempDir()
	var want []string
	for round := range 4 {
		s := mustOpen(t, testOptions(t, dir))
		q := s.Queue("TopicTest", 1)
		if got := bodies(t, s, q); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d: got %d messages, want %d", round, len(got), len(want))
		}
		stop := start(t, s)
		for i := range 300 {
			body := fmt.Sprintf("round %d message %d %0300d", round, i, i)
			r := put(t, s, q, body)
			if r.QueueOffset != int64(len(want)) {
				t.Fatalf("queue offset %d, want %d", r.QueueOffset, len(want))
			}
			want = append(want, body)
		}
		if err := q.Wait(t.Context(), int64(len(want)-1)); err != nil {
			t.Fatal(err)
		}
		if got := bodies(t, s, q); fmt.Sprint(got) != fmt.Sprint(want) {
			t.Fatalf("round %d: got %d messages, want %d", round, len(got), len(want))
		}
		stop()
	}
}

func newRand(seed uint64) *rand.Rand { return rand.New(rand.NewPCG(seed, 1)) }

func decode(t testing.TB, rec []byte) message.Message {
	t.Helper()
	var m message.Message
	if err := message.Decode(rec, &m); err != nil {
		t.Fatal(err)
	}
	return m
}
