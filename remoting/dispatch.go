package remoting

import (
	"errors"
	"fmt"

	"github.com/sluicemq/sluice/protocol"
)

var errFlushPanic = errors.New("a stream's flush panicked")

// handleFrame decodes one frame and hands it on. An error ends the connection.
func (c *Conn) handleFrame(frame []byte) error {
	if err := c.cmd.Decode(frame); err != nil {
		return &frameError{err.Error()}
	}
	if c.cmd.IsResponse() {
		if p := c.calls.take(c.cmd.Opaque); p != nil {
			p.done(c.cmd.Clone(), nil)
		}
		return nil
	}
	c.handleRequest(&c.cmd, len(frame))
	return nil
}

func (c *Conn) handleRequest(req *protocol.Command, size int) {
	rt := c.lookup(req.RequestCode())
	switch {
	case c.ep.stopping.Load():
		c.turnAway(req)
	case rt == nil:
		c.refuse(req, protocol.RequestCodeNotSupported, fmt.Sprintf(" request type %d not supported", req.Code))
	case rt.factory != nil:
		c.streamRequest(rt, req)
	case rt.inline:
		if resp := c.answer(rt, req); resp != nil {
			c.w.Buf = AppendResponse(c.w.Buf, req, resp)
		}
	case !c.ep.enter(rt, size):
		c.refuse(req, protocol.SystemBusy, remarkBusy)
	case !c.tasks.enter():
		c.ep.leave(rt, size)
		c.turnAway(req)
	default:
		go c.handle(rt, req.Clone(), size)
	}
}

// refuse answers on the reader, with no more than a code and a reason.
func (c *Conn) refuse(req *protocol.Command, code protocol.ResponseCode, remark string) {
	c.w.Buf = AppendResponse(c.w.Buf, req, &protocol.Command{Code: int32(code), Remark: remark})
}

// turnAway sends the client elsewhere while this side stops. Clients that do not
// know GO_AWAY retry other brokers on SERVICE_NOT_AVAILABLE.
func (c *Conn) turnAway(req *protocol.Command) {
	if req.Version > goAwayVersion {
		c.refuse(req, protocol.GoAway, remarkGoAway)
		return
	}
	c.refuse(req, protocol.ServiceNotAvailable, "service not available now, it is stopping")
}

// streamRequest gives a request to its stream. A panic costs that request, not
// the connection.
func (c *Conn) streamRequest(rt *route, req *protocol.Command) {
	before := len(c.w.Buf)
	defer func() {
		if r := recover(); r != nil {
			c.logPanic(r, rt.code.String())
			c.w.Buf = c.w.Buf[:min(before, len(c.w.Buf))]
			c.refuse(req, protocol.SystemError, fmt.Sprint("panic: ", r))
		}
	}()
	s := c.streams[rt.stream]
	if s == nil {
		s = rt.factory.New(c)
		c.streams[rt.stream] = s
	}
	c.touch(rt.stream)
	s.Request(req, &c.w)
}

func (c *Conn) touch(stream int) {
	for _, t := range c.touched {
		if t == stream {
			return
		}
	}
	c.touched = append(c.touched, stream)
}

// flushBurst lets the streams append what they owe and writes all answers with
// one write.
func (c *Conn) flushBurst() error {
	for _, i := range c.touched {
		if err := c.flushStream(c.streams[i]); err != nil {
			return err
		}
	}
	c.touched = c.touched[:0]
	return c.w.Drain()
}

// flushStream cannot know which answers a panic swallowed, so it ends the
// connection.
func (c *Conn) flushStream(s Stream) (err error) {
	defer func() {
		if r := recover(); r != nil {
			c.logPanic(r, "flush")
			err = errFlushPanic
		}
	}()
	s.Flush(&c.w)
	return nil
}

// handle runs a handler on its own goroutine and sends the answer.
func (c *Conn) handle(rt *route, req *protocol.Command, size int) {
	defer c.tasks.leave()
	defer c.ep.leave(rt, size)
	if resp := c.answer(rt, req); resp != nil {
		if err := c.Reply(req, resp); err != nil {
			c.ep.log.Debug("answer lost", "remote", c.name, "code", rt.code, "reason", err)
		}
	}
}

// answer calls a handler and turns what it returns, or its panic, into a
// response; nil when there is none to send.
func (c *Conn) answer(rt *route, req *protocol.Command) (resp *protocol.Command) {
	defer func() {
		if r := recover(); r != nil {
			c.logPanic(r, rt.code.String())
			resp = &protocol.Command{Code: int32(protocol.SystemError), Remark: fmt.Sprint("panic: ", r)}
		}
	}()
	resp, err := rt.handler(c.ctx, c, req)
	if err == nil {
		return resp
	}
	var known *protocol.Error
	if !errors.As(err, &known) && c.ctx.Err() == nil {
		c.ep.warn.Warn("request failed", "remote", c.name, "code", rt.code, "err", err)
	}
	e := protocol.AsError(err)
	return &protocol.Command{Code: int32(e.Code), Remark: e.Remark}
}
