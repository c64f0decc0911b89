package upstream

import (
	"testing"
	"time"
)

func TestBackoffCeilingDoublesUpToMax(t *testing.T) {
	for _, c := range []struct {
		backoff  Backoff
		failures int
		want     time.Duration
	}{
		{Backoff{}, 0, time.Second},
		{Backoff{}, 1, 2 * time.Second},
		{Backoff{}, 5, 32 * time.Second},
		{Backoff{}, 6, time.Minute},
		{Backoff{}, 1 << 30, time.Minute},
		{Backoff{}, -1, time.Second},
		{Backoff{Min: 10 * time.Millisecond, Max: 80 * time.Millisecond}, 3, 80 * time.Millisecond},
		{Backoff{Min: time.Minute, Max: time.Second}, 0, time.Second},
		{Backoff{Min: 1, Max: 1<<63 - 1}, 1000, 1<<63 - 1},
	} {
		if got := c.backoff.Ceiling(c.failures); got != c.want {
			t.Errorf("%+v after %d failures: ceiling %v, want %v", c.backoff, c.failures, got, c.want)
		}
	}
}

func TestBackoffJitterCoversWholeRange(t *testing.T) {
	at := func(r float64) time.Duration {
		return Backoff{Random: func() float64 { return r }}.Delay(2)
	}
	if got := at(0); got != 0 {
		t.Errorf("lowest delay %v, want 0", got)
	}
	if got := at(0.5); got != 2*time.Second {
		t.Errorf("middle delay %v, want 2s", got)
	}
	if got := at(0.999999); got >= 4*time.Second || got < 3999*time.Millisecond {
		t.Errorf("highest delay %v, want just under 4s", got)
	}
	if got := (Backoff{}).Delay(3); got < 0 || got > 8*time.Second {
		t.Errorf("default source gave %v", got)
	}
}
