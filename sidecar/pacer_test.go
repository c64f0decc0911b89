package sidecar

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// TestLanesRestOnlyWhileProducersArePressed covers the four cases: a lane holds
// back only when messages come in and processor time is short.
func TestLanesRestOnlyWhileProducersArePressed(t *testing.T) {
	for _, c := range []struct {
		name    string
		sending bool
		delay   time.Duration
		rest    time.Duration
	}{
		{"idle", false, 0, 0},
		{"busy host, no producer", false, time.Second, 0},
		{"producer, free processors", true, pressedDelay - 1, 0},
		{"producer, busy host", true, pressedDelay, 90 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				accepted := int64(0)
				p := &pacer{accepted: func() int64 { return accepted }, delay: func() time.Duration { return c.delay }}
				p.look()
				if c.sending {
					accepted++
				}
				p.look()
				began := time.Now()
				if !p.rest(context.Background(), 10*time.Millisecond) {
					t.Fatal("rest says that the context ended")
				}
				if got := time.Since(began); got != c.rest {
					t.Errorf("rested %v, want %v", got, c.rest)
				}
			})
		})
	}
}

// TestRestIsBounded: a batch that took long because the link is slow must not
// stop the lane for minutes.
func TestRestIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		p := &pacer{}
		p.pressed.Store(true)
		began := time.Now()
		p.rest(context.Background(), time.Hour)
		if got := time.Since(began); got != maxRest {
			t.Errorf("rested %v, want %v", got, maxRest)
		}
		ctx, cancel := context.WithCancel(context.Background())
		cancel()
		if p.rest(ctx, time.Hour) {
			t.Error("rest outlives its context")
		}
	})
}

// TestRunWaitIsReadable notices a runtime that reports the figure under another
// name.
func TestRunWaitIsReadable(t *testing.T) {
	w := newRunWait()
	w.lately()
	done := make(chan struct{})
	for range 100 {
		go func() { done <- struct{}{} }()
	}
	for range 100 {
		<-done
	}
	if got := w.lately(); got < 0 || got > time.Minute {
		t.Errorf("median wait is %v", got)
	}
	if total := sum(w.before); total == 0 {
		t.Error("the runtime reports no scheduling latencies under this name any more")
	}
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
