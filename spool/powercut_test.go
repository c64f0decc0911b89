package spool

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strconv"
	"sync"
	"testing"
	"time"

	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// acked is what a client of the spool was told before the power went.
type acked struct {
	mu      sync.Mutex
	bodies  map[string][]string // by topic/queue: body of offset i
	appends map[string][]string // the same with what was not acknowledged yet
	cursor  map[string]int64    // durable position, and where it was advanced to
	moved   map[string]int64
	limited bool // old messages may be deleted
	mode    FlushMode
}

func (a *acked) snapshot() *acked {
	a.mu.Lock()
	defer a.mu.Unlock()
	c := &acked{bodies: map[string][]string{}, appends: map[string][]string{}, cursor: map[string]int64{}, moved: map[string]int64{}, limited: a.limited, mode: a.mode}
	for k, v := range a.bodies {
		c.bodies[k] = append([]string(nil), v...)
	}
	for k, v := range a.appends {
		c.appends[k] = append([]string(nil), v...)
	}
	for k, v := range a.cursor {
		c.cursor[k] = v
	}
	for k, v := range a.moved {
		c.moved[k] = v
	}
	return c
}

// cutNow cuts the power, and returns what was told before and tried until then.
func cutNow(ffs *faultfs.FS, acks *acked, rng *rand.Rand, dir string) (*acked, error) {
	told := acks.snapshot()
	err := ffs.Crash(rng, dir)
	// Appends and moves go on beside, so some of what came since may be there.
	later := acks.snapshot()
	told.appends, told.moved = later.appends, later.moved
	return told, err
}

// powerCutOptions are a store small enough that a short run rolls, recycles
// and deletes segments.
func powerCutOptions(t testing.TB, dir string, limited bool, mode FlushMode) Options {
	o := testOptions(t, dir)
	o.SegmentBytes = 16 << 10
	o.QueueFileEntries = 16
	o.Flush, o.FlushInterval = mode, 5*time.Millisecond
	if limited {
		o.MaxBytes = 5 * o.SegmentBytes
	}
	return o
}

// TestPowerCut cuts the power at points of a run that appends, reads, moves
// cursors and rolls segments, and demands that everything acknowledged is
// there afterwards, nothing is garbled, and the store works on. A part of the
// recoveries is cut off by another power cut, and a part of the stores lives on
// until a later one. Under FlushAsync nothing counts as acknowledged, but what
// is left must still be a beginning of what was appended.
func TestPowerCut(t *testing.T) {
	for _, mode := range []FlushMode{FlushSync, FlushAsync} {
		for _, limited := range []bool{false, true} {
			for seed := range uint64(2) {
				t.Run(fmt.Sprintf("%v/limited=%v/seed=%d", mode, limited, seed), func(t *testing.T) {
					powerCutRun(t, limited, mode, seed, cutsPerRun())
				})
			}
		}
	}
}

// cutsPerRun is the number of power cuts per run, from SPOOL_POWER_CUTS.
func cutsPerRun() int {
	if n, err := strconv.Atoi(os.Getenv("SPOOL_POWER_CUTS")); err == nil {
		return n
	}
	return 30
}

func powerCutRun(t *testing.T, limited bool, mode FlushMode, seed uint64, cuts int) {
	root := t.TempDir()
	live := filepath.Join(root, "live")
	if err := os.Mkdir(live, 0o755); err != nil {
		t.Fatal(err)
	}
	ffs, err := faultfs.New(live)
	if err != nil {
		t.Fatal(err)
	}
	acks := &acked{bodies: map[string][]string{}, appends: map[string][]string{}, cursor: map[string]int64{}, moved: map[string]int64{}, limited: limited, mode: mode}
	rng := rand.New(rand.NewPCG(seed, 7))
	every := 2200/cuts + 1
	var cutMu sync.Mutex
	n := 0
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		// Changes of names are rare and interesting: most are cut at.
		named := op.Kind != faultfs.Write && op.Kind != faultfs.Sync && op.Kind != faultfs.Read
		cutMu.Lock()
		defer cutMu.Unlock()
		if op.Kind == faultfs.Read || n >= cuts || rng.IntN(every) != 0 && !(named && rng.IntN(4) == 0) {
			return nil
		}
		n++
		dir := filepath.Join(root, fmt.Sprintf("cut%d", n))
		told, err := cutNow(ffs, acks, rng, dir)
		if err != nil {
			t.Error(err)
			return nil
		}
		afterCut(t, dir, told, rng, 0, fmt.Sprintf("cut %d before %s of %s", n, op.Kind, filepath.Base(op.Name)))
		return nil
	})
	o := powerCutOptions(t, live, limited, mode)
	o.FS = ffs
	s := mustOpen(t, o)
	stop := start(t, s)
	powerCutWork(t, s, acks, rand.New(rand.NewPCG(seed, 8)), 160)
	stop()
	ffs.SetHook(nil)
	checkStore(t, live, int64(o.QueueFileEntries), true)
	t.Logf("%d power cuts in %d calls, log of %d bytes", n, ffs.Ops(), s.Stats().MaxOffset)
}

// powerCutBatch fills a batch and notes what is in it.
func powerCutBatch(t *testing.T, b *Batch, queues []*Queue, acks *acked, rng *rand.Rand, life, i int) {
	acks.mu.Lock()
	defer acks.mu.Unlock()
	for j := range 1 + rng.IntN(6) {
		q := queues[rng.IntN(len(queues))]
		body := fmt.Sprintf("%d-%d-%d-%0*d", life, i, j, rng.IntN(1200), j)
		if i%3 == 0 { // equal sizes make record boundaries coincide
			body = fmt.Sprintf("%04d-%04d-%04d-%0200d", life, i, j, j)
		}
		if _, err := b.Add(q, msg(body)); err != nil {
			t.Error(err)
		}
		name := fmt.Sprintf("%s/%d", q.Topic(), q.ID())
		acks.appends[name] = append(acks.appends[name], body)
	}
}

func powerCutWork(t *testing.T, s *Spool, acks *acked, rng *rand.Rand, steps int) {
	queues := []*Queue{s.Queue("TopicA", 0), s.Queue("TopicA", 1), s.Queue("TopicB", 0)}
	name := func(q *Queue) string { return fmt.Sprintf("%s/%d", q.Topic(), q.ID()) }
	cursors := make(map[*Queue]*Cursor)
	for _, q := range queues {
		c, err := s.Cursor("lane", q, 0)
		if err != nil {
			t.Fatal(err)
		}
		cursors[q] = c
	}
	var b Batch
	life := rng.IntN(1000)
	for i := range steps {
		b.Reset()
		powerCutBatch(t, &b, queues, acks, rng, life, i)
		if err := s.Append(&b); err != nil {
			t.Errorf("append %d: %v", i, err)
			return
		}
		if acks.limited { // a store this small is soon full of what is not dispatched yet
			for j := range b.Len() {
				if err := b.entries[j].queue.Wait(t.Context(), b.Result(j).QueueOffset); err != nil {
					t.Error(err)
				}
			}
		}
		if rng.IntN(6) == 0 {
			if err := s.saveCheckpoint(); err != nil {
				t.Errorf("checkpoint: %v", err)
			}
		}
		if rng.IntN(5) == 0 {
			continue // nobody waits for this one
		}
		if err := s.WaitDurable(context.Background(), b.End()); err != nil {
			t.Errorf("wait %d: %v", i, err)
			return
		}
		acks.mu.Lock()
		for k, v := range acks.appends {
			if acks.mode == FlushAsync {
				v = nil
			}
			acks.bodies[k] = append([]string(nil), v...)
		}
		for _, q := range queues {
			if m := q.Max(); m > 0 && rng.IntN(4) == 0 {
				acks.moved[name(q)] = max(acks.moved[name(q)], m)
				cursors[q].Advance(m)
			}
		}
		for _, c := range s.Cursors() {
			acks.cursor[fmt.Sprintf("%s/%d", c.Topic, c.QueueID)] = c.Durable
		}
		acks.mu.Unlock()
	}
}

// afterCut opens what a power cut left and checks it against what was told.
func afterCut(t *testing.T, dir string, told *acked, rng *rand.Rand, depth int, what string) {
	t.Helper()
	defer func() { os.RemoveAll(dir) }()
	o := powerCutOptions(t, dir, told.limited, told.mode)
	if rng.IntN(3) == 0 {
		if again := cutRecovery(t, o, rng); again != "" {
			what += ", again in recovery"
			os.RemoveAll(dir)
			dir, o.Dir = again, again
		}
	}
	var end int64
	for round := range 2 {
		s, err := Open(o)
		if err != nil {
			t.Errorf("%s: %v", what, err)
			return
		}
		checkTold(t, s, told, what)
		if st := s.Stats(); st.Gaps != 0 || st.DamagedBytes != 0 && round == 1 {
			t.Errorf("%s, opening %d: %+v", what, round, st)
		}
		if round == 0 {
			end = s.Stats().MaxOffset
		} else if got := s.Stats().MaxOffset; got != end {
			t.Errorf("%s: log ends at %d after one recovery, at %d after two", what, end, got)
		}
		if err := s.Close(); err != nil {
			t.Errorf("%s: close: %v", what, err)
		}
		checkStore(t, dir, int64(o.QueueFileEntries), true)
	}
	if depth < 2 && rng.IntN(2) == 0 {
		secondLife(t, dir, told, rng, depth+1, what)
	}
	if t.Failed() {
		t.Logf("failed: %s", what)
	}
}

// cutRecovery cuts the power again during a recovery, and returns what that
// leaves; "" if it was over before.
func cutRecovery(t *testing.T, o Options, rng *rand.Rand) (again string) {
	t.Helper()
	ffs, err := faultfs.New(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	left, off := rng.IntN(25), errors.New("power is off")
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Read {
			return nil
		}
		if left--; left < 0 && again == "" {
			again = o.Dir + "-again"
			if err := ffs.Crash(rng, again); err != nil {
				t.Error(err)
			}
		}
		if again != "" {
			return &faultfs.Fault{Err: off}
		}
		return nil
	})
	o.FS = ffs
	if s, err := Open(o); err == nil {
		_ = s.Close()
	}
	return again
}

// secondLife goes on where a recovery ended, and cuts the power once more:
// what the first cut left behind the log's end must not come back.
func secondLife(t *testing.T, dir string, told *acked, rng *rand.Rand, depth int, what string) {
	t.Helper()
	ffs, err := faultfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	o := powerCutOptions(t, dir, told.limited, told.mode)
	o.FS = ffs
	s, err := Open(o)
	if err != nil {
		t.Errorf("%s: %v", what, err)
		return
	}
	acks := told.snapshot()
	for name := range acks.appends {
		topic, id, _ := cutName(name)
		q := s.Queue(topic, id)
		// What was deleted meanwhile counts as it was appended.
		all := append(acks.appends[name][:q.Min():q.Min()], bodies(t, s, q)...)
		acks.appends[name], acks.bodies[name] = all, append([]string(nil), all...)
	}
	left := rng.IntN(60)
	// The hook runs beside the work: it has a source of its own.
	cutRng, workRng := newRand(rng.Uint64()), newRand(rng.Uint64())
	cut, next := (*acked)(nil), fmt.Sprintf("%s-%d", dir, depth)
	var mu sync.Mutex
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		mu.Lock()
		defer mu.Unlock()
		if left--; left < 0 && cut == nil && op.Kind != faultfs.Read {
			var err error
			if cut, err = cutNow(ffs, acks, cutRng, next); err != nil {
				t.Error(err)
			}
		}
		return nil
	})
	ctx, cancel := context.WithCancel(t.Context())
	ended := make(chan error)
	go func() { ended <- s.Run(ctx) }()
	powerCutWork(t, s, acks, workRng, 12)
	cancel()
	if err := <-ended; err != nil {
		t.Errorf("%s: %v", what, err)
	}
	if cut != nil {
		afterCut(t, next, cut, rng, depth, what+", and later")
	}
}

func checkTold(t *testing.T, s *Spool, told *acked, what string) {
	t.Helper()
	for name, want := range told.bodies {
		topic, id, _ := cutName(name)
		q := s.Queue(topic, id)
		got, lo := bodies(t, s, q), int(q.Min())
		if lo > 0 && !told.limited {
			t.Errorf("%s: %s begins at %d", what, name, lo)
		}
		if int(q.Max()) < len(want) {
			t.Errorf("%s: %s has %d messages, %d were acknowledged", what, name, q.Max(), len(want))
		}
		all := told.appends[name]
		for i, body := range got {
			if lo+i >= len(all) || body != all[lo+i] {
				t.Errorf("%s: %s offset %d holds %.30q, which was not appended there (%d were)", what, name, lo+i, body, len(all))
				break
			}
		}
	}
	for _, c := range s.Cursors() {
		name := fmt.Sprintf("%s/%d", c.Topic, c.QueueID)
		end := s.Queue(c.Topic, c.QueueID).Max()
		if !told.limited && c.Offset < min(told.cursor[name], end) || c.Offset > end || c.Offset > max(told.moved[name], s.Queue(c.Topic, c.QueueID).Min()) {
			t.Errorf("%s: cursor in %s is at %d, was durable at %d and moved to %d", what, name, c.Offset, told.cursor[name], told.moved[name])
		}
	}
}

func cutName(name string) (topic string, id int32, err error) {
	dir, base := filepath.Split(name)
	n, err := strconv.Atoi(base)
	return filepath.Clean(dir), int32(n), err
}
