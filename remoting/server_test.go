package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

func TestHandlersAnswerInTheCodingAndWithTheOpaqueOfTheRequest(t *testing.T) {
	s := start(t, ServerOptions{}, Table{
		codeEcho:   {Handler: echo},
		codeOther:  {Handler: echo, Inline: true},
		codeStream: {Stream: echoStreams()},
	})
	p := dialPeer(t, s)
	for i, code := range []protocol.RequestCode{codeEcho, codeOther, codeStream} {
		for _, coding := range []protocol.Coding{protocol.JSON, protocol.Binary} {
			req := protocol.NewRequest(code, nil, []byte("body"))
			req.Opaque, req.Coding = int32(70+i), coding
			p.send(req.AppendTo(nil))
			resp := p.next()
			if !resp.IsResponse() || resp.Opaque != req.Opaque || resp.Coding != coding || resp.Version != protocol.CurrentVersion ||
				resp.Code != 0 || string(resp.Body) != "body" {
				t.Errorf("code %d, %v: answer %+v", code, coding, resp)
			}
		}
	}
}

func TestUnknownCodeIsRefusedAsApacheDoes(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: echo}})
	p := dialPeer(t, s)
	oneWay := protocol.NewRequest(77, nil, nil)
	oneWay.SetOneWay()
	p.send(oneWay.AppendTo(nil), request(77, 5, ""))
	resp := p.next()
	if resp.Opaque != 5 || resp.ResponseCode() != protocol.RequestCodeNotSupported || resp.Remark != " request type 77 not supported" {
		t.Errorf("answer %+v", resp)
	}
}

func TestTruncatedCodesOfTheBinaryHeaderFindTheirRoute(t *testing.T) {
	s := start(t, ServerOptions{}, Table{protocol.PopMessage: {Handler: echo}})
	p := dialPeer(t, s)
	for _, coding := range []protocol.Coding{protocol.JSON, protocol.Binary} {
		req := protocol.NewRequest(protocol.PopMessage, nil, nil)
		req.Opaque, req.Coding = 9, coding
		p.send(req.AppendTo(nil))
		if resp := p.next(); resp.Code != 0 || resp.Opaque != 9 {
			t.Errorf("%v: answer %+v", coding, resp)
		}
	}
}

func TestErrorsAndPanicsOfHandlersBecomeCodes(t *testing.T) {
	var log logBook
	fail := func(_ context.Context, _ *Conn, req *protocol.Command) (*protocol.Command, error) {
		switch string(req.Body) {
		case "coded":
			return nil, fmt.Errorf("look up: %w", protocol.Errorf(protocol.TopicNotExist, "no topic %s", "T"))
		case "plain":
			return nil, errors.New("disk on fire")
		}
		panic("handler broke")
	}
	s := start(t, ServerOptions{Logger: log.logger()}, Table{
		codeEcho:  {Handler: fail},
		codeOther: {Handler: fail, Inline: true},
		codeStream: {Stream: &StreamFactory{New: func(*Conn) Stream {
			return panicStream{}
		}}},
	})
	p := dialPeer(t, s)
	for _, code := range []protocol.RequestCode{codeEcho, codeOther, codeStream} {
		for body, want := range map[string]*protocol.Error{
			"coded": {Code: protocol.TopicNotExist, Remark: "no topic T"},
			"plain": {Code: protocol.SystemError, Remark: "disk on fire"},
			"panic": {Code: protocol.SystemError, Remark: "panic: handler broke"},
		} {
			if code == codeStream && body != "panic" {
				continue
			}
			p.send(request(code, 1, body))
			resp := p.next()
			if resp.ResponseCode() != want.Code || resp.Remark != want.Remark {
				t.Errorf("%d %s: answer %d %q", code, body, resp.Code, resp.Remark)
			}
		}
	}
	if s.Conns() != 1 {
		t.Errorf("%d connections, the one must have survived", s.Conns())
	}
	if n := strings.Count(log.text(), "msg=panic"); n != 3 {
		t.Errorf("%d lines on 3 panics:\n%s", n, log.text())
	}
	if n := strings.Count(log.text(), "disk on fire"); n != 2 {
		t.Errorf("%d lines on 2 errors without a code", n)
	}
}

type panicStream struct{}

func (panicStream) Request(_ *protocol.Command, w *Writer) {
	w.Buf = append(w.Buf, "half a fra"...)
	panic("handler broke")
}
func (panicStream) Flush(*Writer) {}

func TestExcessRequestsGetSystemBusy(t *testing.T) {
	for name, o := range map[string]struct {
		route int
		max   int
	}{"route": {2, 0}, "server": {0, 2}} {
		t.Run(name, func(t *testing.T) {
			release, entered := make(chan struct{}), make(chan struct{}, 9)
			hold := func(context.Context, *Conn, *protocol.Command) (*protocol.Command, error) {
				entered <- struct{}{}
				<-release
				return &protocol.Command{}, nil
			}
			s := start(t, ServerOptions{MaxCalls: o.max}, Table{codeEcho: {Handler: hold, Limit: o.route}})
			p := dialPeer(t, s)
			p.send(request(codeEcho, 1, ""), request(codeEcho, 2, ""))
			<-entered
			<-entered
			p.send(request(codeEcho, 3, ""))
			if resp := p.next(); resp.Opaque != 3 || resp.ResponseCode() != protocol.SystemBusy || !strings.HasPrefix(resp.Remark, "[REJECTREQUEST]") {
				t.Errorf("answer %+v", resp)
			}
			close(release)
			p.next()
			p.next()
			p.send(request(codeEcho, 4, ""))
			if resp := p.next(); resp.Opaque != 4 || resp.Code != 0 {
				t.Errorf("after the others ended: answer %+v", resp)
			}
		})
	}
}

func TestServerCallsItsClient(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: func(ctx context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error) {
		// The same opaque is under way in both directions.
		return c.Call(ctx, protocol.NewRequest(codeOther, nil, append(req.Body, '!')))
	}}})
	c := startClient(t, ClientOptions{Table: Table{codeOther: {Handler: func(_ context.Context, _ *Conn, req *protocol.Command) (*protocol.Command, error) {
		return protocol.NewResponse(protocol.Success, "", nil, append(req.Body, '?')), nil
	}}}})
	resp, err := c.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, []byte("who")))
	if err != nil || string(resp.Body) != "who!?" {
		t.Fatalf("answer %+v, %v", resp, err)
	}
}

func TestServerPushesOneWay(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Inline: true, Handler: func(_ context.Context, c *Conn, _ *protocol.Command) (*protocol.Command, error) {
		return nil, c.OneWay(protocol.NewRequest(codeOther, nil, []byte("news")))
	}}})
	got := make(chan string, 1)
	c := startClient(t, ClientOptions{Table: Table{codeOther: {Handler: func(_ context.Context, _ *Conn, req *protocol.Command) (*protocol.Command, error) {
		got <- string(req.Body)
		return protocol.NewResponse(protocol.Success, "must not be sent", nil, nil), nil
	}}}})
	if err := c.OneWay(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil)); err != nil {
		t.Fatal(err)
	}
	if body := await(t, got, "the push"); body != "news" {
		t.Errorf("pushed %q", body)
	}
}

func TestOnCloseFollowsTheLastHandler(t *testing.T) {
	var running atomic.Int32
	entered, closed := make(chan struct{}, 2), make(chan int32, 1)
	s := start(t, ServerOptions{OnClose: func(*Conn) { closed <- running.Load() }}, Table{codeEcho: {
		Handler: func(ctx context.Context, c *Conn, _ *protocol.Command) (*protocol.Command, error) {
			running.Add(2)
			if !c.Go(func(ctx context.Context) {
				entered <- struct{}{}
				<-ctx.Done()
				running.Add(-1)
			}) {
				t.Error("Go refused")
			}
			entered <- struct{}{}
			<-ctx.Done()
			running.Add(-1)
			return nil, nil
		},
	}})
	p := dialPeer(t, s)
	p.send(request(codeEcho, 1, ""))
	await(t, entered, "handler or goroutine")
	await(t, entered, "handler or goroutine")
	p.Close()
	if n := await(t, closed, "OnClose"); n != 0 {
		t.Errorf("OnClose while %d still ran", n)
	}
}

func TestGoIsBounded(t *testing.T) {
	results := make(chan bool, 3)
	s := start(t, ServerOptions{MaxWaiting: 2}, Table{codeEcho: {Inline: true, Handler: func(_ context.Context, c *Conn, _ *protocol.Command) (*protocol.Command, error) {
		results <- c.Go(func(ctx context.Context) { <-ctx.Done() })
		return nil, nil
	}}})
	p := dialPeer(t, s)
	p.send(request(codeEcho, 1, ""), request(codeEcho, 2, ""), request(codeEcho, 3, ""))
	for _, want := range []bool{true, true, false} {
		if got := await(t, results, "Go"); got != want {
			t.Errorf("Go = %v, want %v", got, want)
		}
	}
}

func TestConnectionsBeyondTheLimitAreClosed(t *testing.T) {
	var log logBook
	s := start(t, ServerOptions{MaxConns: 1, Logger: log.logger()}, Table{codeEcho: {Handler: echo}})
	first := dialPeer(t, s)
	first.send(request(codeEcho, 1, "a"))
	first.next()
	dialPeer(t, s).wantClosed()
	first.send(request(codeEcho, 2, "b"))
	first.next()
	if !strings.Contains(log.text(), "max_conns=1") {
		t.Errorf("log does not say why:\n%s", log.text())
	}
}

// A tiredListener runs out of file descriptors now and then.
type tiredListener struct {
	net.Listener
	fail atomic.Int32
}

func (l *tiredListener) Accept() (net.Conn, error) {
	if l.fail.Add(-1) >= 0 {
		return nil, &net.OpError{Op: "accept", Err: syscall.EMFILE}
	}
	return l.Listener.Accept()
}

func TestAcceptErrorsPass(t *testing.T) {
	var log logBook
	s, err := NewServer(ServerOptions{Listen: "127.0.0.1:0", Logger: log.logger()}, Table{codeEcho: {Handler: echo}})
	if err != nil {
		t.Fatal(err)
	}
	tired := &tiredListener{Listener: s.listener}
	tired.fail.Store(3)
	s.listener = tired
	runUntilEnd(t, s.Run)
	p := dialPeer(t, s)
	p.send(request(codeEcho, 1, "a"))
	p.next()
	if n := strings.Count(log.text(), "too many open files"); n != 3 {
		t.Errorf("%d lines on 3 errors", n)
	}
}

func TestServerOptionsAreChecked(t *testing.T) {
	for name, f := range map[string]func() (*Server, error){
		"route with nothing": func() (*Server, error) { return NewServer(ServerOptions{}, Table{codeEcho: {}}) },
		"route with both": func() (*Server, error) {
			return NewServer(ServerOptions{}, Table{codeEcho: {Handler: echo, Stream: echoStreams()}})
		},
		"frame limit":     func() (*Server, error) { return NewServer(ServerOptions{MaxFrame: 1 << 30}, nil) },
		"TLS only":        func() (*Server, error) { return NewServer(ServerOptions{TLSOnly: true}, nil) },
		"no such address": func() (*Server, error) { return NewServer(ServerOptions{Listen: "256.0.0.1:1"}, nil) },
	} {
		if s, err := f(); err == nil {
			s.listener.Close()
			t.Errorf("%s: no error", name)
		}
	}
}

func TestConcurrentRepliesAreWholeFrames(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: echo}, codeStream: {Stream: echoStreams()}})
	c := startClient(t, ClientOptions{})
	var wg sync.WaitGroup
	for g := range 16 {
		wg.Go(func() {
			for i := range 100 {
				code := codeEcho
				if (g+i)%2 == 0 {
					code = codeStream
				}
				body := strings.Repeat(fmt.Sprint(g, ",", i, ";"), 1+i*7)
				resp, err := c.Call(context.Background(), s.Addr().String(), protocol.NewRequest(code, nil, []byte(body)))
				if err != nil || string(resp.Body) != body {
					t.Errorf("call %d of %d: %v", i, g, err)
					return
				}
			}
		})
	}
	wg.Wait()
}

func TestConnKnowsItsEnds(t *testing.T) {
	conns := make(chan *Conn, 2)
	s := start(t, ServerOptions{}, Table{codeEcho: {Inline: true, Handler: func(_ context.Context, c *Conn, _ *protocol.Command) (*protocol.Command, error) {
		conns <- c
		return nil, nil
	}}})
	ids := make(map[uint64]bool)
	for range 2 {
		p := dialPeer(t, s)
		p.send(request(codeEcho, 1, ""))
		c := await(t, conns, "the request")
		if c.RemoteAddr().String() != p.LocalAddr().String() || c.LocalAddr() != s.Addr() {
			t.Errorf("ends %v, %v", c.RemoteAddr(), c.LocalAddr())
		}
		if c.Closed() || c.Context().Err() != nil {
			t.Error("a new connection is closed")
		}
		ids[c.ID()] = true
		c.Close()
		p.wantClosed()
		if !c.Closed() || c.Context().Err() == nil {
			t.Error("a closed connection is open")
		}
		if err := c.OneWay(protocol.NewRequest(codeOther, nil, nil)); !errors.Is(err, ErrNotSent) || !errors.Is(err, ErrClosed) {
			t.Errorf("OneWay on a closed connection: %v", err)
		}
	}
	if len(ids) != 2 {
		t.Errorf("two connections have the ids %v", ids)
	}
}

func TestAnswersMayBeWrittenLater(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: func(_ context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error) {
		c.Go(func(context.Context) {
			err := c.Write(func(dst []byte) []byte {
				dst = AppendError(dst, req, protocol.Errorf(protocol.PullNotFound, "none"))
				return AppendResponse(dst, req, &protocol.Command{Body: req.Body})
			})
			if err != nil {
				t.Error(err)
			}
		})
		return nil, nil
	}}})
	p := dialPeer(t, s)
	p.send(request(codeEcho, 1, "later"))
	if resp := p.next(); resp.ResponseCode() != protocol.PullNotFound || resp.Remark != "none" {
		t.Errorf("first answer %+v", resp)
	}
	if resp := p.next(); resp.Opaque != 1 || string(resp.Body) != "later" {
		t.Errorf("second answer %+v", resp)
	}
}

func TestFramesAboveTheLimitAreNotSent(t *testing.T) {
	s := start(t, ServerOptions{MaxFrame: 1000}, Table{codeEcho: {Handler: func(context.Context, *Conn, *protocol.Command) (*protocol.Command, error) {
		return &protocol.Command{Body: make([]byte, 1000)}, nil
	}}})
	c := startClient(t, ClientOptions{MaxFrame: 500})
	addr := s.Addr().String()
	if _, err := c.Call(t.Context(), addr, protocol.NewRequest(codeEcho, nil, make([]byte, 500))); !errors.Is(err, ErrTooLarge) || !errors.Is(err, ErrNotSent) {
		t.Errorf("request above the limit: %v", err)
	}
	resp, err := c.Call(t.Context(), addr, protocol.NewRequest(codeEcho, nil, nil))
	if err != nil || resp.ResponseCode() != protocol.SystemError || !strings.Contains(resp.Remark, "limit 1000") {
		t.Errorf("answer above the limit: %+v, %v", resp, err)
	}
}
