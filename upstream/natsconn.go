package upstream

import (
	"context"
	"fmt"
	"math"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"golang.org/x/sync/semaphore"
)

// A natsConn is one connection, from its making to its end, and what has been
// published on it without an answer so far.
//
// Every message under way has a slot, and the slot's number is the last token of
// its reply subject:
//
//	_INBOX.<unique to the connection>.<slot>
//
// Slots are used again when they are answered: with few distinct reply subjects
// the server finds the way of each acknowledgement in its cache. A slot whose answer
// nobody waits for any more is never used again, as the answer may still come.
type natsConn struct {
	nc     *nats.Conn
	inbox  string // reply subjects without the slot's number
	closed chan struct{}

	// alive ends with the connection, so that nobody waits for room on it.
	alive context.Context
	kill  context.CancelCauseFunc

	window *semaphore.Weighted // messages under way
	chunk  int                 // of the window, taken at once

	// missing is why the stream to create is not there yet; nil: it is, or none
	// is to be created.
	missing atomic.Pointer[error]

	mu    sync.Mutex // guards the flights that slots belong to, too
	slots map[uint32]*slot
	free  []*slot
	last  uint32 // number of the newest slot
	ended error  // why no more answers come
}

// A slot is the place of one message under way.
type slot struct {
	number uint32
	reply  string
	flight *flight
	index  int // in the flight's batch
}

// newNATSConn listens for answers on nc.
func newNATSConn(nc *nats.Conn, maxPending int) (*natsConn, error) {
	c := &natsConn{nc: nc, inbox: nc.NewInbox() + ".", closed: make(chan struct{}), slots: make(map[uint32]*slot)}
	c.alive, c.kill = context.WithCancelCause(context.Background())
	nc.SetClosedHandler(func(*nats.Conn) { close(c.closed) })
	answers, err := nc.Subscribe(c.inbox+"*", c.receive)
	if err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	// There are never more of them than messages under way.
	if err := answers.SetPendingLimits(-1, -1); err != nil {
		return nil, fmt.Errorf("subscribe to answers: %w", err)
	}
	size, err := windowFor(nc, maxPending)
	if err != nil {
		return nil, err
	}
	c.window, c.chunk = semaphore.NewWeighted(int64(size)), min(max(size/8, 1), 64)
	return c, nil
}

// A server remembers the way of about a thousand reply subjects, so this many slots
// spare it a search for each acknowledgement. They keep it busy while answers need no
// more than nearRoundTrip, and a farther server gets more in proportion.
const (
	nearWindow    = 960
	nearRoundTrip = 4 * time.Millisecond
)

// windowFor is how many messages should be under way on a connection: the
// shortest of a few round trips decides, as a busy host delays single ones.
func windowFor(nc *nats.Conn, maxPending int) (int, error) {
	shortest := time.Duration(math.MaxInt64)
	for range 3 {
		took, err := nc.RTT()
		if err != nil {
			return 0, fmt.Errorf("measure a round trip: %w", err)
		}
		shortest = min(shortest, took)
	}
	return windowOf(shortest, maxPending), nil
}

func windowOf(roundTrip time.Duration, maxPending int) int {
	near := max(float64(roundTrip)/float64(nearRoundTrip), 1)
	return int(min(nearWindow*near, float64(maxPending)))
}

// broken is why the connection is closed.
func (c *natsConn) broken() error {
	if err := c.nc.LastError(); err != nil {
		return err
	}
	return nats.ErrConnectionClosed
}

// fail ends all flights: what is not answered by now will not be.
func (c *natsConn) fail(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.ended = err
	c.kill(err)
	for _, s := range c.slots {
		if s.flight != nil {
			s.flight.end(err)
		}
	}
}

// take gives n slots to a flight, for the messages from index first on.
func (c *natsConn) take(f *flight, first, n int, into []*slot) []*slot {
	for i := range n {
		var s *slot
		if free := len(c.free); free > 0 {
			s, c.free = c.free[free-1], c.free[:free-1]
		} else {
			c.last++
			s = &slot{number: c.last, reply: c.inbox + strconv.FormatUint(uint64(c.last), 10)}
			c.slots[c.last] = s
		}
		s.flight, s.index = f, first+i
		into = append(into, s)
	}
	return into
}

// put takes a slot back.
func (c *natsConn) put(s *slot) {
	s.flight = nil
	c.free = append(c.free, s)
}

// giveBack takes back the slots of messages that were not published, without the
// first one's: a part of that message may be on its way.
func (c *natsConn) giveBack(unused []*slot) {
	for i, s := range unused {
		if i == 0 {
			delete(c.slots, s.number)
			continue
		}
		c.put(s)
	}
}

// drop takes slots out of use whose answers may come after their flight's end.
func (c *natsConn) drop(f *flight) {
	for number, s := range c.slots {
		if s.flight == f {
			delete(c.slots, number)
		}
	}
}

// receive hears of one outcome. The library calls it one message at a time.
func (c *natsConn) receive(m *nats.Msg) {
	number, err := strconv.ParseUint(m.Subject[min(len(c.inbox), len(m.Subject)):], 10, 32)
	if err != nil {
		return
	}
	c.mu.Lock()
	s := c.slots[uint32(number)]
	if s == nil || s.flight == nil {
		c.mu.Unlock()
		return
	}
	f, index := s.flight, s.index
	c.put(s)
	free := f.answer(index, m)
	c.mu.Unlock()
	if free > 0 {
		c.window.Release(int64(free))
	}
}
