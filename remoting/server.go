package remoting

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"runtime/debug"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"
)

// DefaultMaxConns bounds the connections of a server.
const DefaultMaxConns = 8192

// ServerOptions configure a Server. Zero values mean the defaults.
type ServerOptions struct {
	Listen string // host:port; port 0 takes a free one, see Server.Addr
	// TLS, when set, lets clients choose TLS or plain text by their first byte;
	// TLSOnly refuses plain text.
	TLS     *tls.Config
	TLSOnly bool

	IdleTimeout      time.Duration // neither read nor written: close
	WriteTimeout     time.Duration // a peer that takes less than 1 MiB in this time is cut
	HandshakeTimeout time.Duration // of TLS
	Grace            time.Duration // for running handlers when the server stops

	MaxFrame   int // bytes of one frame with its length word
	MaxCalls   int // requests handled at once by handlers with their own goroutine
	MaxWaiting int // goroutines of Conn.Go at once
	MaxConns   int
	// MaxBulk is what read buffers above 256 KiB take together, in bytes; frames
	// that need more wait. The default is the memory limit of the Go runtime.
	MaxBulk int64

	// OnClose is called once for every connection, after all its handlers, streams
	// and goroutines have ended.
	OnClose func(*Conn)
	Logger  *slog.Logger // nil: no log
}

// A Server answers requests on one TCP port. See NewServer.
type Server struct {
	o        ServerOptions
	ep       *endpoint
	listener net.Listener

	mu    sync.Mutex
	conns map[*Conn]struct{}
	live  gate // connections
}

// NewServer binds the port, so that Addr is known and a port in use is noticed;
// it serves nobody before Run. Run with an ended context gives the port back.
func NewServer(o ServerOptions, t Table) (*Server, error) {
	o.HandshakeTimeout = orDefault(o.HandshakeTimeout, DefaultHandshakeTimeout)
	o.Grace = orDefault(o.Grace, DefaultGrace)
	o.MaxConns = orDefault(o.MaxConns, DefaultMaxConns)
	if o.TLSOnly && o.TLS == nil {
		return nil, errors.New("TLS is required but not configured")
	}
	ep, err := newEndpoint(t, limits{
		maxFrame: o.MaxFrame, maxCalls: o.MaxCalls, maxWaiting: o.MaxWaiting,
		idleTimeout: o.IdleTimeout, writeTimeout: o.WriteTimeout,
	}, o.OnClose, o.Logger)
	if err != nil {
		return nil, err
	}
	ep.room = &bulkRoom{limit: orDefault(o.MaxBulk, debug.SetMemoryLimit(-1))}
	l, err := net.Listen("tcp", o.Listen)
	if err != nil {
		return nil, err
	}
	return &Server{o: o, ep: ep, listener: l, conns: make(map[*Conn]struct{})}, nil
}

// Addr returns the address that the server listens on.
func (s *Server) Addr() netip.AddrPort { return addrPort(s.listener.Addr()) }

// Conns returns the number of open connections.
func (s *Server) Conns() int {
	s.mu.Lock()
	defer s.mu.Unlock()
	return len(s.conns)
}

// Run serves until ctx ends, then stops: it takes no more connections, turns new
// requests away, ends the contexts of running handlers and gives them Grace to
// answer, and closes the connections. It returns when every goroutine has ended,
// nil unless the listener broke. Run may be called once.
func (s *Server) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	s.ep.ctx = ctx
	g.Go(func() error {
		<-ctx.Done()
		s.stop()
		return nil
	})
	g.Go(func() error { return s.accept(ctx, g) })
	return g.Wait()
}

// accept starts a goroutine per connection in g. Errors such as a full table of
// file descriptors pass; it waits a little longer each time.
func (s *Server) accept(ctx context.Context, g *errgroup.Group) error {
	const first, longest = 5 * time.Millisecond, time.Second
	pause := first
	for {
		nc, err := s.listener.Accept()
		switch {
		case err == nil:
			pause = first
			if c := s.admit(nc); c != nil {
				g.Go(func() error {
					defer s.remove(c)
					c.run(func() error { return s.upgrade(c) })
					return nil
				})
			}
			continue
		case ctx.Err() != nil:
			return nil
		case errors.Is(err, net.ErrClosed):
			return fmt.Errorf("accept on %v: %w", s.Addr(), err)
		}
		s.ep.warn.Warn("cannot accept a connection", "listen", s.Addr(), "err", err, "pause", pause)
		select {
		case <-ctx.Done():
			return nil
		case <-time.After(pause):
		}
		pause = min(2*pause, longest)
	}
}

// admit makes a connection of nc, or closes it and returns nil.
func (s *Server) admit(nc net.Conn) *Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	full := len(s.conns) >= s.o.MaxConns
	if full || !s.live.enter() {
		if full {
			s.ep.warn.Warn("connection refused: as many as allowed are open",
				"remote", nc.RemoteAddr(), "max_conns", s.o.MaxConns)
		}
		nc.Close()
		return nil
	}
	c := newConn(s.ep, nc)
	s.conns[c] = struct{}{}
	return c
}

func (s *Server) remove(c *Conn) {
	s.mu.Lock()
	delete(s.conns, c)
	s.mu.Unlock()
	s.live.leave()
}

// upgrade waits for the first bytes and puts TLS on the connection if they ask
// for it.
func (s *Server) upgrade(c *Conn) error {
	if err := c.fill(); err != nil {
		return err
	}
	if s.o.TLS == nil {
		return nil
	}
	if c.in.buf[0] != tlsRecord {
		if s.o.TLSOnly {
			return &frameError{"plain text, but TLS is required here"}
		}
		return nil
	}
	t := tls.Server(&replayConn{Conn: c.raw, head: slices.Clone(c.in.buf[:c.in.w])}, s.o.TLS)
	c.in = frameBuffer{max: c.in.max, room: c.in.room}
	ctx, cancel := context.WithTimeout(c.ctx, s.o.HandshakeTimeout)
	defer cancel()
	if err := t.HandshakeContext(ctx); err != nil {
		if c.ctx.Err() != nil {
			return ErrClosed
		}
		return fmt.Errorf("%w: %w", errHandshake, err)
	}
	c.nc = t
	return nil
}

// stop ends the connections in steps, each for all of them at once.
func (s *Server) stop() {
	s.ep.stopping.Store(true)
	s.listener.Close()
	gone := s.live.shut()
	conns := s.snapshot()
	grace := time.NewTimer(s.o.Grace)
	defer grace.Stop()
	for _, c := range conns {
		select {
		case <-c.tasks.shut():
		case <-grace.C:
			grace.Reset(0) // so that the others do not wait either
		}
	}
	for _, c := range conns {
		c.stop()
	}
	grace.Reset(s.o.Grace)
	select {
	case <-gone:
	case <-grace.C:
		for _, c := range s.snapshot() {
			c.Close()
		}
	}
}

func (s *Server) snapshot() []*Conn {
	s.mu.Lock()
	defer s.mu.Unlock()
	conns := make([]*Conn, 0, len(s.conns))
	for c := range s.conns {
		conns = append(conns, c)
	}
	return conns
}
