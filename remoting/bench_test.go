package remoting

import (
	"context"
	"net"
	"sync"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// nullStream answers each request at once with an empty success.
type nullStream struct{}

func (nullStream) Request(req *protocol.Command, w *Writer) {
	f := protocol.BeginFrame(w.Buf, req.Coding, 0, protocol.FlagResponse, req.Opaque, "")
	w.Buf = f.End(f.BeginBody())
}
func (nullStream) Flush(*Writer) {}

var nullTable = Table{codeStream: {Stream: &StreamFactory{New: func(*Conn) Stream { return nullStream{} }}}}

// BenchmarkPipelined sends 1 KiB requests, 256 under way on one connection.
func BenchmarkPipelined(b *testing.B) {
	s := start(b, ServerOptions{}, nullTable)
	c := startClient(b, ClientOptions{})
	cmd := protocol.NewRequest(codeStream, nil, make([]byte, 1024))
	slots := make(chan struct{}, 256)
	var left sync.WaitGroup
	b.SetBytes(1024)
	b.ReportAllocs()
	for b.Loop() {
		slots <- struct{}{}
		left.Add(1)
		c.CallAsync(context.Background(), s.Addr().String(), cmd, func(_ *protocol.Command, err error) {
			if err != nil {
				b.Error(err)
			}
			<-slots
			left.Done()
		})
	}
	left.Wait()
}

// BenchmarkOneInFlight waits for each answer before the next request.
func BenchmarkOneInFlight(b *testing.B) {
	s := start(b, ServerOptions{}, nullTable)
	c := startClient(b, ClientOptions{})
	cmd := protocol.NewRequest(codeStream, nil, make([]byte, 1024))
	b.ReportAllocs()
	for b.Loop() {
		if _, err := c.Call(context.Background(), s.Addr().String(), cmd); err != nil {
			b.Fatal(err)
		}
	}
}

// BenchmarkReader is the server's own cost per request, without sockets.
func BenchmarkReader(b *testing.B) {
	frame := request(codeStream, 1, string(make([]byte, 1024)))
	var burst []byte
	for range 200 {
		burst = append(burst, frame...)
	}
	ep, err := newEndpoint(nullTable, limits{}, nil, nil)
	if err != nil {
		b.Fatal(err)
	}
	ep.ctx = b.Context()
	c := newConn(ep, quietConn{})
	b.ReportAllocs()
	for n := 0; b.Loop(); n++ {
		if n%200 == 0 {
			c.in.buf, c.in.r, c.in.w = burst, 0, len(burst)
			if err := c.flushBurst(); err != nil {
				b.Fatal(err)
			}
		}
		in, err := c.in.next()
		if err == nil {
			err = c.handleFrame(in)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// A quietConn swallows what is written.
type quietConn struct{ net.Conn }

func (quietConn) Write(p []byte) (int, error)      { return len(p), nil }
func (quietConn) SetWriteDeadline(time.Time) error { return nil }
func (quietConn) RemoteAddr() net.Addr             { return &net.TCPAddr{} }
func (quietConn) LocalAddr() net.Addr              { return &net.TCPAddr{} }
