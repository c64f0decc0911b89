package broker

import (
	"context"
	"fmt"
	"sync"
	"sync/atomic"
	"time"
)

// Counters count what an engine has done since it started. Safe for concurrent
// use.
type Counters struct {
	stored, storedBytes, refused, pulled, pulledBytes, emptyPulls atomic.Int64
}

// Totals is a reading of the Counters.
type Totals struct {
	Stored      int64 // messages acknowledged as stored
	StoredBytes int64 // bytes of their records
	Refused     int64 // sends answered with an error
	Pulled      int64 // messages handed to consumers
	PulledBytes int64 // bytes of their records
	EmptyPulls  int64 // pulls that found nothing
}

// Totals reads all counters.
func (c *Counters) Totals() Totals {
	return Totals{
		Stored: c.stored.Load(), StoredBytes: c.storedBytes.Load(), Refused: c.refused.Load(),
		Pulled: c.pulled.Load(), PulledBytes: c.pulledBytes.Load(), EmptyPulls: c.emptyPulls.Load(),
	}
}

const (
	rateStep    = 10 * time.Second
	rateSamples = 61 // ten minutes and the present
)

// rates keeps a reading every ten seconds, so that runtime info can tell speeds
// over 10, 60 and 600 seconds.
type rates struct {
	counters *Counters
	mu       sync.Mutex
	samples  []Totals // oldest first
}

// run takes the readings until ctx ends.
func (r *rates) run(ctx context.Context) error {
	ticker := time.NewTicker(rateStep)
	defer ticker.Stop()
	r.sample()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			r.sample()
		}
	}
}

func (r *rates) sample() {
	r.mu.Lock()
	defer r.mu.Unlock()
	if len(r.samples) == rateSamples {
		copy(r.samples, r.samples[1:])
		r.samples = r.samples[:rateSamples-1]
	}
	r.samples = append(r.samples, r.counters.Totals())
}

// text gives the speeds of one figure over 10, 60 and 600 seconds, separated by
// spaces, as the runtime info of Apache's broker does.
func (r *rates) text(figure func(Totals) int64) string {
	r.mu.Lock()
	defer r.mu.Unlock()
	over := func(steps int) float64 {
		last := len(r.samples) - 1
		if last < 1 {
			return 0
		}
		steps = min(steps, last)
		seconds := float64(steps) * rateStep.Seconds()
		return float64(figure(r.samples[last])-figure(r.samples[last-steps])) / seconds
	}
	return fmt.Sprintf("%g %g %g", over(1), over(6), over(60))
}
