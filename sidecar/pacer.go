package sidecar

import (
	"context"
	"math"
	runtimemetrics "runtime/metrics"
	"sync/atomic"
	"time"
)

const (
	paceInterval = 100 * time.Millisecond
	// pressedDelay is how long goroutines wait for a processor, in the middle,
	// when the host has too few of them for what it does.
	pressedDelay = 100 * time.Microsecond
	// A lane that holds back sends for a tenth of the time.
	restFactor = 9
	maxRest    = time.Second
)

// pacer lets local producers go first. What they cannot send now they may never
// send, and what lanes do not forward now they forward later. So while producers
// are sending and the process is short of processor time, lanes rest after each
// batch; at all other times they do not.
type pacer struct {
	accepted func() int64         // messages taken from producers so far
	delay    func() time.Duration // how long goroutines waited for a processor lately

	pressed atomic.Bool
	last    int64
}

func newPacer(accepted func() int64) *pacer {
	w := newRunWait()
	return &pacer{accepted: accepted, delay: w.lately}
}

// run looks at the load until ctx ends.
func (p *pacer) run(ctx context.Context) error {
	ticker := time.NewTicker(paceInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-ticker.C:
			p.look()
		}
	}
}

func (p *pacer) look() {
	accepted := p.accepted()
	sending := accepted > p.last
	p.last = accepted
	p.pressed.Store(p.delay() >= pressedDelay && sending)
}

// rest waits after a batch that took d, if producers are pressed. It says
// whether ctx still lives.
func (p *pacer) rest(ctx context.Context, d time.Duration) bool {
	if !p.pressed.Load() {
		return ctx.Err() == nil
	}
	return sleep(ctx, min(restFactor*d, maxRest))
}

// runWait reads from the runtime how long goroutines that could run waited to.
type runWait struct {
	sample []runtimemetrics.Sample
	before []uint64
}

func newRunWait() *runWait {
	return &runWait{sample: []runtimemetrics.Sample{{Name: "/sched/latencies:seconds"}}}
}

// lately is the median wait since the last call.
func (w *runWait) lately() time.Duration {
	runtimemetrics.Read(w.sample)
	if w.sample[0].Value.Kind() != runtimemetrics.KindFloat64Histogram {
		return 0
	}
	h := w.sample[0].Value.Float64Histogram()
	if len(w.before) != len(h.Counts) {
		w.before = make([]uint64, len(h.Counts))
	}
	var total uint64
	for i, n := range h.Counts {
		total += n - w.before[i]
	}
	median := time.Duration(0)
	var seen uint64
	for i, n := range h.Counts {
		if seen += n - w.before[i]; total > 0 && seen*2 >= total {
			if low := h.Buckets[i]; !math.IsInf(low, 0) {
				median = time.Duration(low * float64(time.Second))
			}
			break
		}
	}
	copy(w.before, h.Counts)
	return median
}
