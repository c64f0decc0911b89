package remoting

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

func TestStopLetsHandlersAnswerAndTurnsNewRequestsAway(t *testing.T) {
	entered, release := make(chan struct{}, 2), make(chan struct{})
	s, err := NewServer(ServerOptions{Listen: "127.0.0.1:0"}, Table{
		codeEcho: {Handler: func(ctx context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error) {
			entered <- struct{}{}
			<-release // works on
			return echo(ctx, c, req)
		}},
		codeOther: {Handler: func(ctx context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error) {
			entered <- struct{}{}
			<-ctx.Done() // waits, such as for messages
			return echo(ctx, c, req)
		}},
		codeStream: {Stream: echoStreams()},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := runUntilEnd(t, s.Run)
	p := dialPeer(t, s)
	p.send(request(codeEcho, 1, "work"), request(codeOther, 2, "wait"))
	await(t, entered, "a handler")
	await(t, entered, "a handler")
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	if resp := p.next(); resp.Opaque != 2 || string(resp.Body) != "wait" {
		t.Errorf("the waiting handler answered %+v", resp)
	}
	// The waiting one has ended, so the server is stopping.
	for version, want := range map[int32]protocol.ResponseCode{
		475: protocol.ServiceNotAvailable, 477: protocol.GoAway,
	} {
		for _, code := range []protocol.RequestCode{codeEcho, codeStream} {
			req := protocol.NewRequest(code, nil, nil)
			req.Version = version
			p.send(req.AppendTo(nil))
			if resp := p.next(); resp.ResponseCode() != want {
				t.Errorf("a request of version %d got code %d %q", version, resp.Code, resp.Remark)
			}
		}
	}
	close(release)
	if resp := p.next(); resp.Opaque != 1 || string(resp.Body) != "work" {
		t.Errorf("the working handler answered %+v", resp)
	}
	p.wantClosed()
	p.Close()
	await(t, stopped, "the end of Run")
	if s.Conns() != 0 {
		t.Errorf("%d connections left", s.Conns())
	}
}

func TestStopDoesNotWaitForHandlersBeyondGrace(t *testing.T) {
	entered, release := make(chan struct{}), make(chan struct{})
	s, err := NewServer(ServerOptions{Listen: "127.0.0.1:0", Grace: 20 * time.Millisecond}, Table{
		codeEcho: {Handler: func(context.Context, *Conn, *protocol.Command) (*protocol.Command, error) {
			close(entered)
			<-release
			return nil, nil
		}},
	})
	if err != nil {
		t.Fatal(err)
	}
	stop := runUntilEnd(t, s.Run)
	p := dialPeer(t, s)
	p.send(request(codeEcho, 1, ""))
	await(t, entered, "the handler")
	stopped := make(chan struct{})
	go func() { defer close(stopped); stop() }()
	p.wantClosed() // although the handler does not end
	select {
	case <-stopped:
		t.Error("Run returned before its handler")
	default:
	}
	close(release)
	await(t, stopped, "the end of Run")
}

func TestStopDuringALoadAnswersAllItHandled(t *testing.T) {
	s, err := NewServer(ServerOptions{Listen: "127.0.0.1:0"}, Table{codeStream: {Stream: echoStreams()}})
	if err != nil {
		t.Fatal(err)
	}
	stop := runUntilEnd(t, s.Run)
	p := dialPeer(t, s)
	go func() {
		for i := int32(1); ; i++ {
			if _, err := p.Write(request(codeStream, i, "load")); err != nil {
				return
			}
		}
	}()
	// Requests turned away in the middle of a burst overtake those that its flush
	// answers; but each request up to the last one answered has an answer.
	answered := make(map[int32]bool)
	last := int32(0)
	for {
		resp, err := p.read()
		if err != nil {
			if isTimeout(err) || len(answered) < 1000 {
				t.Errorf("after %d answers: %v", len(answered), err)
			}
			break
		}
		if answered[resp.Opaque] {
			t.Errorf("request %d is answered twice", resp.Opaque)
		}
		answered[resp.Opaque] = true
		if last = max(last, resp.Opaque); len(answered) == 1000 {
			go stop()
		}
	}
	if len(answered) != int(last) {
		t.Errorf("%d answers, the last one to request %d", len(answered), last)
	}
}

func TestEndedContextGivesThePortBack(t *testing.T) {
	s, err := NewServer(ServerOptions{Listen: "127.0.0.1:0"}, nil)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Error(err)
	}
	again, err := NewServer(ServerOptions{Listen: s.Addr().String()}, nil)
	if err != nil {
		t.Fatal(err)
	}
	again.listener.Close()
}

func TestCallsFromAStoppingServerEnd(t *testing.T) {
	result := make(chan error, 1)
	s, err := NewServer(ServerOptions{Listen: "127.0.0.1:0"}, Table{codeEcho: {Handler: func(ctx context.Context, c *Conn, _ *protocol.Command) (*protocol.Command, error) {
		_, err := c.Call(ctx, protocol.NewRequest(codeOther, nil, nil))
		result <- err
		return nil, err
	}}})
	if err != nil {
		t.Fatal(err)
	}
	stop := runUntilEnd(t, s.Run)
	p := dialPeer(t, s)
	p.send(request(codeEcho, 1, ""))
	if req := p.next(); req.IsResponse() || req.RequestCode() != codeOther {
		t.Fatalf("got %+v, not the server's call", req)
	}
	go stop()
	if err := await(t, result, "the call's end"); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnknown) {
		t.Errorf("error %v", err)
	}
	p.wantClosed()
}
