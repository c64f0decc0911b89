package spool

import "time"

// A retentionClock tells how old messages are without believing the wall
// clock more than it must: hosts at the edge boot in 1970 and jump to today,
// and a step of the clock must not delete messages.
//
// While running, time advances by the monotonic clock from where Open set it;
// a wall clock that is behind wins, one that is ahead does not. Open sets it
// to the wall clock, but not before the newest message, and not more than half
// of MaxAge after it: a host that was off for a month deletes nothing for the
// first half of MaxAge that it runs.
type retentionClock struct {
	start  int64 // ms since 1970, at Open
	opened time.Time
}

func newRetentionClock(wall time.Time, newest int64, maxAge time.Duration) retentionClock {
	start := wall.UnixMilli()
	if newest > 0 {
		start = min(max(start, newest), newest+maxAge.Milliseconds()/2)
	}
	return retentionClock{start: start, opened: time.Now()}
}

// now is the time for retention in ms since 1970.
func (c *retentionClock) now(wall time.Time) int64 {
	return min(c.start+time.Since(c.opened).Milliseconds(), wall.UnixMilli())
}
