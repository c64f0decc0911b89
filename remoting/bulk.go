package remoting

import (
	"errors"
	"sync/atomic"
	"time"
)

const (
	// roomWait is how long a large frame waits for room. Meanwhile its peer is
	// not read, so that it waits, too.
	roomWait = 10 * time.Second
	roomTick = 10 * time.Millisecond
)

var errCrowded = errors.New("large frames of other connections leave no memory for one more")

// A bulkRoom bounds what the large read buffers of all connections of a server
// take together: peers that send many large frames at once, or large frames that
// never end, must not exhaust a small host. Frames that fit into a buffer of
// readMax never wait.
type bulkRoom struct {
	limit   int64
	used    atomic.Int64
	waiting atomic.Int32 // connections; while there are any, buffers are given back at once
}

// take claims more bytes for a buffer that has some. A buffer that is the only
// one gets what it needs, whatever the limit.
func (r *bulkRoom) take(have, more int64) bool {
	if used := r.used.Add(more); used > r.limit && used > have+more {
		r.used.Add(-more)
		return false
	}
	return true
}

// charge accounts for a buffer of size bytes; false: there is no room for it.
func (b *frameBuffer) charge(size int) bool {
	var want int64
	if size > readMax {
		want = int64(size)
	}
	switch {
	case b.room == nil || want == b.charged:
		return true
	case want < b.charged:
		b.room.used.Add(want - b.charged)
	case !b.room.take(b.charged, want-b.charged):
		return false
	}
	b.charged = want
	return true
}

func (b *frameBuffer) crowded() bool { return b.room != nil && b.room.waiting.Load() > 0 }

// awaitRoom waits until the buffer could grow. Buffers are given back on the
// goroutines of other connections, which know nothing of this one: it looks again
// and again, which costs nothing beside the frames that it waits for.
func (c *Conn) awaitRoom() error {
	c.in.room.waiting.Add(1)
	defer c.in.room.waiting.Add(-1)
	late := time.NewTimer(roomWait)
	defer late.Stop()
	tick := time.NewTicker(roomTick)
	defer tick.Stop()
	for {
		select {
		case <-tick.C:
		case <-late.C:
			return errCrowded
		}
		switch {
		case c.stopAsked.Load():
			return errStopping
		case c.out.cause() != nil:
			return ErrClosed
		case c.in.prepare():
			return nil
		}
	}
}
