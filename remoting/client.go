package remoting

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// Defaults of ClientOptions.
const (
	DefaultMaxAsync  = 2048
	DefaultMaxOneWay = 2048
)

// ClientOptions configure a Client. Zero values mean the defaults.
type ClientOptions struct {
	TLS            *tls.Config   // nil: plain text. ServerName defaults to the host of the address
	ConnectTimeout time.Duration // with the TLS handshake
	IdleTimeout    time.Duration // neither read nor written and no call waits: close
	WriteTimeout   time.Duration // a peer that takes less than 1 MiB in this time is cut

	MaxAsync  int // asynchronous calls under way
	MaxOneWay int // one-way requests being sent
	MaxFrame  int // bytes of one frame with its length word
	MaxCalls  int // requests from servers handled at once

	Table Table // requests from servers; nil: each gets code 3
	// OnClose is called once for every connection, after its last handler.
	OnClose func(*Conn)
	Logger  *slog.Logger // nil: no log
}

// A Client makes one connection per address, when it is first needed, and sends
// calls over it. Its methods may be used by several goroutines at once; they wait
// for Run to be called. What one goroutine sends to one address leaves in that
// order.
type Client struct {
	o     ClientOptions
	ep    *endpoint
	bad   error // of the options; Run returns it
	async atomic.Int64
	ways  atomic.Int64

	started chan struct{} // closed by Run; the endpoint's context is set then
	once    sync.Once
	mu      sync.Mutex
	links   map[string]*link
	live    gate // links
}

// A link is a connection or the try to make one.
type link struct {
	ready chan struct{} // closed when one of the two below is set
	conn  *Conn
	err   error
}

// NewClient starts nothing; see Run.
func NewClient(o ClientOptions) *Client {
	o.ConnectTimeout = orDefault(o.ConnectTimeout, DefaultConnectTimeout)
	o.MaxAsync = orDefault(o.MaxAsync, DefaultMaxAsync)
	o.MaxOneWay = orDefault(o.MaxOneWay, DefaultMaxOneWay)
	ep, err := newEndpoint(o.Table, limits{
		maxFrame: o.MaxFrame, maxCalls: o.MaxCalls, idleTimeout: o.IdleTimeout, writeTimeout: o.WriteTimeout,
	}, o.OnClose, o.Logger)
	return &Client{o: o, ep: ep, bad: err, started: make(chan struct{}), links: make(map[string]*link)}
}

// Run lets the client connect until ctx ends. Then calls that wait fail with
// ErrClosed, what is queued is written, and Run returns when every goroutine has
// ended. It returns an error only when the options are wrong or on a second call.
func (c *Client) Run(ctx context.Context) error {
	if c.bad != nil {
		return c.bad
	}
	err := errors.New("client has run already")
	c.once.Do(func() { err = nil })
	if err != nil {
		return err
	}
	c.ep.ctx = ctx
	close(c.started)
	<-ctx.Done()
	c.ep.stopping.Store(true)
	gone := c.live.shut()
	conns := c.conns()
	for _, conn := range conns {
		conn.stop()
	}
	grace := time.NewTimer(DefaultGrace)
	defer grace.Stop()
	select {
	case <-gone:
	case <-grace.C:
		for _, conn := range conns {
			conn.Close()
		}
		<-gone
	}
	return nil
}

func (c *Client) conns() []*Conn {
	c.mu.Lock()
	defer c.mu.Unlock()
	var conns []*Conn
	for _, l := range c.links {
		if l.conn != nil {
			conns = append(conns, l.conn)
		}
	}
	return conns
}

// Call sends a request and waits for the response until ctx ends, or for
// DefaultCallTimeout when ctx has no deadline. The error is a *CallError: it says
// whether the peer may have seen the request. A response is returned whatever its
// code, see protocol.Command.Err. cmd is only read.
func (c *Client) Call(ctx context.Context, addr string, cmd *protocol.Command) (*protocol.Command, error) {
	conn, err := c.conn(ctx, addr)
	if err != nil {
		return nil, err
	}
	return conn.Call(ctx, cmd)
}

// CallAsync sends a request and lets done hear the outcome, exactly once. The
// deadline of ctx is the time-out, DefaultCallTimeout when it has none; once the
// request is queued the end of ctx does not end the call. CallAsync waits for the
// connection to be made and for room in its queue.
//
// done runs on the goroutine that reads the connection, or that of a timer, or,
// when nothing could be sent, on the caller's. It holds up the connection: it
// must not wait, but may send.
func (c *Client) CallAsync(ctx context.Context, addr string, cmd *protocol.Command, done func(*protocol.Command, error)) {
	if c.async.Add(1) > int64(c.o.MaxAsync) {
		c.async.Add(-1)
		done(nil, &CallError{Addr: addr, Err: ErrTooManyCalls})
		return
	}
	conn, err := c.conn(ctx, addr)
	if err != nil {
		c.async.Add(-1)
		done(nil, err)
		return
	}
	conn.start(ctx, cmd, deferred, func(resp *protocol.Command, err error) {
		c.async.Add(-1)
		done(resp, err)
	})
}

// OneWay sends a request that gets no response. A nil error means that it is
// queued or written, not that it arrived. cmd is only read.
func (c *Client) OneWay(ctx context.Context, addr string, cmd *protocol.Command) error {
	defer c.ways.Add(-1)
	if c.ways.Add(1) > int64(c.o.MaxOneWay) {
		return &CallError{Addr: addr, Err: ErrTooManyCalls}
	}
	conn, err := c.conn(ctx, addr)
	if err != nil {
		return err
	}
	return conn.sendOneWay(ctx, cmd)
}

// CloseConn closes the connection to addr, if there is one. Calls that wait on it
// fail; the next one makes a new connection.
func (c *Client) CloseConn(addr string) {
	c.mu.Lock()
	l := c.links[addr]
	var conn *Conn
	if l != nil && l.conn != nil {
		conn = l.conn
		delete(c.links, addr)
	}
	c.mu.Unlock()
	if conn != nil {
		conn.Close()
	}
}

// conn returns the connection to addr. Whoever asks first starts to make it; all
// others wait for the same try.
func (c *Client) conn(ctx context.Context, addr string) (*Conn, error) {
	select {
	case <-c.started:
	case <-ctx.Done():
		return nil, &CallError{Addr: addr, Err: contextCause(ctx)}
	}
	l := c.link(addr)
	if l == nil {
		return nil, &CallError{Addr: addr, Err: ErrClosed}
	}
	select {
	case <-l.ready:
	default:
		select {
		case <-l.ready:
		case <-ctx.Done():
			return nil, &CallError{Addr: addr, Err: contextCause(ctx)}
		}
	}
	if l.err != nil {
		return nil, &CallError{Addr: addr, Err: l.err}
	}
	return l.conn, nil
}

// link returns nil when the client has stopped.
func (c *Client) link(addr string) *link {
	c.mu.Lock()
	defer c.mu.Unlock()
	if l := c.links[addr]; l != nil && (l.conn == nil || !l.conn.Closed()) {
		return l
	}
	if !c.live.enter() {
		return nil
	}
	l := &link{ready: make(chan struct{})}
	c.links[addr] = l
	go c.serve(addr, l)
	return l
}

// serve makes a connection and reads it to its end.
func (c *Client) serve(addr string, l *link) {
	defer c.live.leave()
	conn, err := c.dial(addr)
	c.mu.Lock()
	switch {
	case err != nil:
		l.err = err
		c.dropLocked(addr, l)
	case c.ep.stopping.Load():
		// Run has looked for connections to stop before this one was there.
		l.err = ErrClosed
		conn.Close()
		conn = nil
	default:
		l.conn = conn
	}
	c.mu.Unlock()
	close(l.ready)
	if conn == nil {
		return
	}
	conn.run(nil)
	c.mu.Lock()
	c.dropLocked(addr, l)
	c.mu.Unlock()
}

func (c *Client) dropLocked(addr string, l *link) {
	if c.links[addr] == l {
		delete(c.links, addr)
	}
}

func (c *Client) dial(addr string) (*Conn, error) {
	ctx, cancel := context.WithTimeout(c.ep.ctx, c.o.ConnectTimeout)
	defer cancel()
	var d net.Dialer
	nc, err := d.DialContext(ctx, "tcp", addr)
	if err != nil {
		return nil, err
	}
	conn := newConn(c.ep, nc)
	if c.o.TLS == nil {
		return conn, nil
	}
	config := c.o.TLS
	if host, _, err := net.SplitHostPort(addr); err == nil && config.ServerName == "" && !config.InsecureSkipVerify {
		config = config.Clone()
		config.ServerName = host
	}
	t := tls.Client(nc, config)
	if err := t.HandshakeContext(ctx); err != nil {
		conn.Close()
		return nil, fmt.Errorf("%w: %w", errHandshake, err)
	}
	conn.nc = t
	return conn, nil
}
