package sidecar

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/upstream"
)

var errScripted = errors.New("scripted failure")

// A verdict is what a scripted upstream does with one batch: it stores the
// first store messages, says that it accepted the first accept of them, and
// returns err. hang keeps the answer back until the context ends, and stores
// nothing more.
type verdict struct {
	store, accept int
	err           error
	hang          bool
}

func take(n int) verdict { return verdict{store: n, accept: n} }

// A script is an upstream that does what a test says, and remembers everything
// that it stored, queue by queue, in order.
type script struct {
	queues map[string]int // of known topics

	mu      sync.Mutex
	judge   func(call int, topic string, batch []message.Message) verdict // nil: take all
	calls   int
	busy    map[string]bool // queues with a Send under way
	stored  map[string][]storedUp
	changed chan struct{} // closed and replaced with every Send that begins or ends
	faults  []string      // breaches of the lane's side of the contract
}

// storedUp is a message as the upstream has it.
type storedUp struct {
	key, body string
	offset    int64 // in the local queue
	props     map[string]string
}

func newScript(judge func(call int, topic string, batch []message.Message) verdict) *script {
	return &script{judge: judge, queues: map[string]int{}, busy: map[string]bool{},
		stored: map[string][]storedUp{}, changed: make(chan struct{})}
}

func (s *script) Run(ctx context.Context) error {
	<-ctx.Done()
	return nil
}

func (s *script) Queues(_ context.Context, topic string) (int, error) { return s.queues[topic], nil }

func (s *script) Stats() upstream.Stats { return upstream.Stats{} }

func (s *script) Send(ctx context.Context, topic string, queue int, batch []message.Message) (int, error) {
	id := fmt.Sprintf("%s/%d", topic, queue)
	v := s.begin(id, topic, batch)
	defer s.end(id)
	if v.hang {
		<-ctx.Done()
		return v.accept, ctx.Err()
	}
	if v.accept < len(batch) && v.err == nil {
		v.err = errScripted
	}
	return v.accept, v.err
}

func (s *script) begin(id, topic string, batch []message.Message) verdict {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.busy[id] {
		s.faults = append(s.faults, "two batches of queue "+id+" at once")
	}
	if len(batch) == 0 {
		s.faults = append(s.faults, "an empty batch of queue "+id)
	}
	s.busy[id] = true
	v := take(len(batch))
	if s.judge != nil {
		v = s.judge(s.calls, topic, batch)
	}
	s.calls++
	for i := range batch[:v.store] {
		m := &batch[i]
		key, _ := m.Property(message.PropertyUniqueKey)
		s.stored[id] = append(s.stored[id], storedUp{key, string(m.Body), m.QueueOffset, message.ParseProperties(m.Properties)})
	}
	s.note()
	return v
}

func (s *script) end(id string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.busy[id] = false
	s.note()
}

func (s *script) note() {
	close(s.changed)
	s.changed = make(chan struct{})
}

// rejudge changes what the upstream does from now on.
func (s *script) rejudge(judge func(call int, topic string, batch []message.Message) verdict) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.judge = judge
}

// until waits for a state of the script; the condition runs under its lock.
func (s *script) until(t testing.TB, what string, condition func() bool) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	for {
		s.mu.Lock()
		ok, changed := condition(), s.changed
		s.mu.Unlock()
		if ok {
			return
		}
		select {
		case <-changed:
		case <-ctx.Done():
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// has waits until a queue has that many different messages upstream.
func (s *script) has(t testing.TB, id string, n int) {
	t.Helper()
	s.until(t, fmt.Sprintf("%d messages of %s upstream", n, id), func() bool { return len(distinct(s.stored[id])) >= n })
}

// of returns what was stored of a queue, doubles included.
func (s *script) of(id string) []storedUp {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.stored[id])
}

// distinct is what readers are left with when they drop what they have seen.
func distinct(all []storedUp) []storedUp {
	seen := map[string]bool{}
	var first []storedUp
	for _, m := range all {
		if !seen[m.key] {
			seen[m.key] = true
			first = append(first, m)
		}
	}
	return first
}

// wantBodies fails the test unless the queue has these messages upstream, in
// this order, once doubles are dropped, and unless every double is one of the
// batch that was under doubt: the order never goes back by more than depth.
func (s *script) wantBodies(t testing.TB, id string, depth int, bodies []string) {
	t.Helper()
	all := s.of(id)
	var got []string
	for _, m := range distinct(all) {
		got = append(got, m.body)
	}
	if !slices.Equal(got, bodies) {
		t.Fatalf("queue %s has upstream\n%q, want\n%q", id, got, bodies)
	}
	high := int64(-1)
	for _, m := range all {
		if m.offset <= high-int64(depth) {
			t.Errorf("queue %s: offset %d came again after %d: more than %d messages back", id, m.offset, high, depth)
		}
		high = max(high, m.offset)
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for _, fault := range s.faults {
		t.Error(fault)
	}
}
