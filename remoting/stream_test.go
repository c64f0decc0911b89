package remoting

import (
	"bytes"
	"context"
	"fmt"
	"hash/crc32"
	"io"
	"log/slog"
	"math/rand/v2"
	"net"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

// A scriptConn gives its reader prepared bytes, one element a Read, and notes what
// is written with one Write.
type scriptConn struct {
	net.Conn // for addresses and deadlines
	reads    [][]byte
	writes   [][]byte
}

func (s *scriptConn) Read(p []byte) (int, error) {
	if len(s.reads) == 0 {
		return 0, io.EOF
	}
	n := copy(p, s.reads[0])
	if s.reads[0] = s.reads[0][n:]; len(s.reads[0]) == 0 {
		s.reads = s.reads[1:]
	}
	return n, nil
}

func (s *scriptConn) Write(p []byte) (int, error) {
	s.writes = append(s.writes, bytes.Clone(p))
	return len(p), nil
}

// play runs a connection over a script to its end.
func play(t *testing.T, table Table, reads ...[]byte) *scriptConn {
	t.Helper()
	ep, err := newEndpoint(table, limits{}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ep.ctx = t.Context()
	a, b := net.Pipe()
	defer b.Close()
	script := &scriptConn{Conn: a, reads: reads}
	newConn(ep, script).run(nil)
	return script
}

func frames(t *testing.T, b []byte) (list []*protocol.Command) {
	t.Helper()
	f := frameBuffer{buf: b, w: len(b), max: DefaultMaxFrame}
	for {
		frame, err := f.next()
		if err != nil {
			t.Fatal(err)
		}
		if frame == nil {
			if f.r != f.w {
				t.Errorf("%d bytes behind the last frame", f.w-f.r)
			}
			return list
		}
		c := new(protocol.Command)
		if err := c.Decode(frame); err != nil {
			t.Fatal(err)
		}
		list = append(list, c.Clone())
	}
}

func TestBurstIsFlushedOnceAndAnsweredWithOneWrite(t *testing.T) {
	var flushes []int
	factory := &StreamFactory{New: func(*Conn) Stream {
		return &echoStream{report: func(s *echoStream) { flushes = append(flushes, len(s.owed)) }}
	}}
	var burst []byte
	for i := range 20 {
		code := codeStream
		if i%2 == 1 {
			code = codeOther // another code of the same stream
		}
		burst = append(burst, request(code, int32(i), fmt.Sprint("body ", i))...)
	}
	last := request(codeStream, 20, "late")
	script := play(t, Table{codeStream: {Stream: factory}, codeOther: {Stream: factory}},
		append(burst, last[:9]...), last[9:])
	if fmt.Sprint(flushes) != "[20 1]" {
		t.Errorf("requests at each flush: %v", flushes)
	}
	if len(script.writes) != 2 {
		t.Fatalf("%d writes for 2 bursts", len(script.writes))
	}
	for i, c := range append(frames(t, script.writes[0]), frames(t, script.writes[1])...) {
		want := fmt.Sprint("body ", i)
		if i == 20 {
			want = "late"
		}
		if c.Opaque != int32(i) || string(c.Body) != want {
			t.Errorf("answer %d: opaque %d, body %q", i, c.Opaque, c.Body)
		}
	}
}

// A bulkStream answers at once, with much.
type bulkStream struct {
	body  []byte
	drain bool
	most  *int
}

func (s *bulkStream) Request(req *protocol.Command, w *Writer) {
	w.Buf = AppendResponse(w.Buf, req, &protocol.Command{Body: s.body})
	*s.most = max(*s.most, len(w.Buf))
	if s.drain {
		w.Drain()
	}
}
func (s *bulkStream) Flush(*Writer) {}

func TestLargeAnswersGoOutEarly(t *testing.T) {
	for _, drain := range []bool{false, true} {
		const size, n = 100 << 10, 30
		most := 0
		factory := &StreamFactory{New: func(*Conn) Stream {
			return &bulkStream{body: make([]byte, size), drain: drain, most: &most}
		}}
		var burst []byte
		for i := range n {
			burst = append(burst, request(codeStream, int32(i), "")...)
		}
		script := play(t, Table{codeStream: {Stream: factory}}, burst)
		limit := burstMax + size + 1000
		if drain {
			limit = size + 1000
		}
		if most > limit {
			t.Errorf("drain %v: %d bytes of answers were held, limit %d", drain, most, limit)
		}
		if got := len(frames(t, bytes.Join(script.writes, nil))); got != n {
			t.Errorf("drain %v: %d answers of %d", drain, got, n)
		}
	}
}

func TestFlushPanicEndsOnlyItsConnection(t *testing.T) {
	factory := &StreamFactory{New: func(*Conn) Stream {
		return &echoStream{report: func(*echoStream) { panic("flush broke") }}
	}}
	var log logBook
	s := start(t, ServerOptions{Logger: log.logger()}, Table{codeStream: {Stream: factory}, codeEcho: {Handler: echo}})
	other := dialPeer(t, s)
	p := dialPeer(t, s)
	p.send(request(codeStream, 1, ""))
	p.wantClosed()
	other.send(request(codeEcho, 2, ""))
	other.next()
}

func TestFramesOneByteAtATime(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: echo}, codeStream: {Stream: echoStreams()}})
	p := dialPeer(t, s)
	for i, code := range []protocol.RequestCode{codeEcho, codeStream} {
		for _, b := range request(code, int32(i), "piecemeal") {
			p.send([]byte{b})
		}
		if resp := p.next(); resp.Opaque != int32(i) || string(resp.Body) != "piecemeal" {
			t.Errorf("answer %+v", resp)
		}
	}
}

func TestAnswersMayComeOutOfOrder(t *testing.T) {
	release := make(chan struct{})
	s := start(t, ServerOptions{}, Table{
		codeEcho: {Handler: func(ctx context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error) {
			<-release
			return echo(ctx, c, req)
		}},
		codeStream: {Stream: echoStreams()},
	})
	c := startClient(t, ClientOptions{})
	slow, fast := make(chan string, 1), make(chan string, 1)
	report := func(to chan string) func(*protocol.Command, error) {
		return func(resp *protocol.Command, err error) {
			if err != nil {
				t.Error(err)
				resp = new(protocol.Command)
			}
			to <- string(resp.Body)
		}
	}
	c.CallAsync(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, []byte("first")), report(slow))
	c.CallAsync(t.Context(), s.Addr().String(), protocol.NewRequest(codeStream, nil, []byte("second")), report(fast))
	if body := await(t, fast, "the fast answer"); body != "second" {
		t.Errorf("fast answer %q", body)
	}
	close(release)
	if body := await(t, slow, "the slow answer"); body != "first" {
		t.Errorf("slow answer %q", body)
	}
}

// sealed is a body that tells whether it is whole.
func sealed(r *rand.Rand) []byte {
	b := make([]byte, 4+r.IntN(3000))
	for i := range b[4:] {
		b[4+i] = byte(r.Uint32())
	}
	sum := crc32.ChecksumIEEE(b[4:])
	b[0], b[1], b[2], b[3] = byte(sum>>24), byte(sum>>16), byte(sum>>8), byte(sum)
	return b
}

func intact(b []byte) bool {
	if len(b) < 4 {
		return false
	}
	sum := crc32.ChecksumIEEE(b[4:])
	return b[0] == byte(sum>>24) && b[1] == byte(sum>>16) && b[2] == byte(sum>>8) && b[3] == byte(sum)
}

// Read buffers are reused; nothing of one request may show up in another.
func TestBodiesOfManyConnectionsNeverMix(t *testing.T) {
	const conns, each = 64, 150
	var torn atomic.Int32
	check := func(req *protocol.Command) {
		if !intact(req.Body) {
			torn.Add(1)
		}
	}
	gate := make(chan struct{}, 8)
	s := start(t, ServerOptions{MaxCalls: conns * each}, Table{
		codeEcho: {Handler: func(ctx context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error) {
			gate <- struct{}{} // a crowd at the door makes requests outlive the buffer they came in
			defer func() { <-gate }()
			check(req)
			return echo(ctx, c, req)
		}},
		codeStream: {Stream: &StreamFactory{New: func(*Conn) Stream {
			return &echoStream{report: func(s *echoStream) {
				for _, req := range s.owed {
					check(req)
				}
			}}
		}}},
	})
	var wg sync.WaitGroup
	for i := range conns {
		wg.Go(func() {
			r := rand.New(rand.NewPCG(uint64(i), 1))
			p := dialPeer(t, s)
			bodies := make([][]byte, each)
			for k := range bodies {
				bodies[k] = sealed(r)
			}
			wg.Go(func() {
				for k, body := range bodies {
					code := codeEcho
					if k%2 == 0 {
						code = codeStream
					}
					if _, err := p.Write(request(code, int32(k), string(body))); err != nil {
						t.Error(err)
						return
					}
				}
			})
			for range bodies {
				resp, err := p.read()
				if err != nil {
					t.Error(err)
					return
				}
				if !bytes.Equal(resp.Body, bodies[resp.Opaque]) {
					t.Errorf("connection %d: answer %d has another body", i, resp.Opaque)
				}
			}
		})
	}
	wg.Wait()
	if n := torn.Load(); n > 0 {
		t.Errorf("%d bodies arrived torn", n)
	}
}
