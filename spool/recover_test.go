package spool

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/spool/segment"
	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// fillStore makes a store with n messages in two queues and stops it, properly
// or as a crash does. It returns the bodies of each queue.
func fillStore(t *testing.T, o Options, n int, properly bool) map[string][]string {
	t.Helper()
	s := mustOpen(t, o)
	want := make(map[string][]string)
	var stop func()
	if properly {
		stop = start(t, s)
	}
	for i := range n {
		q := s.Queue("TopicTest", int32(i%2))
		body := fmt.Sprintf("message %04d %0600d", i, i)
		put(t, s, q, body)
		name := fmt.Sprintf("TopicTest/%d", i%2)
		want[name] = append(want[name], body)
	}
	if properly {
		stop()
	} else if err := s.Close(); err != nil {
		t.Fatal(err)
	}
	return want
}

// demand opens the store and compares its queues; then the same once more,
// which must change nothing, and finally checks files and a new append.
func demand(t *testing.T, o Options, want map[string][]string) {
	t.Helper()
	end := int64(-1)
	for round := range 3 {
		s := mustOpen(t, o)
		for name, bs := range want {
			topic, id, _ := cutName(name)
			if got := bodies(t, s, s.Queue(topic, id)); !slices.Equal(got, bs) {
				t.Errorf("opening %d: %s has %d messages, want %d", round, name, len(got), len(bs))
			}
		}
		if st := s.Stats(); end >= 0 && st.MaxOffset != end {
			t.Errorf("opening %d: log ends at %d, before at %d", round, st.MaxOffset, end)
		} else {
			end = st.MaxOffset
		}
		if round == 1 { // leave a clean stop before the third
			start(t, s)()
		} else if err := s.Close(); err != nil {
			t.Fatal(err)
		}
		got := checkStore(t, o.Dir, int64(o.QueueFileEntries), true)
		for name, bs := range want {
			if !slices.Equal(got[name], bs) {
				t.Errorf("opening %d: files have %d messages of %s, want %d", round, len(got[name]), name, len(bs))
			}
		}
	}
	s := mustOpen(t, o)
	defer s.Close()
	for name, bs := range want {
		topic, id, _ := cutName(name)
		if r := put(t, s, s.Queue(topic, id), "next"); r.QueueOffset != int64(len(bs)) {
			t.Errorf("next append to %s got offset %d, want %d", name, r.QueueOffset, len(bs))
		}
	}
}

func globSorted(t *testing.T, parts ...string) []string {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(parts...))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(files)
	return files
}

// F01: what survived in the log becomes readable whatever is missing of the
// queues.
func TestQueuesRebuiltFromLog(t *testing.T) {
	lose := map[string]func(t *testing.T, dir string){
		"nothing dispatched": func(*testing.T, string) {},
		"all queues":         func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, "consumequeue")) },
		"one queue":          func(t *testing.T, dir string) { os.RemoveAll(filepath.Join(dir, "consumequeue", "TopicTest", "1")) },
		"checkpoint":         func(t *testing.T, dir string) { os.Remove(filepath.Join(dir, "checkpoint")) },
		"checkpoint empty": func(t *testing.T, dir string) {
			os.WriteFile(filepath.Join(dir, "checkpoint"), make([]byte, checkpointLen), 0o644)
		},
	}
	for n := 1; n <= 3; n++ {
		lose[fmt.Sprintf("%d newest files", n)] = func(t *testing.T, dir string) {
			for _, id := range []string{"0", "1"} {
				files := globSorted(t, dir, "consumequeue", "TopicTest", id, "*")
				for _, f := range files[len(files)-n:] {
					os.Remove(f)
				}
			}
		}
	}
	lose["oldest file"] = func(t *testing.T, dir string) {
		os.Remove(globSorted(t, dir, "consumequeue", "TopicTest", "0", "*")[0])
	}
	lose["file in the middle"] = func(t *testing.T, dir string) {
		os.Remove(globSorted(t, dir, "consumequeue", "TopicTest", "0", "*")[1])
	}
	for name, f := range lose {
		for _, properly := range []bool{true, false} {
			if !properly && strings.Contains(name, "file") {
				continue // there are no queue files yet
			}
			t.Run(fmt.Sprintf("%s/properly=%v", name, properly), func(t *testing.T) {
				o := testOptions(t, t.TempDir())
				o.QueueFileEntries = 20
				want := fillStore(t, o, 220, properly)
				f(t, o.Dir)
				demand(t, o, want)
			})
		}
	}
}

// lastRecord returns where the last record of the log is: its file, its place
// in it and its length, and the same for the one before.
func lastRecords(t *testing.T, dir string, n int) (file string, at []int, size []int) {
	t.Helper()
	for _, f := range globSorted(t, dir, "commitlog", "*") {
		data, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		if binary.BigEndian.Uint32(data) == 0 {
			break
		}
		file, at, size = f, nil, nil
		for p := 0; binary.BigEndian.Uint32(data[p:]) != 0 && binary.BigEndian.Uint32(data[p+4:]) != 0xCBD43194; {
			n := int(binary.BigEndian.Uint32(data[p:]))
			at, size = append(at, p), append(size, n)
			p += n
		}
	}
	return file, at[len(at)-n:], size[len(size)-n:]
}

func overwrite(t *testing.T, file string, at int, b []byte) {
	t.Helper()
	f, err := os.OpenFile(file, os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if _, err := f.WriteAt(b, int64(at)); err != nil {
		t.Fatal(err)
	}
}

// F02: the log ends before a last record that is not whole, cut at any byte.
func TestTornLastRecord(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 16 << 10
	want := fillStore(t, o, 30, false)
	file, at, size := lastRecords(t, o.Dir, 1)
	image, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	want["TopicTest/1"] = want["TopicTest/1"][:14] // message 29 is the torn one
	step := 1
	if testing.Short() {
		step = 17
	}
	whole := demand
	quick := func(t *testing.T, o Options, want map[string][]string) {
		t.Helper()
		s := mustOpen(t, o)
		defer s.Close()
		for name, bs := range want {
			topic, id, _ := cutName(name)
			if got := bodies(t, s, s.Queue(topic, id)); !slices.Equal(got, bs) {
				t.Errorf("%s has %d messages, want %d", name, len(got), len(bs))
			}
		}
	}
	for cut := 0; cut < size[0]; cut += step {
		dir := copyStore(t, o.Dir)
		if cut%2 == 0 { // the file ends there
			if err := os.Truncate(filepath.Join(dir, "commitlog", filepath.Base(file)), int64(at[0]+cut)); err != nil {
				t.Fatal(err)
			}
		} else { // or it goes on with zeros
			torn := append([]byte(nil), image...)
			clear(torn[at[0]+cut:])
			if err := os.WriteFile(filepath.Join(dir, "commitlog", filepath.Base(file)), torn, 0o644); err != nil {
				t.Fatal(err)
			}
		}
		cutStore := o
		cutStore.Dir = dir
		check := quick
		if cut%20 < 2 {
			check = whole
		}
		check(t, cutStore, want)
		if t.Failed() {
			t.Fatalf("cut at byte %d of %d", cut, size[0])
		}
		os.RemoveAll(dir)
	}
}

func copyStore(t *testing.T, from string) string {
	t.Helper()
	to := t.TempDir()
	if err := os.CopyFS(filepath.Join(to, "s"), os.DirFS(from)); err != nil {
		t.Fatal(err)
	}
	return filepath.Join(to, "s")
}

// F03: the cut of a torn tail is on disk before Open returns.
func TestCutIsDurable(t *testing.T) {
	o := testOptions(t, t.TempDir())
	want := fillStore(t, o, 20, false)
	file, at, size := lastRecords(t, o.Dir, 3)
	damage(t, file, at[0], size[0], "body")
	// As if nothing of the log had been durable: later records are then torn
	// writes, too, and go with the damaged one.
	if err := os.Remove(filepath.Join(o.Dir, "checkpoint")); err != nil {
		t.Fatal(err)
	}
	for name := range want {
		want[name] = want[name][:10-1]
	}
	want["TopicTest/1"] = want["TopicTest/1"][:8] // 17, 18, 19 are gone
	ffs, err := faultfs.New(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	recovered := o
	recovered.FS = ffs
	s := mustOpen(t, recovered)
	defer s.Close()
	for i := range 4 {
		dir := filepath.Join(t.TempDir(), "after")
		if err := ffs.Crash(newRand(uint64(i)), dir); err != nil {
			t.Fatal(err)
		}
		cut := o
		cut.Dir = dir
		demand(t, cut, want)
	}
}

// F05: an empty last queue file, and one with garbage behind its last unit.
func TestOddQueueFiles(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.QueueFileEntries = 20
	want := fillStore(t, o, 80, false)
	s := mustOpen(t, o)
	s.Close()
	for _, id := range []string{"0", "1"} {
		dir := filepath.Join(o.Dir, "consumequeue", "TopicTest", id)
		if err := os.WriteFile(filepath.Join(dir, segment.FileName(800)), make([]byte, 400), 0o644); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, segment.FileName(1200)), []byte(strings.Repeat("g", 400)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	demand(t, o, want)
}

// Units of records that a power cut took back must not come back once the log
// has grown beyond the place they point at.
func TestUnitsOfLostRecordsAreCleared(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 40, true)
	// A crash lost the last messages of the log, but not their units: as if
	// they had been written before the checkpoint said so.
	file, at, _ := lastRecords(t, o.Dir, 10)
	overwrite(t, file, at[0], make([]byte, 40<<10))
	s := mustOpen(t, o)
	q0, q1 := s.Queue("TopicTest", 0), s.Queue("TopicTest", 1)
	if q0.Max() != 15 || q1.Max() != 15 {
		t.Fatalf("queues end at %d and %d, want 15", q0.Max(), q1.Max())
	}
	stop := start(t, s)
	for i := range 30 { // only queue 0 grows
		put(t, s, q0, fmt.Sprintf("new %d %0600d", i, i))
	}
	stop()
	s = mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 1).Max(); got != 15 {
		t.Errorf("queue 1 ends at %d, want 15", got)
	}
}

// F07a: a queue whose messages are all cut off the log begins at 0 again.
func TestQueueBelowTruncation(t *testing.T) {
	o := testOptions(t, t.TempDir())
	s := mustOpen(t, o)
	put(t, s, s.Queue("Other", 0), "first")
	cut := s.Stats().MaxOffset
	for range 3 {
		put(t, s, s.Queue("TopicTest", 0), "lost")
	}
	s.Close()
	s = mustOpen(t, o)
	s.Close()
	overwrite(t, globSorted(t, o.Dir, "commitlog", "*")[0], int(cut), make([]byte, 10000))
	demand(t, o, map[string][]string{"Other/0": {"first"}, "TopicTest/0": nil})
}

// A directory in use is refused, and the error says by whom.
func TestSecondOpener(t *testing.T) {
	o := testOptions(t, t.TempDir())
	s := mustOpen(t, o)
	defer s.Close()
	_, err := Open(o)
	if !errors.Is(err, segment.ErrLocked) || !strings.Contains(err.Error(), fmt.Sprint(os.Getpid())) {
		t.Errorf("second opener: %v", err)
	}
}

// A store keeps its segment size whatever is configured.
func TestSegmentSizeStays(t *testing.T) {
	for _, checkpoint := range []bool{true, false} {
		o := testOptions(t, t.TempDir())
		want := fillStore(t, o, 150, true)
		if !checkpoint {
			os.Remove(filepath.Join(o.Dir, "checkpoint"))
		}
		o.SegmentBytes = 256 << 10
		demand(t, o, want)
	}
}

// A process that dies leaves written messages in the page cache. A new one
// finds them there and shows them, so it must have made them durable first.
func TestCrashThenPowerCut(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 16 << 10
	ffs, err := faultfs.New(o.Dir)
	if err != nil {
		t.Fatal(err)
	}
	live := o
	live.FS = ffs
	s := mustOpen(t, live)
	var b Batch
	var want []string
	for i := range 60 {
		body := fmt.Sprintf("message %04d %0600d", i, i)
		want = append(want, body)
		if _, err := b.Add(s.Queue("TopicTest", 0), msg(body)); err != nil {
			t.Fatal(err)
		}
	}
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	s.Close() // nothing was flushed
	s = mustOpen(t, live)
	defer s.Close()
	if got := bodies(t, s, s.Queue("TopicTest", 0)); !slices.Equal(got, want) {
		t.Fatalf("%d messages", len(got))
	}
	for seed := range uint64(6) {
		cut := o
		cut.Dir = filepath.Join(t.TempDir(), "cut")
		if err := ffs.Crash(newRand(seed), cut.Dir); err != nil {
			t.Fatal(err)
		}
		c := mustOpen(t, cut)
		if got := bodies(t, c, c.Queue("TopicTest", 0)); !slices.Equal(got, want) {
			t.Errorf("after the power cut: %d messages", len(got))
		}
		c.Close()
	}
}
