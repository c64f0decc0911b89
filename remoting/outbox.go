package remoting

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// An outbox orders the frames that go out on one connection. One goroutine at a
// time writes; what others send meanwhile is queued and goes out with the next
// write. Positions count the bytes ever accepted, so that a broken connection
// knows which requests cannot have left:
//
//	0 ─────────── handed ────────── accepted
//	given to the   │  in the queue   │
//	socket         │                 └ next frame starts here
type outbox struct {
	mu       sync.Mutex
	queue    []byte
	spare    []byte // the buffer that queue takes turns with
	writing  bool   // somebody writes and will look at the queue again
	accepted uint64
	handed   uint64
	err      error         // set when the connection has failed
	room     chan struct{} // closed when the queue is taken; nil when nobody waits for that
	bulky    atomic.Bool   // it keeps large buffers, which an idle connection need not
}

// lockWithRoom returns with the lock held, once the queue has room. The wait ends
// in any case: a peer that takes nothing is cut by the write time-out.
func (o *outbox) lockWithRoom(ctx context.Context) error {
	o.mu.Lock()
	for o.err == nil && len(o.queue) > queueMax {
		if o.room == nil {
			o.room = make(chan struct{})
		}
		room := o.room
		o.mu.Unlock()
		select {
		case <-room:
		case <-ctx.Done():
			return ctx.Err()
		}
		o.mu.Lock()
	}
	if o.err != nil {
		err := o.err
		o.mu.Unlock()
		return err
	}
	return nil
}

// takeLocked empties the queue for a write.
func (o *outbox) takeLocked() []byte {
	buf := o.queue
	o.queue, o.spare = o.spare[:0], nil
	o.handed += uint64(len(buf))
	o.signalRoomLocked()
	return buf
}

func (o *outbox) signalRoomLocked() {
	if o.room != nil {
		close(o.room)
		o.room = nil
	}
}

// close records why the connection ended; it reports whether it was the first
// to do so.
func (o *outbox) close(err error) bool {
	o.mu.Lock()
	defer o.mu.Unlock()
	if o.err != nil {
		return false
	}
	o.err = err
	o.queue, o.spare = nil, nil
	o.signalRoomLocked()
	return true
}

// trim gives up the buffers of an idle connection.
func (o *outbox) trim() {
	o.mu.Lock()
	defer o.mu.Unlock()
	o.spare = nil
	o.bulky.Store(false)
	if len(o.queue) == 0 && !o.writing {
		o.queue = nil
	}
}

// cause returns why the connection ended, nil while it lives.
func (o *outbox) cause() error {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.err
}

// handedOver returns how many bytes may have left.
func (o *outbox) handedOver() uint64 {
	o.mu.Lock()
	defer o.mu.Unlock()
	return o.handed
}

// How a sender treats a connection on which nobody writes.
type sendMode bool

const (
	inline   sendMode = false // the caller writes: best latency
	deferred sendMode = true  // a goroutine writes: the caller goes on, and what it sends next goes along
)

// sendFrame queues one frame, for the call p when that is not nil. A nil error
// means that the frame is written or will be, unless the connection fails.
func (c *Conn) sendFrame(ctx context.Context, frame *protocol.Command, p *call, mode sendMode) error {
	if err := c.out.lockWithRoom(ctx); err != nil {
		return err
	}
	before := len(c.out.queue)
	c.out.queue = frame.AppendTo(c.out.queue)
	size := len(c.out.queue) - before
	if size > c.ep.maxFrame {
		c.out.queue = c.out.queue[:before]
		c.out.mu.Unlock()
		return fmt.Errorf("%w: %d bytes, limit %d", ErrTooLarge, size, c.ep.maxFrame)
	}
	if p != nil {
		p.start = c.out.accepted
	}
	c.out.accepted += uint64(size)
	first := !c.out.writing
	c.out.writing = true
	c.out.mu.Unlock()
	if first {
		c.startWriting(mode)
	}
	return nil
}

// Write appends frames of the caller's making to what goes out. appendFrames
// runs under the connection's lock, once there is room: it must append whole
// frames and do nothing else.
func (c *Conn) Write(appendFrames func(dst []byte) []byte) error {
	if err := c.out.lockWithRoom(context.Background()); err != nil {
		return err
	}
	first := c.out.appendLocked(appendFrames)
	if first {
		c.startWriting(inline)
	}
	return nil
}

// appendLocked ends with the lock released, also when appendFrames panics.
func (o *outbox) appendLocked(appendFrames func([]byte) []byte) (first bool) {
	defer o.mu.Unlock()
	before := len(o.queue)
	o.queue = appendFrames(o.queue)
	o.accepted += uint64(len(o.queue) - before)
	first = !o.writing && len(o.queue) > 0
	o.writing = o.writing || first
	return first
}

// sendBytes sends whole frames without a copy when nobody else writes.
func (c *Conn) sendBytes(p []byte) error {
	o := &c.out
	if err := o.lockWithRoom(context.Background()); err != nil {
		return err
	}
	o.accepted += uint64(len(p))
	if o.writing {
		o.queue = append(o.queue, p...)
		o.mu.Unlock()
		return nil
	}
	o.writing = true
	o.handed += uint64(len(p))
	o.mu.Unlock()
	if !c.writeTaken(p) {
		return o.cause()
	}
	c.finishWriting(nil)
	return nil
}

// startWriting is called by whoever has set out.writing.
func (c *Conn) startWriting(mode sendMode) {
	if mode == deferred && c.tasks.enter() {
		go c.writeQueue()
		return
	}
	c.out.mu.Lock()
	buf := c.out.takeLocked()
	c.out.mu.Unlock()
	if c.writeTaken(buf) {
		c.finishWriting(buf)
	}
}

// finishWriting gives the buffer back and hands the queue, if others have filled
// it, to a goroutine, so that nobody is kept writing for others.
func (c *Conn) finishWriting(buf []byte) {
	for {
		if !c.rewind(buf) {
			return
		}
		if c.tasks.enter() {
			go c.writeQueue()
			return
		}
		c.out.mu.Lock()
		buf = c.out.takeLocked()
		c.out.mu.Unlock()
		if !c.writeTaken(buf) {
			return
		}
	}
}

// writeQueue writes until the queue is empty.
func (c *Conn) writeQueue() {
	defer c.tasks.leave()
	for {
		c.out.mu.Lock()
		buf := c.out.takeLocked()
		c.out.mu.Unlock()
		if !c.writeTaken(buf) || !c.rewind(buf) {
			return
		}
	}
}

// rewind keeps buf for reuse and reports whether there is more to write; if not,
// the next sender writes.
func (c *Conn) rewind(buf []byte) bool {
	c.out.mu.Lock()
	defer c.out.mu.Unlock()
	if c.out.err != nil {
		return false
	}
	if buf != nil && cap(buf) <= keepQueue {
		c.out.spare = buf[:0]
		if cap(buf) > readStart {
			c.out.bulky.Store(true)
		}
	}
	c.out.writing = len(c.out.queue) > 0
	return c.out.writing
}

// writeTaken writes p, which is already counted as handed over. When it fails,
// the connection fails, and what the socket did not take is known as not sent.
func (c *Conn) writeTaken(p []byte) bool {
	n, err := c.writeOut(p)
	if err == nil {
		return true
	}
	if c.raw == c.nc { // below TLS the count says nothing about the peer
		c.out.mu.Lock()
		c.out.handed -= uint64(len(p) - n)
		c.out.mu.Unlock()
	}
	c.fail(err)
	return false
}

// writeOut writes p in chunks, each of which the peer must take within the write
// time-out. Only the goroutine that has set out.writing calls it.
func (c *Conn) writeOut(p []byte) (n int, err error) {
	for n < len(p) {
		now := c.ep.now()
		if c.writeDeadline-now < c.ep.writeTimeout*3/4 {
			c.writeDeadline = now + c.ep.writeTimeout
			if err := c.raw.SetWriteDeadline(time.Now().Add(c.ep.writeTimeout)); err != nil {
				return n, err
			}
		}
		m, err := c.nc.Write(p[n:min(n+writeChunk, len(p))])
		n += m
		if err != nil {
			if isTimeout(err) {
				err = fmt.Errorf("%w for %v", errWriteStuck, c.ep.writeTimeout)
			}
			return n, err
		}
		c.lastWrite.Store(int64(now))
	}
	return n, nil
}
