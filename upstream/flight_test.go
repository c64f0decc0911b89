package upstream

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/nats-io/nats.go"

	"github.com/sluicemq/sluice/client/clienttest"
)

const (
	answerStored  = `{"stream":"SCRIPT","seq":1}`
	answerFull    = `{"error":{"code":503,"err_code":10077,"description":"full"},"stream":"SCRIPT","seq":0}`
	answerTooLong = `{"error":{"code":400,"err_code":10054,"description":"too long"},"stream":"SCRIPT","seq":0}`
)

// A scriptedStream takes the messages of sluice.> on a NATS server in the place
// of JetStream, and answers as the test says.
type scriptedStream struct {
	t  testing.TB
	nc *nats.Conn

	mu     sync.Mutex
	script func(body string, m *nats.Msg) // called for one message at a time
	bodies []string                       // all that came, in order
}

func startScripted(t testing.TB, j *jetStreamServer) *scriptedStream {
	t.Helper()
	nc, err := nats.Connect(j.url())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(nc.Close)
	s := &scriptedStream{t: t, nc: nc}
	s.play(func(_ string, m *nats.Msg) { s.answer(m, answerStored) })
	_, err = nc.Subscribe("sluice.>", func(m *nats.Msg) {
		s.mu.Lock()
		defer s.mu.Unlock()
		s.bodies = append(s.bodies, string(m.Data))
		s.script(string(m.Data), m)
	})
	if err == nil {
		err = nc.Flush()
	}
	if err != nil {
		t.Fatal(err)
	}
	return s
}

// play changes the script and forgets what came before.
func (s *scriptedStream) play(script func(body string, m *nats.Msg)) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.script, s.bodies = script, nil
}

func (s *scriptedStream) came() []string {
	s.mu.Lock()
	defer s.mu.Unlock()
	return slices.Clone(s.bodies)
}

func (s *scriptedStream) answer(m *nats.Msg, answer string) {
	if err := s.nc.Publish(m.Reply, []byte(answer)); err != nil {
		s.t.Error(err)
	}
}

func TestNATSAcceptsAPrefixOfASlidingWindow(t *testing.T) {
	const count = 40
	ms := spooled(0, count)
	j := startJetStream(t)
	stream := startScripted(t, j)
	for _, window := range []int{1, 8, 4096} {
		for position := range count {
			t.Run(fmt.Sprintf("window %d, message %d", window, position), func(t *testing.T) {
				s := toNATS(t, j, NATSOptions{MaxPending: window})
				stream.play(func(body string, m *nats.Msg) {
					answer := answerStored
					if body == string(ms[position].Body) {
						answer = answerFull
					}
					stream.answer(m, answer)
				})
				n, err := s.Send(t.Context(), "orders", 0, ms)
				if rejected := (*RejectedError)(nil); n != position || !errors.Is(err, ErrUnavailable) || errors.As(err, &rejected) {
					t.Fatalf("accepted %d: %v", n, err)
				}
				// Nothing of the first attempt may come between what comes again.
				stream.play(func(_ string, m *nats.Msg) { stream.answer(m, answerStored) })
				sendAll(t, s, ms[n:])
				if got := stream.came(); !slices.Equal(got, bodies(ms[n:])) {
					t.Errorf("came again %v", got)
				}
			})
		}
	}
}

func TestNATSTakesALostAnswerForNotStored(t *testing.T) {
	const count = 24
	ms := spooled(0, count)
	j := startJetStream(t)
	stream := startScripted(t, j)
	for position := range count {
		t.Run(fmt.Sprintf("message %d", position), func(t *testing.T) {
			s := toNATS(t, j, NATSOptions{MaxPending: 8, AckTimeout: 20 * time.Millisecond})
			var late *nats.Msg
			stream.play(func(body string, m *nats.Msg) {
				switch body {
				case string(ms[position].Body):
					late = m
				case fmt.Sprintf("%05d", position+1):
					stream.answer(m, answerTooLong) // for good, but not the first that is missing
				default:
					stream.answer(m, answerStored)
				}
			})
			n, err := s.Send(t.Context(), "orders", 0, ms)
			if rejected := (*RejectedError)(nil); n != position || !errors.Is(err, ErrUnavailable) || errors.As(err, &rejected) {
				t.Fatalf("accepted %d: %v", n, err)
			}
			// The late answer is none to the message that comes again.
			stream.play(func(_ string, m *nats.Msg) {
				stream.answer(late, answerStored)
				stream.answer(m, answerFull)
			})
			if n, err := s.Send(t.Context(), "orders", 0, ms[position:position+1]); n != 0 || !strings.Contains(fmt.Sprint(err), "full") {
				t.Errorf("again: accepted %d: %v", n, err)
			}
		})
	}
}

func TestNATSWaitsOutWhatIsUnderWay(t *testing.T) {
	j := startJetStream(t)
	stream := startScripted(t, j)
	s := toNATS(t, j, NATSOptions{MaxPending: 64})
	var held []*nats.Msg
	all := make(chan struct{})
	stream.play(func(body string, m *nats.Msg) {
		if held = append(held, m); len(held) == 20 {
			close(all)
		}
	})
	type result struct {
		accepted int
		err      error
	}
	done := make(chan result, 1)
	go func() {
		n, err := s.Send(t.Context(), "orders", 0, spooled(0, 20))
		done <- result{n, err}
	}()
	<-all
	// Answers come in the opposite order, the failure among the first.
	slices.Reverse(held)
	for i, m := range held {
		select {
		case r := <-done:
			t.Fatalf("after %d answers: %+v", i, r)
		default:
		}
		answer := answerStored
		if i == 2 {
			answer = answerFull
		}
		stream.answer(m, answer)
	}
	if r := <-done; r.accepted != 17 || !errors.Is(r.err, ErrUnavailable) {
		t.Errorf("%+v", r)
	}
}

func TestNATSKeepsToItsWindow(t *testing.T) {
	const window = 16
	j := startJetStream(t)
	stream := startScripted(t, j)
	s := toNATS(t, j, NATSOptions{MaxPending: window})
	var held []*nats.Msg
	stream.play(func(_ string, m *nats.Msg) { held = append(held, m) })
	const queues, count = 3, 96
	var all sync.WaitGroup
	for queue := range queues {
		all.Go(func() {
			if n, err := s.Send(t.Context(), "orders", queue, spooled(0, count)); n != count || err != nil {
				t.Errorf("queue %d: %d, %v", queue, n, err)
			}
		})
	}
	c := s.conn.Load()
	clienttest.Await(t, "a window without room", func() bool {
		room := c.window.TryAcquire(1)
		if room {
			c.window.Release(1)
		}
		return !room
	})
	clienttest.Await(t, "the messages under way", func() bool { return len(stream.came()) == window })
	stream.mu.Lock()
	for _, m := range slices.Backward(held) {
		stream.answer(m, answerStored)
	}
	stream.script = func(_ string, m *nats.Msg) { stream.answer(m, answerStored) }
	stream.mu.Unlock()
	all.Wait()
	if len(c.slots) > window {
		t.Errorf("%d slots", len(c.slots))
	}
}

func TestNATSCarriesNothingOverToTheNextConnection(t *testing.T) {
	const answered = 10
	j := startJetStream(t)
	stream := startScripted(t, j)
	s := toNATS(t, j, NATSOptions{MaxPending: 16})
	ms := spooled(0, 100) // more than the window: the sender is waiting for room
	full := make(chan struct{})
	stream.play(func(body string, m *nats.Msg) {
		switch body {
		case string(ms[answered+15].Body):
			close(full)
		default:
			if body < string(ms[answered].Body) {
				stream.answer(m, answerStored)
			}
		}
	})
	go func() {
		<-full
		id, err := s.conn.Load().nc.GetClientID()
		if err == nil {
			err = j.s.DisconnectClientByID(id)
		}
		if err != nil {
			t.Error(err)
		}
	}()
	n, err := s.Send(t.Context(), "orders", 0, ms)
	if n > answered || !errors.Is(err, ErrUnavailable) {
		t.Fatalf("accepted %d: %v", n, err)
	}
	awaitConnected(t, s)
	stream.play(func(_ string, m *nats.Msg) { stream.answer(m, answerStored) })
	sendAll(t, s, ms[n:])
	if got := stream.came(); !slices.Equal(got, bodies(ms[n:])) {
		t.Errorf("came again %v", got)
	}
}

func TestWindowGrowsWithTheWay(t *testing.T) {
	for _, tt := range []struct {
		roundTrip time.Duration
		most      int
		want      int
	}{
		{50 * time.Microsecond, 4096, nearWindow},
		{50 * time.Microsecond, 100, 100},
		{8 * time.Millisecond, 4096, 2 * nearWindow},
		{time.Second, 4096, 4096},
		{time.Hour, 1 << 20, 1 << 20},
	} {
		if got := windowOf(tt.roundTrip, tt.most); got != tt.want {
			t.Errorf("%s, at most %d: %d, want %d", tt.roundTrip, tt.most, got, tt.want)
		}
	}
}
