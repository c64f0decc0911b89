package sidecar

import (
	"context"
	"os"
	"path/filepath"
	"testing"
	"testing/synctest"
	"time"
)

// TestLanesRestOnlyWhileProducersArePressed covers the four cases: a lane holds
// back only when messages come in and processor time is short.
func TestLanesRestOnlyWhileProducersArePressed(t *testing.T) {
	for _, c := range []struct {
		name     string
		sending  bool
		pressure float64
		rest     time.Duration
	}{
		{"idle", false, 0, 0},
		{"busy host, no producer", false, 1, 0},
		{"producer, free processors", true, pressedShare - 0.01, 0},
		{"producer, busy host", true, pressedShare, 190 * time.Millisecond},
	} {
		t.Run(c.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				accepted := int64(0)
				p := &pacer{accepted: func() int64 { return accepted }, pressure: func() float64 { return c.pressure }}
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

// TestStallMeterReadsTheKernelsFigures follows a file of the kernel's shape, and
// one that is not.
func TestStallMeterReadsTheKernelsFigures(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		path := filepath.Join(t.TempDir(), "cpu")
		write := func(text string) {
			if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
				t.Fatal(err)
			}
		}
		m := &stallMeter{path: path, at: time.Now()}
		read := func(text string) float64 {
			write(text)
			time.Sleep(100 * time.Millisecond) // the bubble's clock
			return m.share()
		}
		const rest = "\nfull avg10=0.00 avg60=0.00 avg300=0.00 total=7\n"
		if got := read("some avg10=1.00 avg60=1.00 avg300=1.00 total=5000000" + rest); got != 0 {
			t.Errorf("first reading gives %v", got)
		}
		if got := read("some avg10=1.00 avg60=1.00 avg300=1.00 total=5050000" + rest); got != 0.5 {
			t.Errorf("50 of 100 ms give %v", got)
		}
		for _, text := range []string{"", "full total=3", "some total=x", "some avg10=0"} {
			if got := read(text); got != 0 {
				t.Errorf("%q gives %v", text, got)
			}
		}
	})
}

func sum(counts []uint64) (n uint64) {
	for _, c := range counts {
		n += c
	}
	return n
}
