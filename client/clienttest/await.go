package clienttest

import (
	"testing"
	"time"
)

// Await returns once the condition holds; it fails the test when that takes
// longer than 10 s. what says what was waited for.
func Await(t testing.TB, what string, condition func() bool) {
	t.Helper()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for !condition() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}
