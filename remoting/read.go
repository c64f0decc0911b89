package remoting

import (
	"errors"
	"fmt"
	"io"
	"net"
	"syscall"
	"time"
)

// lingerTime is how long a connection that stops waits for the peer's end, so
// that answers on the way are not cut off by a reset.
const lingerTime = 250 * time.Millisecond

// run reads the connection to its end and leaves nothing behind: when it returns,
// all goroutines of the connection have ended and OnClose has been called.
func (c *Conn) run(upgrade func() error) {
	err := c.armRead()
	if err == nil && upgrade != nil {
		err = upgrade()
	}
	if err == nil {
		err = c.readLoop()
	}
	if errors.Is(err, errStopping) {
		<-c.tasks.shut()
		c.out.close(ErrClosed)
		c.failCalls()
		c.linger()
	} else {
		c.fail(err)
		c.logEnd()
	}
	c.cancel(ErrClosed)
	c.raw.Close()
	c.in.charge(0)
	c.failCalls()
	<-c.tasks.shut()
	if c.ep.onClose != nil {
		c.ep.onClose(c)
	}
}

// linger says goodbye and waits for the peer to do so.
func (c *Conn) linger() {
	if closer, ok := c.nc.(interface{ CloseWrite() error }); ok && closer.CloseWrite() == nil {
		if tcp, ok := c.raw.(*net.TCPConn); ok && c.raw != c.nc {
			if tcp.CloseWrite() != nil {
				return
			}
		}
		if c.raw.SetReadDeadline(time.Now().Add(lingerTime)) == nil {
			var rest [512]byte
			for _, err := c.raw.Read(rest[:]); err == nil; _, err = c.raw.Read(rest[:]) {
			}
		}
	}
}

// readLoop handles burst after burst: what one read brought, or what was left of
// it.
func (c *Conn) readLoop() error {
	for {
		frame, err := c.in.next()
		if err == nil && frame != nil {
			err = c.handleFrame(frame)
			if err == nil && len(c.w.Buf) < burstMax {
				continue
			}
		}
		// Answers go out before an error ends the connection: the requests before
		// the bad one were good.
		if flushErr := c.flushBurst(); err == nil {
			err = flushErr
		}
		if err != nil {
			return err
		}
		if frame == nil {
			if err := c.fill(); err != nil {
				return err
			}
		}
	}
}

// fill waits for bytes and takes what there is.
func (c *Conn) fill() error {
	if !c.in.prepare() {
		if err := c.awaitRoom(); err != nil {
			return err
		}
	}
	if !c.watched && c.large() {
		c.watched = true
		if err := c.armRead(); err != nil {
			return err
		}
	}
	for {
		n, err := c.nc.Read(c.in.buf[c.in.w:])
		if n > 0 {
			c.in.received(n)
			c.lastRead = c.ep.now()
			return nil
		}
		if err == nil {
			return io.ErrNoProgress
		}
		if !isTimeout(err) {
			return err
		}
		if err := c.rest(); err != nil {
			return err
		}
	}
}

// rest is called when the read deadline has passed: the connection has been
// silent, or the deadline is an old one. The deadline is set anew only here, so
// that it costs nothing while there is traffic.
func (c *Conn) rest() error {
	now := c.ep.now()
	if now-c.lastActive() >= c.ep.idleTimeout && c.calls.len() == 0 {
		return errIdle
	}
	if c.watched && now-c.lastRead >= shrinkAfter {
		c.in.shrink()
		c.w.Buf = nil
		c.out.trim()
		c.watched = c.large()
	}
	return c.armRead()
}

// large reports whether the connection holds memory that an idle one need not.
func (c *Conn) large() bool {
	return len(c.in.buf) > readStart || cap(c.w.Buf) > readStart || c.out.bulky.Load()
}

// lastActive is when something was last read or written.
func (c *Conn) lastActive() time.Duration {
	return max(c.lastRead, time.Duration(c.lastWrite.Load()))
}

// armRead sets the read deadline to when something is to be done about a silent
// connection.
func (c *Conn) armRead() error {
	now := c.ep.now()
	wait := c.lastActive() + c.ep.idleTimeout - now
	if c.watched {
		wait = min(wait, c.lastRead+shrinkAfter-now)
	}
	if wait <= 0 { // a call still waits, or half a frame fills a large buffer
		wait = min(time.Second, c.ep.idleTimeout)
	}
	if err := c.raw.SetReadDeadline(time.Now().Add(wait)); err != nil {
		return err
	}
	// stop sets the flag, then the deadline: here it is seen, or its deadline
	// comes after ours.
	if c.stopAsked.Load() {
		return errStopping
	}
	return nil
}

// stop lets the reader end after the burst it is handling.
func (c *Conn) stop() {
	c.stopAsked.Store(true)
	if err := c.raw.SetReadDeadline(time.Unix(1, 0)); err != nil {
		c.Close()
	}
}

// logEnd writes the one line that a connection's end deserves, if any.
func (c *Conn) logEnd() {
	err := c.out.cause()
	var bad *frameError
	switch {
	case errors.As(err, &bad):
		c.ep.warn.Warn("connection closed: malformed input", "remote", c.name, "reason", bad.reason)
	case errors.Is(err, errWriteStuck), errors.Is(err, errHandshake), errors.Is(err, errFlushPanic), errors.Is(err, errCrowded):
		c.ep.warn.Warn("connection closed", "remote", c.name, "reason", err)
	case errors.Is(err, io.EOF), errors.Is(err, ErrClosed), errors.Is(err, errIdle), errors.Is(err, syscall.ECONNRESET):
		c.ep.log.Debug("connection closed", "remote", c.name, "reason", err)
	default:
		c.ep.log.Debug("connection lost", "remote", c.name, "reason", fmt.Sprint(err))
	}
}
