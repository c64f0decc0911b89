package sidecar

import (
	"fmt"
	"sync/atomic"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/upstream"
)

// TestFirstLaneThatGetsThroughWakesTheOthers has three lanes in a back-off of
// hours and one in a short one.
func TestFirstLaneThatGetsThroughWakesTheOthers(t *testing.T) {
	var back atomic.Bool
	up := newScript(func(_ int, _ string, batch []message.Message) verdict {
		if !back.Load() {
			return verdict{err: fmt.Errorf("%w: down", upstream.ErrUnavailable)}
		}
		return take(len(batch))
	})
	var draws atomic.Int64
	s := start(t, t.TempDir(), map[string]upstream.Sender{"core": up}, func(o *setup) {
		o.DefaultQueues = 4
		core := o.Upstreams["core"]
		core.Backoff = upstream.Backoff{Min: 12 * time.Hour, Max: 24 * time.Hour, Random: func() float64 {
			if draws.Add(1) < 4 {
				return 1
			}
			return 1e-6 // the last of four lanes tries again soon
		}}
		o.Upstreams["core"] = core
	})
	for queue := range 4 {
		s.mustLines("orders", keyFor(queue, 4), fmt.Sprintf("to-%d", queue))
	}
	await(t, "a failure in every lane", func() bool { return draws.Load() >= 4 })
	back.Store(true)
	for queue := range 4 {
		up.has(t, fmt.Sprintf("orders/%d", queue), 1)
	}
}

// keyFor finds an ordering key that leads to a queue.
func keyFor(queue, queues int) string {
	for n := 0; ; n++ {
		if key := fmt.Sprint("key-", n); queueOf(key, queues) == int32(queue) {
			return key
		}
	}
}
