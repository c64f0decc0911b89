package remoting

import (
	"context"
	"errors"
	"log/slog"
	"net"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// pipe returns a running connection over memory, and its far end. Inside a
// synctest bubble its time-outs pass at once.
func pipe(t *testing.T, table Table) (c *Conn, far net.Conn, ended chan struct{}) {
	t.Helper()
	ep, err := newEndpoint(table, limits{}, nil, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ep.ctx = ctx
	near, far := net.Pipe()
	c, ended = newConn(ep, near), make(chan struct{})
	go func() { defer close(ended); c.run(nil) }()
	t.Cleanup(func() { cancel(); c.Close(); far.Close(); <-ended })
	return c, far, ended
}

func since(t0 time.Time) time.Duration { return time.Since(t0).Round(time.Second) }

func TestSilentConnectionIsClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t0 := time.Now()
		c, _, ended := pipe(t, nil)
		<-ended
		if got := since(t0); got != DefaultIdleTimeout || !errors.Is(c.out.cause(), errIdle) {
			t.Errorf("closed after %v: %v", got, c.out.cause())
		}
	})
}

func TestTrafficEitherWayKeepsAConnectionOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t0 := time.Now()
		c, far, ended := pipe(t, Table{codeEcho: {Inline: true, Handler: func(context.Context, *Conn, *protocol.Command) (*protocol.Command, error) {
			return nil, nil
		}}})
		time.Sleep(100 * time.Second)
		far.Write(request(codeEcho, 1, "")) // only read
		time.Sleep(100 * time.Second)
		go far.Read(make([]byte, 1000))
		if err := c.OneWay(protocol.NewRequest(codeOther, nil, nil)); err != nil { // only written
			t.Fatal(err)
		}
		<-ended
		if got := since(t0); got != 200*time.Second+DefaultIdleTimeout {
			t.Errorf("closed after %v", got)
		}
	})
}

func TestWaitingCallKeepsAConnectionOpen(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far, _ := pipe(t, nil)
		go far.Read(make([]byte, 1000))
		ctx, cancel := context.WithTimeout(t.Context(), 10*time.Minute)
		defer cancel()
		t0 := time.Now()
		_, err := c.Call(ctx, protocol.NewRequest(codeEcho, nil, nil))
		if got := since(t0); !errors.Is(err, ErrTimeout) || got != 10*time.Minute {
			t.Errorf("after %v: %v", got, err)
		}
	})
}

func TestCallWithoutDeadlineTimesOut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far, _ := pipe(t, nil)
		go far.Read(make([]byte, 1000))
		t0 := time.Now()
		_, err := c.Call(t.Context(), protocol.NewRequest(codeEcho, nil, nil))
		if got := since(t0); !errors.Is(err, ErrTimeout) || got != DefaultCallTimeout || c.calls.len() != 0 {
			t.Errorf("after %v: %v, %d calls in the table", got, err, c.calls.len())
		}
	})
}

func TestIdleConnectionGivesUpItsBuffers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far, ended := pipe(t, Table{codeEcho: {Handler: echo, Inline: true}})
		p := newPeer(t, far)
		go p.send(request(codeEcho, 1, string(make([]byte, 1<<20))))
		p.next()
		time.Sleep(3 * shrinkAfter)
		far.Close()
		<-ended
		if len(c.in.buf) != readStart || c.w.Buf != nil || c.out.spare != nil {
			t.Errorf("idle connection holds %d + %d + %d bytes", len(c.in.buf), cap(c.w.Buf), cap(c.out.spare))
		}
	})
}

func TestCallsNotYetWrittenAreKnownAsNotSent(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		c, far, _ := pipe(t, nil)
		ctx, cancel := context.WithTimeout(t.Context(), time.Hour)
		defer cancel()
		results := make(chan error, 2)
		c.start(ctx, protocol.NewRequest(codeEcho, nil, nil), deferred, func(_ *protocol.Command, err error) { results <- err })
		synctest.Wait() // the first one hangs in its write
		c.start(ctx, protocol.NewRequest(codeEcho, nil, nil), deferred, func(_ *protocol.Command, err error) { results <- err })
		far.Read(make([]byte, 10)) // the far end takes a part of the first one
		far.Close()
		unknown, notSent := 0, 0
		for range 2 {
			switch err := <-results; {
			case errors.Is(err, ErrUnknown):
				unknown++
			case errors.Is(err, ErrNotSent):
				notSent++
			}
		}
		if unknown != 1 || notSent != 1 {
			t.Errorf("%d unknown, %d not sent", unknown, notSent)
		}
		if _, err := c.Call(ctx, protocol.NewRequest(codeEcho, nil, nil)); !errors.Is(err, ErrNotSent) {
			t.Errorf("call on the broken connection: %v", err)
		}
	})
}

func TestPeerThatTakesNothingIsCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		t0 := time.Now()
		c, _, ended := pipe(t, nil)
		big := protocol.NewRequest(codeEcho, nil, make([]byte, 1<<20))
		refused := 0
		for range 20 {
			if err := c.OneWay(big); errors.Is(err, ErrTooManyCalls) {
				refused++
			} else if err != nil {
				t.Fatal(err)
			}
			synctest.Wait()
		}
		if refused < 10 {
			t.Errorf("%d of 20 MiB were refused, the queue's limit is %d MiB", refused, queueMax>>20)
		}
		blocked := make(chan error, 1)
		go func() { blocked <- c.Reply(&protocol.Command{}, big) }()
		<-ended
		if got := since(t0); got != DefaultWriteTimeout || !errors.Is(c.out.cause(), errWriteStuck) {
			t.Errorf("cut after %v: %v", got, c.out.cause())
		}
		if err := <-blocked; !errors.Is(err, errWriteStuck) {
			t.Errorf("a reply that waited for room: %v", err)
		}
	})
}

// A reader of long pulls that never reads: its connection is cut, memory stays
// bounded, others are served.
func TestSlowReadersAreCut(t *testing.T) {
	const conns = 20
	most, closed := 0, make(chan *Conn, conns)
	s := start(t, ServerOptions{WriteTimeout: 200 * time.Millisecond, OnClose: func(c *Conn) { closed <- c }}, Table{
		codeStream: {Stream: &StreamFactory{New: func(*Conn) Stream {
			return &bulkStream{body: make([]byte, 256<<10), most: new(int)}
		}}},
		codeEcho: {Handler: echo},
	})
	var burst []byte
	for i := range 100 {
		burst = append(burst, request(codeStream, int32(i), "")...)
	}
	for range conns {
		dialPeer(t, s).send(burst)
	}
	witness := dialPeer(t, s)
	witness.send(request(codeEcho, 1, ""))
	witness.next()
	for range conns {
		c := await(t, closed, "the cut")
		if !errors.Is(c.out.cause(), errWriteStuck) {
			t.Errorf("closed because of %v", c.out.cause())
		}
		most = max(most, cap(c.w.Buf)+cap(c.out.queue))
	}
	if most > 4*burstMax {
		t.Errorf("%d KiB held for a peer that does not read", most>>10)
	}
	witness.send(request(codeEcho, 2, ""))
	witness.next()
}
