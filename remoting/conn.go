package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/netip"
	"runtime/debug"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// A Conn is one connection, of a Server or a Client. Its methods may be called
// by several goroutines at once.
type Conn struct {
	ep            *endpoint
	id            uint64
	raw           net.Conn // for deadlines and closing
	nc            net.Conn // raw, or TLS above it; set before the first frame
	name          string   // the peer, for people
	remote, local netip.AddrPort

	ctx    context.Context
	cancel context.CancelCauseFunc
	calls  callTable
	out    outbox
	tasks  gate // handlers, Go functions, writers

	stopAsked     atomic.Bool
	lastWrite     atomic.Int64  // endpoint time
	writeDeadline time.Duration // endpoint time, of whoever writes

	// The rest belongs to the reader.
	in       frameBuffer
	cmd      protocol.Command // what the present frame says
	w        Writer
	streams  []Stream // by index of the StreamFactory in the routes
	touched  []int    // streams that saw a request since the last flush
	lastRead time.Duration
	watched  bool   // the read deadline will notice silence in time to give up large buffers
	last     *route // the route of the request before, most often that of the next
}

func newConn(ep *endpoint, nc net.Conn) *Conn {
	c := &Conn{
		ep: ep, id: ep.nextID(), raw: nc, nc: nc, name: nc.RemoteAddr().String(),
		remote: addrPort(nc.RemoteAddr()), local: addrPort(nc.LocalAddr()),
		streams: make([]Stream, ep.routes.streams), lastRead: ep.now(),
	}
	c.lastWrite.Store(int64(c.lastRead))
	c.in.max, c.in.room = ep.maxFrame, ep.room
	c.w.c = c
	c.ctx, c.cancel = context.WithCancelCause(ep.ctx)
	return c
}

func addrPort(a net.Addr) netip.AddrPort {
	tcp, ok := a.(*net.TCPAddr)
	if !ok {
		return netip.AddrPort{}
	}
	ap := tcp.AddrPort()
	return netip.AddrPortFrom(ap.Addr().Unmap(), ap.Port())
}

// RemoteAddr returns the peer's address, the zero value when it is not TCP.
func (c *Conn) RemoteAddr() netip.AddrPort { return c.remote }

// LocalAddr returns this side's address.
func (c *Conn) LocalAddr() netip.AddrPort { return c.local }

// ID returns a number that no other connection in this process has.
func (c *Conn) ID() uint64 { return c.id }

// Context ends when the connection closes, and already when the server or client
// begins to stop.
func (c *Conn) Context() context.Context { return c.ctx }

// Closed reports whether the connection has ended.
func (c *Conn) Closed() bool { return c.out.cause() != nil }

// Close ends the connection at once; what is queued is lost. OnClose follows on
// the connection's own goroutine.
func (c *Conn) Close() { c.fail(ErrClosed) }

// fail ends the connection for the reason err; the reader notices and cleans up.
func (c *Conn) fail(err error) {
	if c.out.close(err) {
		c.cancel(err)
		c.raw.Close()
	}
}

// Go runs f on a goroutine that the connection owns: f must return when its
// context ends, and OnClose waits for it. It reports false, and does not run f,
// when the connection is closing or when ServerOptions.MaxWaiting such goroutines
// run.
func (c *Conn) Go(f func(ctx context.Context)) bool {
	if c.ep.waiting.Add(1) > c.ep.maxWaiting || !c.tasks.enter() {
		c.ep.waiting.Add(-1)
		return false
	}
	go func() {
		defer c.tasks.leave()
		defer c.ep.waiting.Add(-1)
		defer func() {
			if r := recover(); r != nil {
				c.logPanic(r, "go")
			}
		}()
		f(c.ctx)
	}()
	return true
}

// Reply sends resp as the answer to req, of which only opaque, coding and flag
// matter. A one-way request gets nothing; an answer above the frame limit becomes
// a system error. Reply waits while the peer is slow to take what is queued
// already.
func (c *Conn) Reply(req, resp *protocol.Command) error {
	if req.IsOneWay() {
		return nil
	}
	frame := answerTo(req, resp)
	err := c.sendFrame(context.Background(), &frame, nil, inline)
	if errors.Is(err, ErrTooLarge) {
		frame = answerTo(req, &protocol.Command{Code: int32(protocol.SystemError), Remark: "the answer: " + err.Error()})
		err = c.sendFrame(context.Background(), &frame, nil, inline)
	}
	return err
}

// OneWay sends a request that gets no answer. It never waits: when the peer is
// far behind it returns ErrTooManyCalls. cmd is only read.
func (c *Conn) OneWay(cmd *protocol.Command) error {
	c.out.mu.Lock()
	full := len(c.out.queue) > queueMax
	c.out.mu.Unlock()
	if full {
		return &CallError{Addr: c.name, Err: ErrTooManyCalls}
	}
	return c.sendOneWay(context.Background(), cmd)
}

func (c *Conn) sendOneWay(ctx context.Context, cmd *protocol.Command) error {
	frame := *cmd
	frame.Flag = frame.Flag&^protocol.FlagResponse | protocol.FlagOneWay
	frame.Opaque = c.calls.number()
	if err := c.sendFrame(ctx, &frame, nil, deferred); err != nil {
		return c.notSent(err)
	}
	return nil
}

func (c *Conn) notSent(err error) error {
	if c.Closed() {
		err = c.lostCause()
	}
	return &CallError{Addr: c.name, Err: err}
}

// Call sends a request to the peer and waits for its answer until ctx ends, or
// for DefaultCallTimeout when ctx has no deadline. The error is a *CallError. A
// response is returned whatever its code, see Command.Err. cmd is only read.
func (c *Conn) Call(ctx context.Context, cmd *protocol.Command) (*protocol.Command, error) {
	type answer struct {
		resp *protocol.Command
		err  error
	}
	got := make(chan answer, 1)
	p := c.start(ctx, cmd, inline, func(resp *protocol.Command, err error) { got <- answer{resp, err} })
	select {
	case a := <-got:
		return a.resp, a.err
	case <-ctx.Done():
	}
	if c.calls.remove(p) {
		return nil, &CallError{Addr: c.name, Sent: true, Err: contextCause(ctx)}
	}
	a := <-got
	return a.resp, a.err
}

// start sends a request and lets done hear the outcome, exactly once: on the
// reader's goroutine, a timer's, or the caller's when nothing could be sent.
func (c *Conn) start(ctx context.Context, cmd *protocol.Command, mode sendMode, done func(*protocol.Command, error)) *call {
	p := &call{done: done}
	if err := ctx.Err(); err != nil {
		done(nil, &CallError{Addr: c.name, Err: contextCause(ctx)})
		return p
	}
	if !c.calls.add(p, callTimeout(ctx), c.expire) {
		done(nil, c.notSent(ErrClosed))
		return p
	}
	frame := *cmd
	frame.Opaque = p.opaque
	frame.Flag &^= protocol.FlagResponse | protocol.FlagOneWay
	if err := c.sendFrame(ctx, &frame, p, mode); err != nil && c.calls.remove(p) {
		done(nil, c.notSent(err))
	}
	return p
}

func (c *Conn) expire(p *call) {
	p.done(nil, &CallError{Addr: c.name, Sent: true, Err: ErrTimeout})
}

// failCalls tells every waiting call that the connection is gone, and whether its
// request may have reached the peer. The outbox must have been closed, so that no
// position changes any more.
func (c *Conn) failCalls() {
	handed, cause := c.out.handedOver(), c.lostCause()
	for _, p := range c.calls.close() {
		p.done(nil, &CallError{Addr: c.name, Sent: p.start < handed, Err: cause})
	}
}

func (c *Conn) lostCause() error {
	if err := c.out.cause(); err != nil {
		return fmt.Errorf("connection lost: %w", err)
	}
	return ErrClosed
}

func callTimeout(ctx context.Context) time.Duration {
	if d, ok := ctx.Deadline(); ok {
		return time.Until(d)
	}
	return DefaultCallTimeout
}

// contextCause makes a deadline that has passed look the same wherever it was
// noticed.
func contextCause(ctx context.Context) error {
	if errors.Is(ctx.Err(), context.DeadlineExceeded) {
		return fmt.Errorf("%w: %w", ErrTimeout, ctx.Err())
	}
	return context.Cause(ctx)
}

func (c *Conn) logPanic(r any, where string) {
	c.ep.log.Error("panic", "where", where, "remote", c.name, "panic", r, "stack", string(debug.Stack()))
}
