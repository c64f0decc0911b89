package remoting

import (
	"context"
	"errors"
	"fmt"
	"net"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

func TestCallAsyncAndOneWay(t *testing.T) {
	got := make(chan string, 1)
	s := start(t, ServerOptions{}, Table{
		codeEcho: {Handler: echo},
		codeOther: {Handler: func(_ context.Context, _ *Conn, req *protocol.Command) (*protocol.Command, error) {
			got <- string(req.Body)
			return &protocol.Command{}, nil
		}},
	})
	c := startClient(t, ClientOptions{})
	addr := s.Addr().String()
	cmd := protocol.NewRequest(codeEcho, nil, []byte("sync"))
	resp, err := c.Call(t.Context(), addr, cmd)
	if err != nil || string(resp.Body) != "sync" || cmd.Opaque != 0 {
		t.Fatalf("Call: %+v, %v; request %+v", resp, err, cmd)
	}
	done := make(chan string, 1)
	c.CallAsync(t.Context(), addr, protocol.NewRequest(codeEcho, nil, []byte("async")), func(resp *protocol.Command, err error) {
		if err != nil {
			t.Error(err)
			resp = &protocol.Command{}
		}
		done <- string(resp.Body)
	})
	if body := await(t, done, "the asynchronous answer"); body != "async" {
		t.Errorf("CallAsync: %q", body)
	}
	if err := c.OneWay(t.Context(), addr, protocol.NewRequest(codeOther, nil, []byte("one way"))); err != nil {
		t.Fatal(err)
	}
	if body := await(t, got, "the one-way request"); body != "one way" {
		t.Errorf("OneWay: %q", body)
	}
}

func TestFirstCallsShareOneConnection(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: echo}})
	c := startClient(t, ClientOptions{})
	var wg sync.WaitGroup
	for range 50 {
		wg.Go(func() {
			if _, err := c.Call(context.Background(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil)); err != nil {
				t.Error(err)
			}
		})
	}
	wg.Wait()
	if n := s.ep.ids.Load(); n != 1 {
		t.Errorf("%d connections were made", n)
	}
}

func TestAsynchronousCallsAreBounded(t *testing.T) {
	release := make(chan struct{})
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: func(ctx context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error) {
		<-release
		return echo(ctx, c, req)
	}}})
	c := startClient(t, ClientOptions{MaxAsync: 2})
	results := make(chan error, 4)
	call := func() {
		c.CallAsync(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil), func(_ *protocol.Command, err error) { results <- err })
	}
	call()
	call()
	call()
	if err := await(t, results, "the refusal"); !errors.Is(err, ErrTooManyCalls) || !errors.Is(err, ErrNotSent) {
		t.Errorf("third call: %v", err)
	}
	close(release)
	for range 2 {
		if err := await(t, results, "an answer"); err != nil {
			t.Error(err)
		}
	}
	call()
	if err := await(t, results, "an answer"); err != nil {
		t.Errorf("after the others: %v", err)
	}
}

func TestOneWayRequestsAreBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c := NewClient(ClientOptions{MaxOneWay: 1}) // not running: OneWay waits
		ctx, cancel := context.WithCancel(t.Context())
		first := make(chan error, 1)
		go func() { first <- c.OneWay(ctx, "127.0.0.1:1", protocol.NewRequest(codeEcho, nil, nil)) }()
		synctest.Wait()
		err := c.OneWay(ctx, "127.0.0.1:1", protocol.NewRequest(codeEcho, nil, nil))
		if !errors.Is(err, ErrTooManyCalls) || !errors.Is(err, ErrNotSent) {
			t.Errorf("second request: %v", err)
		}
		cancel()
		if err := <-first; !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotSent) {
			t.Errorf("first request: %v", err)
		}
	})
}

func TestTimedOutCallLeavesTheTableAndTheConnection(t *testing.T) {
	release := make(chan struct{})
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: func(ctx context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error) {
		<-release
		return echo(ctx, c, req)
	}}, codeStream: {Stream: echoStreams()}})
	c := startClient(t, ClientOptions{})
	addr := s.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 20*time.Millisecond)
	defer cancel()
	async := make(chan error, 1)
	c.CallAsync(ctx, addr, protocol.NewRequest(codeEcho, nil, nil), func(_ *protocol.Command, err error) { async <- err })
	_, err := c.Call(ctx, addr, protocol.NewRequest(codeEcho, nil, nil))
	for _, err := range []error{err, await(t, async, "the time-out")} {
		if !errors.Is(err, ErrTimeout) || !errors.Is(err, ErrUnknown) || errors.Is(err, ErrNotSent) {
			t.Errorf("error %v", err)
		}
	}
	conn := c.conns()[0]
	if n := conn.calls.len(); n != 0 {
		t.Errorf("%d calls left in the table", n)
	}
	close(release) // the late answers must not disturb the next call
	if resp, err := c.Call(t.Context(), addr, protocol.NewRequest(codeStream, nil, []byte("on"))); err != nil || string(resp.Body) != "on" {
		t.Errorf("next call: %+v, %v", resp, err)
	}
	if conn.Closed() {
		t.Error("a time-out closed the connection")
	}
}

func TestCancelledCallSaysSo(t *testing.T) {
	entered := make(chan struct{})
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: func(ctx context.Context, _ *Conn, _ *protocol.Command) (*protocol.Command, error) {
		close(entered)
		<-ctx.Done()
		return nil, nil
	}}})
	c := startClient(t, ClientOptions{})
	ctx, cancel := context.WithCancel(t.Context())
	go func() { <-entered; cancel() }()
	if _, err := c.Call(ctx, s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil)); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrUnknown) {
		t.Errorf("error %v", err)
	}
	if _, err := c.Call(ctx, s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil)); !errors.Is(err, context.Canceled) || !errors.Is(err, ErrNotSent) {
		t.Errorf("with an ended context: %v", err)
	}
}

func TestRefusedConnectionIsNotSent(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	addr := l.Addr().String()
	l.Close()
	c := startClient(t, ClientOptions{})
	if _, err := c.Call(t.Context(), addr, protocol.NewRequest(codeEcho, nil, nil)); !errors.Is(err, ErrNotSent) {
		t.Errorf("Call: %v", err)
	}
	done := make(chan error, 1)
	c.CallAsync(t.Context(), addr, protocol.NewRequest(codeEcho, nil, nil), func(_ *protocol.Command, err error) { done <- err })
	if err := await(t, done, "the failure"); !errors.Is(err, ErrNotSent) {
		t.Errorf("CallAsync: %v", err)
	}
}

func TestBrokenConnectionFailsItsCallsAtOnce(t *testing.T) {
	const n = 100
	var seen atomic.Int32
	s := start(t, ServerOptions{}, Table{
		codeEcho: {Handler: func(ctx context.Context, c *Conn, _ *protocol.Command) (*protocol.Command, error) {
			if seen.Add(1) == n {
				c.Close()
			}
			<-ctx.Done()
			return nil, nil
		}},
		codeStream: {Stream: echoStreams()},
	})
	c := startClient(t, ClientOptions{})
	addr := s.Addr().String()
	ctx, cancel := context.WithTimeout(t.Context(), 10*patience)
	defer cancel()
	results := make(chan error, n)
	for i := range n {
		c.CallAsync(ctx, addr, protocol.NewRequest(codeEcho, nil, fmt.Append(nil, i)), func(_ *protocol.Command, err error) { results <- err })
	}
	for range n {
		if err := await(t, results, "the failures"); !errors.Is(err, ErrUnknown) {
			t.Fatalf("error %v", err)
		}
	}
	if resp, err := c.Call(ctx, addr, protocol.NewRequest(codeStream, nil, []byte("again"))); err != nil || string(resp.Body) != "again" {
		t.Errorf("next call: %+v, %v", resp, err)
	}
}

func TestDoneMaySendAgain(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: echo}})
	c := startClient(t, ClientOptions{MaxAsync: 1})
	finished := make(chan error, 1)
	var step func(left int) func(*protocol.Command, error)
	step = func(left int) func(*protocol.Command, error) {
		return func(_ *protocol.Command, err error) {
			if err != nil || left == 0 {
				finished <- err
				return
			}
			c.CallAsync(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil), step(left-1))
		}
	}
	step(20)(nil, nil)
	if err := await(t, finished, "the chain of calls"); err != nil {
		t.Error(err)
	}
}

func TestCloseConnMakesANewConnection(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: echo}})
	c := startClient(t, ClientOptions{})
	for range 3 {
		if _, err := c.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil)); err != nil {
			t.Fatal(err)
		}
		c.CloseConn(s.Addr().String())
	}
	c.CloseConn("127.0.0.1:1")
	if n := s.ep.ids.Load(); n != 3 {
		t.Errorf("%d connections were made, want 3", n)
	}
}

func TestStoppedClientFailsCalls(t *testing.T) {
	entered := make(chan struct{})
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: func(ctx context.Context, _ *Conn, _ *protocol.Command) (*protocol.Command, error) {
		close(entered)
		<-ctx.Done()
		return nil, nil
	}}})
	c := NewClient(ClientOptions{})
	stop := runUntilEnd(t, c.Run)
	failed := make(chan error, 1)
	c.CallAsync(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil), func(_ *protocol.Command, err error) { failed <- err })
	<-entered
	stop()
	if err := await(t, failed, "the waiting call"); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrUnknown) {
		t.Errorf("waiting call: %v", err)
	}
	if _, err := c.Call(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, nil)); !errors.Is(err, ErrClosed) || !errors.Is(err, ErrNotSent) {
		t.Errorf("call after the end: %v", err)
	}
	if err := c.Run(t.Context()); err == nil {
		t.Error("a client ran twice")
	}
}

func TestClientWritesWhatIsQueuedBeforeItStops(t *testing.T) {
	const n = 500
	got := make(chan struct{}, n)
	s := start(t, ServerOptions{}, Table{codeEcho: {Inline: true, Handler: func(context.Context, *Conn, *protocol.Command) (*protocol.Command, error) {
		got <- struct{}{}
		return nil, nil
	}}})
	c := NewClient(ClientOptions{})
	stop := runUntilEnd(t, c.Run)
	for range n {
		if err := c.OneWay(t.Context(), s.Addr().String(), protocol.NewRequest(codeEcho, nil, make([]byte, 1000))); err != nil {
			t.Fatal(err)
		}
	}
	stop()
	for range n {
		await(t, got, "a one-way request")
	}
}

func TestClientTableIsChecked(t *testing.T) {
	if err := NewClient(ClientOptions{Table: Table{codeEcho: {}}}).Run(t.Context()); err == nil {
		t.Error("an empty route passed")
	}
}

func TestOpaquesWrapAndPassOverThoseInUse(t *testing.T) {
	table := callTable{next: 1<<31 - 3}
	calls := make([]call, 4)
	for i := range calls {
		if !table.add(&calls[i], time.Hour, nil) {
			t.Fatal("closed")
		}
	}
	table.mu.Lock()
	table.next = 1<<31 - 3
	table.mu.Unlock()
	if n := table.number(); n != calls[3].opaque+1 {
		t.Errorf("number %d while %d to %d are in use", n, calls[0].opaque, calls[3].opaque)
	}
	if n := len(table.close()); n != 4 {
		t.Errorf("%d calls in the table", n)
	}
}
