package spool

import (
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"syscall"
	"testing"

	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// A sweep is a run of a limited store on a faulty file system, in one goroutine
// and so the same each time: appends to three queues, dispatch, checkpoints,
// retention, cursors, and two deletions of topic B. Which of its calls fails, or
// is the last before a power cut, is what a test varies.
type sweep struct {
	t      *testing.T
	o      Options
	ffs    *faultfs.FS
	s      *Spool
	rng    *rand.Rand
	queues []*Queue
	cursor *Cursor
	// acked is what was acknowledged since the queue's topic was made, life
	// everything that was tried. While deleting, neither counts for topic B.
	acked    map[*Queue]map[int64]string
	life     map[*Queue]map[string]bool
	twice    bool // an offset was given twice
	deleting bool
}

func newSweep(t *testing.T, seed uint64) *sweep {
	t.Helper()
	s, ffs, o := faultStore(t, func(o *Options) {
		o.SegmentBytes, o.QueueFileEntries, o.MaxOpenFiles = 16<<10, 16, 3
		o.MaxBytes = 5 * o.SegmentBytes
	})
	w := &sweep{
		t: t, o: o, ffs: ffs, s: s, rng: newRand(seed),
		queues: []*Queue{s.Queue("A", 0), s.Queue("B", 0), s.Queue("B", 1)},
		acked:  make(map[*Queue]map[int64]string), life: make(map[*Queue]map[string]bool),
	}
	for _, q := range w.queues {
		w.forget(q)
	}
	return w
}

func (w *sweep) forget(q *Queue) {
	w.acked[q], w.life[q] = make(map[int64]string), make(map[string]bool)
}

const sweepSteps = 60

// step does one append and what belongs to it. Errors are for the file system
// to give and for the spool to survive.
func (w *sweep) step(i int) {
	q := w.queues[w.rng.IntN(3)]
	body := fmt.Sprintf("%d-%0*d", i, 300+w.rng.IntN(1500), i)
	w.life[q][body] = true
	if r, err := tryPut(w.t, w.s, q, body); err == nil {
		_, there := w.acked[q][r.QueueOffset]
		w.twice = w.twice || there
		w.acked[q][r.QueueOffset] = body
	}
	_ = w.s.dispatchRound()
	_ = w.s.dispatchRound()
	switch i % 12 {
	case 1:
		if w.cursor == nil {
			w.cursor, _ = w.s.Cursor("lane", w.queues[0], 0)
		}
	case 3:
		_, _ = w.s.fillStep()
	case 5:
		_ = w.s.saveCheckpoint()
	case 7:
		w.s.retain()
	case 9:
		if w.cursor != nil {
			w.cursor.Advance(w.queues[0].Max())
			_ = w.s.saveCursors()
		}
	case 11:
		if i == 23 || i == 47 {
			w.deleteB()
		}
	}
}

func (w *sweep) deleteB() {
	w.deleting = true
	err := w.s.DeleteTopic("B")
	w.forget(w.queues[1])
	w.forget(w.queues[2])
	w.deleting = err != nil // what a failed deletion leaves is open
}

// check compares what a spool holds with what was told, and says what is wrong.
func (w *sweep) check(s *Spool) string {
	if w.twice {
		return "offset given twice"
	}
	for _, told := range w.queues {
		if w.deleting && told.Topic() == "B" {
			continue
		}
		q := s.Queue(told.Topic(), told.ID())
		got, ok := readAll(w.t, s, q)
		if !ok {
			return "a reader does not get on"
		}
		for off, body := range w.acked[told] {
			if off >= q.Max() || off >= q.Min() && got[off] != body {
				return "acknowledged message lost"
			}
		}
		for _, body := range got {
			if !w.life[told][body] {
				return "deleted message came back"
			}
		}
	}
	return ""
}

func readAll(t *testing.T, s *Spool, q *Queue) (got map[int64]string, ok bool) {
	t.Helper()
	got = make(map[int64]string)
	var recs Records
	for at := q.Min(); at < q.Max(); {
		r := s.Read(q, at, Limit{Messages: 8}, nil, &recs)
		recs.Each(func(rec []byte) bool {
			m := decode(t, rec)
			got[m.QueueOffset] = string(m.Body)
			return true
		})
		recs.Release()
		if r.Next <= at {
			return got, false
		}
		at = r.Next
	}
	return got, true
}

// checkCrashes opens what power cuts at this moment leave.
func (w *sweep) checkCrashes(seed uint64) string {
	for k := range uint64(3) {
		o := w.o
		o.Dir, o.FS = filepath.Join(w.t.TempDir(), "cut"), nil
		if err := w.ffs.Crash(newRand(seed*5+k), o.Dir); err != nil {
			w.t.Fatal(err)
		}
		s, err := Open(o)
		if err != nil {
			return err.Error()
		}
		wrong := w.check(s)
		_ = s.Close()
		_ = os.RemoveAll(o.Dir)
		if wrong != "" {
			return wrong
		}
	}
	return ""
}

// eachCall calls f with call numbers, all of them with SPOOL_SWEEP set, until f
// answers false: there are no more.
func eachCall(f func(at int) bool) {
	stride := 13
	if os.Getenv("SPOOL_SWEEP") != "" {
		stride = 1
	}
	for at := 0; f(at); at += stride {
	}
}

// Whatever single call to the file system fails: what was acknowledged is
// readable then, and after a power cut later.
func TestAnyCallFails(t *testing.T) {
	eachCall(func(at int) bool {
		w := newSweep(t, uint64(at))
		defer w.s.Close()
		n, failed := 0, ""
		w.ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
			if n++; n-1 != at {
				return nil
			}
			failed = fmt.Sprintf("call %d, %s %s", at, op.Kind, filepath.Base(op.Name))
			return &faultfs.Fault{Err: syscall.EIO, Written: op.Len / 2}
		})
		for i := range sweepSteps {
			w.step(i)
		}
		w.ffs.SetHook(nil)
		for range 5 {
			_ = w.s.dispatchRound()
		}
		w.s.correctMins()
		if wrong := w.check(w.s); wrong != "" && w.s.brokenErr() == nil {
			t.Errorf("%s failed: %s", failed, wrong)
		}
		if wrong := w.checkCrashes(uint64(at)); wrong != "" {
			t.Errorf("%s failed, then a power cut: %s", failed, wrong)
		}
		return failed != ""
	})
}

// Before whatever call the power is cut: what was acknowledged is there, and
// what was deleted is not.
func TestPowerCutBeforeAnyCall(t *testing.T) {
	eachCall(func(at int) bool {
		w := newSweep(t, uint64(at%3))
		n, cut := 0, ""
		w.ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
			if op.Kind == faultfs.Read {
				return nil
			}
			if n++; n-1 == at {
				cut = fmt.Sprintf("call %d, %s %s", at, op.Kind, filepath.Base(op.Name))
				if wrong := w.checkCrashes(uint64(at)); wrong != "" {
					t.Errorf("power cut before %s: %s", cut, wrong)
				}
			}
			return nil
		})
		for i := 0; i < sweepSteps && cut == ""; i++ {
			w.step(i)
		}
		if cut != "" {
			_ = w.s.Close()
			return true
		}
		if err := w.s.stop(); err != nil { // the calls of a proper stop, too
			t.Fatal(err)
		}
		return cut != ""
	})
}
