package sidecar

import (
	"bytes"
	"context"
	"math"
	"os"
	runtimemetrics "runtime/metrics"
	"strconv"
	"sync/atomic"
	"time"
)

const (
	paceInterval = 100 * time.Millisecond
	// pressedShare is the part of the time in which something on the host waited
	// for a processor, from which on there are too few of them.
	pressedShare = 0.4
	// A lane that holds back sends for a twentieth of the time. Its batches grow
	// meanwhile, so that what comes in slowly is still forwarded within a second.
	restFactor = 19
	maxRest    = time.Second
)

// pacer lets local producers go first. What they cannot send now they may never
// send, and what lanes do not forward now they forward later. So while producers
// are sending and the host is short of processor time, lanes rest after each
// batch; at all other times they do not.
type pacer struct {
	accepted func() int64   // messages taken from producers so far
	pressure func() float64 // share of the time since the last call, see pressedShare

	pressed atomic.Bool
	last    int64
}

func newPacer(accepted func() int64) *pacer {
	stall := &stallMeter{path: "/proc/pressure/cpu", at: time.Now()}
	if _, ok := stall.total(); ok {
		return &pacer{accepted: accepted, pressure: stall.share}
	}
	wait := newRunWait()
	return &pacer{accepted: accepted, pressure: wait.share}
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
	p.pressed.Store(p.pressure() >= pressedShare && sending)
}

// rest waits after a batch that took d, if producers are pressed. It says
// whether ctx still lives.
func (p *pacer) rest(ctx context.Context, d time.Duration) bool {
	if !p.pressed.Load() {
		return ctx.Err() == nil
	}
	return sleep(ctx, min(restFactor*d, maxRest), nil)
}

// stallMeter reads the kernel's pressure stall information: for how many
// microseconds some task has waited for a processor.
type stallMeter struct {
	path string
	last int64
	at   time.Time
}

func (m *stallMeter) share() float64 {
	total, ok := m.total()
	now := time.Now()
	elapsed, stalled := now.Sub(m.at), time.Duration(total-m.last)*time.Microsecond
	m.last, m.at = total, now
	if !ok || elapsed <= 0 || stalled > 2*elapsed { // the first reading has nothing to be held against
		return 0
	}
	return float64(stalled) / float64(elapsed)
}

// total reads the line "some avg10=… avg60=… avg300=… total=N".
func (m *stallMeter) total() (int64, bool) {
	text, err := os.ReadFile(m.path)
	if err != nil {
		return 0, false
	}
	line, _, _ := bytes.Cut(text, []byte{'\n'})
	_, number, found := bytes.Cut(line, []byte("total="))
	if !found || !bytes.HasPrefix(line, []byte("some ")) {
		return 0, false
	}
	total, err := strconv.ParseInt(string(number), 10, 64)
	return total, err == nil
}

// runWait is for kernels without that: it reads from the runtime how long
// goroutines that could run waited to.
type runWait struct {
	sample []runtimemetrics.Sample
	before []uint64
}

func newRunWait() *runWait {
	return &runWait{sample: []runtimemetrics.Sample{{Name: "/sched/latencies:seconds"}}}
}

// share is 1 when the median wait shows that processors are short, else 0.
func (w *runWait) share() float64 {
	const short = 100 * time.Microsecond
	if w.lately() >= short {
		return 1
	}
	return 0
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
