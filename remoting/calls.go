package remoting

import (
	"math"
	"sync"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// notQueued is a call's start while no byte of it has been queued.
const notQueued = math.MaxUint64

// A call waits for its response.
type call struct {
	opaque int32
	start  uint64 // position in the outbox's byte stream, under the outbox's lock
	timer  *time.Timer
	done   func(*protocol.Command, error) // called once, by whoever takes the call out of the table
}

// A callTable joins responses to the requests that this side has sent on one
// connection. Each call has its own timer, so an entry dies at its deadline
// whether or not somebody waits for it.
type callTable struct {
	mu      sync.Mutex
	next    int32
	pending map[int32]*call
	closed  bool
}

// add gives c an opaque that is free on this connection and starts its timer;
// when that fires, expired runs with c already out of the table. It reports
// whether the table is still open.
func (t *callTable) add(c *call, timeout time.Duration, expired func(*call)) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.closed {
		return false
	}
	if t.pending == nil {
		t.pending = make(map[int32]*call)
	}
	c.opaque, c.start = t.numberLocked(), notQueued
	t.pending[c.opaque] = c
	c.timer = time.AfterFunc(timeout, func() {
		if t.remove(c) {
			expired(c)
		}
	})
	return true
}

// numberLocked counts on, and wraps; a number whose call still waits is passed
// over.
func (t *callTable) numberLocked() int32 {
	for {
		t.next++
		if _, taken := t.pending[t.next]; !taken {
			return t.next
		}
	}
}

// number returns an opaque for a request that nobody waits for.
func (t *callTable) number() int32 {
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.numberLocked()
}

// take removes and returns the call that waits for opaque, nil when none does.
func (t *callTable) take(opaque int32) *call {
	t.mu.Lock()
	defer t.mu.Unlock()
	c := t.pending[opaque]
	if c != nil {
		delete(t.pending, opaque)
		c.timer.Stop()
	}
	return c
}

// remove reports whether c was still waiting; then its done is the caller's to
// call.
func (t *callTable) remove(c *call) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.pending[c.opaque] != c {
		return false
	}
	delete(t.pending, c.opaque)
	c.timer.Stop()
	return true
}

// close refuses further calls and returns those that wait.
func (t *callTable) close() []*call {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.closed = true
	waiting := make([]*call, 0, len(t.pending))
	for _, c := range t.pending {
		c.timer.Stop()
		waiting = append(waiting, c)
	}
	t.pending = nil
	return waiting
}

func (t *callTable) len() int {
	t.mu.Lock()
	defer t.mu.Unlock()
	return len(t.pending)
}
