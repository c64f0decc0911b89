package remoting

import (
	"bufio"
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"log/slog"
	"net"
	"strings"
	"sync"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// patience bounds waits for things that must happen; a test that passes never
// waits that long.
const patience = 10 * time.Second

const (
	codeEcho   = protocol.RequestCode(9001)
	codeStream = protocol.RequestCode(9002)
	codeOther  = protocol.RequestCode(9003)
)

func echo(_ context.Context, _ *Conn, req *protocol.Command) (*protocol.Command, error) {
	return protocol.NewResponse(protocol.Success, "", nil, req.Body), nil
}

// start runs a server until the test ends and fails the test if Run does.
func start(t testing.TB, o ServerOptions, table Table) *Server {
	t.Helper()
	if o.Listen == "" {
		o.Listen = "127.0.0.1:0"
	}
	s, err := NewServer(o, table)
	if err != nil {
		t.Fatal(err)
	}
	runUntilEnd(t, s.Run)
	return s
}

func startClient(t testing.TB, o ClientOptions) *Client {
	t.Helper()
	c := NewClient(o)
	runUntilEnd(t, c.Run)
	return c
}

// runUntilEnd returns a function that stops run early and waits for it.
func runUntilEnd(t testing.TB, run func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() { ended <- run(ctx) }()
	stop = sync.OnceFunc(func() {
		cancel()
		select {
		case err := <-ended:
			if err != nil {
				t.Errorf("Run: %v", err)
			}
		case <-time.After(patience):
			t.Error("Run does not return")
		}
	})
	t.Cleanup(stop)
	return stop
}

// A peer speaks raw bytes to a server.
type peer struct {
	net.Conn
	t testing.TB
	r *bufio.Reader
}

func dialPeer(t testing.TB, s *Server) *peer {
	t.Helper()
	nc, err := net.Dial("tcp", s.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { nc.Close() })
	return newPeer(t, nc)
}

func newPeer(t testing.TB, nc net.Conn) *peer {
	nc.SetDeadline(time.Now().Add(patience))
	return &peer{Conn: nc, t: t, r: bufio.NewReader(nc)}
}

func (p *peer) send(frames ...[]byte) {
	p.t.Helper()
	if _, err := p.Write(bytes.Join(frames, nil)); err != nil {
		p.t.Fatal(err)
	}
}

// next reads one frame.
func (p *peer) next() *protocol.Command {
	p.t.Helper()
	c, err := p.read()
	if err != nil {
		p.t.Fatal(err)
	}
	return c
}

func (p *peer) read() (*protocol.Command, error) {
	var length [4]byte
	if _, err := io.ReadFull(p.r, length[:]); err != nil {
		return nil, err
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(p.r, frame); err != nil {
		return nil, err
	}
	c := new(protocol.Command)
	return c, c.Decode(frame)
}

// wantClosed reads until the server has closed the connection.
func (p *peer) wantClosed() {
	p.t.Helper()
	p.SetDeadline(time.Now().Add(patience))
	for {
		if _, err := p.read(); err != nil {
			if isTimeout(err) {
				p.t.Fatal("the connection is still open")
			}
			return
		}
	}
}

func request(code protocol.RequestCode, opaque int32, body string) []byte {
	c := protocol.NewRequest(code, nil, []byte(body))
	c.Opaque = opaque
	return c.AppendTo(nil)
}

// A logBook keeps log lines for a test to look at.
type logBook struct {
	mu sync.Mutex
	b  strings.Builder
}

func (l *logBook) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(p)
}

func (l *logBook) text() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

func (l *logBook) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

// await waits for a channel and fails when nothing comes.
func await[T any](t testing.TB, ch <-chan T, what string) T {
	t.Helper()
	select {
	case v := <-ch:
		return v
	case <-time.After(patience):
		t.Fatalf("waited in vain for %s", what)
		panic("unreachable")
	}
}

// A stream that answers each request with its body in Flush.
type echoStream struct {
	owed    []*protocol.Command
	flushes int
	report  func(*echoStream)
}

func (s *echoStream) Request(req *protocol.Command, _ *Writer) { s.owed = append(s.owed, req.Clone()) }

func (s *echoStream) Flush(w *Writer) {
	s.flushes++
	for _, req := range s.owed {
		w.Buf = AppendResponse(w.Buf, req, &protocol.Command{Body: req.Body})
	}
	if s.report != nil {
		s.report(s)
	}
	s.owed = s.owed[:0]
}

func echoStreams() *StreamFactory {
	return &StreamFactory{New: func(*Conn) Stream { return new(echoStream) }}
}
