package sidecar

import (
	"fmt"
	"math/rand/v2"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/upstream"
)

// oneQueue makes new topics have one queue, and batches of at most n messages.
func oneQueue(n int) func(*setup) {
	return func(s *setup) {
		s.DefaultQueues = 1
		for name, up := range s.Upstreams {
			up.Limit.Messages = n
			s.Upstreams[name] = up
		}
	}
}

// TestOrderIsKeptWhateverFailsWhere fails a batch of five at each position, in
// each way, with more messages behind it.
func TestOrderIsKeptWhateverFailsWhere(t *testing.T) {
	const size = 5
	type fault struct {
		name string
		make func(at int) verdict
	}
	faults := []fault{
		{"refused", func(at int) verdict { return verdict{store: at, accept: at, err: errScripted} }},
		{"unavailable", func(at int) verdict {
			return verdict{store: at, accept: at, err: fmt.Errorf("%w: gone", upstream.ErrUnavailable)}
		}},
		// The answer was lost: everything is stored, and only a part is known to be.
		{"doubt", func(at int) verdict { return verdict{store: size, accept: at, err: errScripted} }},
	}
	verdicts := map[string]verdict{}
	for _, f := range faults {
		for at := range size {
			verdicts[fmt.Sprintf("%s-%d", f.name, at)] = f.make(at)
		}
	}
	failed := map[string]bool{}
	up := newScript(func(_ int, topic string, batch []message.Message) verdict {
		switch {
		case failed[topic]:
			return take(len(batch))
		case len(batch) < size: // until all of them have arrived
			return verdict{err: errScripted}
		}
		failed[topic] = true
		return verdicts[topic]
	})
	s := start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, oneQueue(size))
	bodies := numbered("m", 3*size+1)
	for topic := range verdicts {
		s.mustLines(topic, "", bodies...)
	}
	for topic := range verdicts {
		up.has(t, topic+"/0", len(bodies))
	}
	for topic, v := range verdicts {
		up.wantBodies(t, topic+"/0", size, bodies)
		if doubles := len(up.of(topic+"/0")) - len(bodies); doubles != v.store-v.accept {
			t.Errorf("%s: %d doubles, want the %d that were in doubt", topic, doubles, v.store-v.accept)
		}
	}
}

func TestCursorMovesOnlyWithAcknowledgement(t *testing.T) {
	up := newScript(func(_ int, _ string, batch []message.Message) verdict {
		if len(batch) < 2 {
			return verdict{err: errScripted}
		}
		return verdict{store: 2, hang: true} // stored, and nobody hears of it
	})
	dir := t.TempDir()
	s := start(t, dir, map[string]upstream.Sender{"up": up}, oneQueue(5))
	bodies := numbered("m", 5)
	for _, body := range bodies[:2] {
		s.must("orders", body)
	}
	up.until(t, "a batch under way", func() bool { return len(up.stored["orders/0"]) >= 2 })
	wantCursor := func(offset int64) {
		t.Helper()
		for _, c := range s.spool.Cursors() {
			if c.Topic == "orders" && c.Offset != offset {
				t.Errorf("cursor at %d, want %d", c.Offset, offset)
			}
		}
	}
	wantCursor(0)
	s.stop()

	// A sender may report a part even when it was stopped.
	up.rejudge(func(_ int, _ string, batch []message.Message) verdict {
		if len(batch) < 2 {
			return verdict{err: errScripted}
		}
		return verdict{store: 2, accept: 1, hang: true}
	})
	before := up.calls
	s = start(t, dir, map[string]upstream.Sender{"up": up}, oneQueue(5))
	up.until(t, "the batch again", func() bool { return up.calls > before })
	s.stop()
	wantCursor(1)

	up.rejudge(nil)
	s = start(t, dir, map[string]upstream.Sender{"up": up}, oneQueue(5))
	s.mustLines("orders", "", bodies[2:]...)
	up.has(t, "orders/0", 5)
	up.wantBodies(t, "orders/0", 2, bodies)
}

// TestNothingIsLostWhenStoppedAtAnyMoment stops the sidecar again and again
// while messages come in and an unreliable upstream takes them.
func TestNothingIsLostWhenStoppedAtAnyMoment(t *testing.T) {
	const size, rounds, queues = 7, 20, 3
	seed := rand.Uint64()
	t.Logf("seed %d", seed)
	random := rand.New(rand.NewPCG(seed, 0))
	// The upstream's own dice: it throws them while the test throws its.
	dice := rand.New(rand.NewPCG(seed, 1))
	unreliable := func(_ int, _ string, batch []message.Message) verdict {
		switch dice.IntN(4) {
		case 0:
			return take(len(batch))
		case 1:
			return verdict{store: dice.IntN(len(batch) + 1), hang: true}
		}
		v := verdict{store: dice.IntN(len(batch) + 1)}
		v.accept = dice.IntN(v.store + 1)
		return v
	}
	up := newScript(unreliable)
	dir := t.TempDir()
	change := func(s *setup) {
		oneQueue(size)(s)
		s.DefaultQueues = queues
	}
	want := map[string][]string{}
	for round := range rounds {
		s := start(t, dir, map[string]upstream.Sender{"up": up}, change)
		for n := range 6 {
			key := fmt.Sprintf("key-%d", random.IntN(5))
			bodies := numbered(fmt.Sprintf("%s-r%d-n%d", key, round, n), 1+random.IntN(2*size))
			id := fmt.Sprintf("orders/%d", s.mustLines("orders", key, bodies...)[0].Queue)
			want[id] = append(want[id], bodies...)
		}
		enough := random.IntN(12)
		up.until(t, "some calls, or no more to wait for", func() bool {
			enough--
			rest := 0 // lanes that can still do something
			for id, bodies := range want {
				if !up.busy[id] && len(distinct(up.stored[id])) < len(bodies) {
					rest++
				}
			}
			return enough < 0 || rest == 0
		})
		s.stop()
	}
	up.rejudge(nil)
	s := start(t, dir, map[string]upstream.Sender{"up": up}, change)
	doubles := 0
	for id, bodies := range want {
		up.has(t, id, len(bodies))
	}
	s.drained("up", "orders")
	for id, bodies := range want {
		up.wantBodies(t, id, size, bodies)
		doubles += len(up.of(id)) - len(bodies)
	}
	t.Logf("%d doubles of batches in doubt", doubles)
}

func TestRejectedMessageIsParkedAndTheRestGoesOn(t *testing.T) {
	up := newScript(func(_ int, _ string, batch []message.Message) verdict {
		for i := range batch {
			if strings.HasPrefix(string(batch[i].Body), "bad") {
				return verdict{store: i, accept: i, err: fmt.Errorf("send: %w", &upstream.RejectedError{Reason: "too\nbig"})}
			}
		}
		return take(len(batch))
	})
	s := start(t, t.TempDir(), map[string]upstream.Sender{"core": up}, oneQueue(4))
	sent := s.mustLines("orders", "", "a", "bad-1", "b", "bad-2", "bad-3", "c", "d")
	up.has(t, "orders/0", 4)
	up.wantBodies(t, "orders/0", 1, []string{"a", "b", "c", "d"})
	parked := s.parked("core", 3)
	for i, line := range []int{1, 3, 4} {
		m := &parked[i]
		if want := fmt.Sprintf("bad-%d", i+1); string(m.Body) != want {
			t.Errorf("parked message %d is %q, want %q", i, m.Body, want)
		}
		for name, want := range map[string]string{
			message.PropertyDeadLetterOriginTopic: "orders", "SLUICE_REASON": "too big", message.PropertyUniqueKey: sent[line].ID,
		} {
			if got, _ := m.Property(name); got != want {
				t.Errorf("parked message %d: property %s is %q, want %q", i, name, got, want)
			}
		}
		seen := map[string]int{}
		message.EachProperty(m.Properties, func(name, _ []byte) bool { seen[string(name)]++; return true })
		for name, n := range seen {
			if n > 1 {
				t.Errorf("parked message %d has property %s %d times", i, name, n)
			}
		}
	}
	if n := s.metric(`sluice_lane_parked_messages_total{upstream="core"}`); n != 3 {
		t.Errorf("metric says %g parked messages, want 3", n)
	}
	if n := s.backlog("core", "%DLQ%SLUICE_core"); n != -1 {
		t.Errorf("a lane forwards the parked messages: backlog %g", n)
	}
}

// TestRejectedMessageWithFullPropertiesIsParked leaves no room for the reason.
func TestRejectedMessageWithFullPropertiesIsParked(t *testing.T) {
	up := newScript(func(_ int, _ string, batch []message.Message) verdict {
		if string(batch[0].Body) == "bad" {
			return verdict{err: &upstream.RejectedError{Reason: strings.Repeat("no ", 1000)}}
		}
		return take(1)
	})
	s := start(t, t.TempDir(), map[string]upstream.Sender{"core": up}, oneQueue(1))
	s.must("orders", "bad", "X-Sluice-Key", strings.Repeat("k", message.MaxPropertiesLen-200))
	s.must("orders", "good")
	up.has(t, "orders/0", 1)
	if parked := s.parked("core", 1); string(parked[0].Body) != "bad" {
		t.Errorf("%q is parked", parked[0].Body)
	}
}

// TestDeletedTopicStartsAnew deletes a topic that was forwarded; its offsets
// begin at 0 again, and so must its lanes.
func TestDeletedTopicStartsAnew(t *testing.T) {
	up := newScript(nil)
	s := start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, oneQueue(5))
	before := numbered("before", 4)
	s.mustLines("orders", "", before...)
	up.has(t, "orders/0", 4)
	s.drained("up", "orders")
	s.deleteTopic("orders")
	after := numbered("after", 3)
	s.mustLines("orders", "", after...)
	up.has(t, "orders/0", 7)
	var got []string
	for _, m := range up.of("orders/0") {
		got = append(got, m.body)
	}
	if want := append(before, after...); strings.Join(got, " ") != strings.Join(want, " ") {
		t.Errorf("upstream has %q, want %q", got, want)
	}
	for _, c := range s.spool.Cursors() {
		if c.Topic == "orders" && c.Offset == 3 {
			return
		}
	}
	t.Errorf("the new lane has no durable cursor: %+v", s.spool.Cursors())
}

// TestParkingGoesOnInAFullSpool fills the spool while the upstream is away. The
// first message that it then refuses for good must not hold up the rest: a full
// spool drains in no other way. It happens three times, so the room for it must
// be there again.
func TestParkingGoesOnInAFullSpool(t *testing.T) {
	const segment, limit = 64 << 10, 192 << 10
	up := newScript(down)
	s := start(t, t.TempDir(), map[string]upstream.Sender{"core": up}, func(o *setup) {
		oneQueue(5)(o)
		o.Spool.SegmentBytes, o.Spool.MaxBytes, o.Spool.MaxMessageBytes = segment, limit, 32<<10
	})
	stored := 0
	for round := range 3 {
		bad := int64(stored)
		stored += s.fill("orders", 4<<10)
		up.rejudge(func(_ int, _ string, batch []message.Message) verdict {
			if batch[0].QueueOffset == bad {
				return verdict{err: &upstream.RejectedError{Reason: "never"}}
			}
			return take(len(batch))
		})
		up.has(t, "orders/0", stored-round-1)
		// Those of earlier rounds may have made room already.
		parked := s.spool.Queue("%DLQ%SLUICE_core", 0)
		await(t, "the parked message", func() bool { return parked.Max() == int64(round+1) })
		if used := s.spool.Stats().Bytes; used > limit+segment {
			t.Errorf("round %d: the spool takes %d bytes, more than one segment beyond its limit", round, used)
		}
		await(t, "a spool that takes messages again", func() bool { return s.spool.Writable() == nil })
		up.rejudge(down)
	}
}
