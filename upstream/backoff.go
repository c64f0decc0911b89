package upstream

import (
	"math/rand/v2"
	"time"
)

// A Backoff says how long to wait before attempt n of something that failed:
// exponential with full jitter, so that a fleet of hosts that lost the same
// upstream does not come back in step. The zero value waits up to 1 s … 60 s.
// It holds no state: the caller counts the failures and starts again at 0 after
// a success. Safe for concurrent use when Random is.
type Backoff struct {
	Min time.Duration // ceiling of the first wait; default 1 s
	Max time.Duration // ceiling of every wait; default 60 s

	// Random returns a number in [0, 1); nil takes the runtime's generator.
	Random func() float64
}

// Delay is the wait after the given number of failures in a row, counted from 0:
// uniform between zero and Min·2^failures, never above Max.
func (b Backoff) Delay(failures int) time.Duration {
	random := b.Random
	if random == nil {
		random = rand.Float64
	}
	return time.Duration(random() * float64(b.Ceiling(failures)))
}

// Ceiling is the longest wait that Delay may choose after that many failures.
func (b Backoff) Ceiling(failures int) time.Duration {
	low, high := b.Min, b.Max
	if low <= 0 {
		low = time.Second
	}
	if high <= 0 {
		high = time.Minute
	}
	// Doubling by steps cannot overflow: it stops at high at the latest.
	for ; failures > 0 && low < high; failures-- {
		if low > high/2 {
			return high
		}
		low *= 2
	}
	return min(low, high)
}
