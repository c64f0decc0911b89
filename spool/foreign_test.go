package spool

import (
	"encoding/binary"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// plainStore writes a store as RocketMQ's broker would, records without CRC.
func plainStore(t *testing.T, dir string, n int, seg int) {
	t.Helper()
	os.MkdirAll(filepath.Join(dir, "commitlog"), 0o755)
	buf := make([]byte, seg)
	base, pos := 0, 0
	flush := func() {
		if err := os.WriteFile(filepath.Join(dir, "commitlog", segment.FileName(int64(base))), buf, 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for i := range n {
		m := msg(fmt.Sprintf("apache %d %s", i, strings.Repeat("x", 500)))
		m.Topic, m.QueueOffset, m.PhysicalOffset, m.StoreTimestamp = "TopicTest", int64(i), int64(base+pos), 1000
		m.StoreHost = m.BornHost
		rec, err := message.AppendRecord(nil, m, false)
		if err != nil {
			t.Fatal(err)
		}
		if pos+len(rec)+8 > seg {
			b := message.BlankRecord(nil, int32(seg-pos))
			copy(buf[pos:], b)
			flush()
			base, pos, buf = base+seg, 0, make([]byte, seg)
			m.PhysicalOffset = int64(base)
			rec, _ = message.AppendRecord(nil, m, false)
		}
		copy(buf[pos:], rec)
		pos += len(rec)
	}
	flush()
	cp := make([]byte, 4096)
	binary.BigEndian.PutUint64(cp, 1000)
	binary.BigEndian.PutUint64(cp[8:], 1000)
	os.WriteFile(filepath.Join(dir, "checkpoint"), cp, 0o644)
}

// A store of ours goes to RocketMQ's broker, which appends records without a
// record CRC behind ours, and comes back.
func TestStoreComesBackFromRocketMQ(t *testing.T) {
	o := testOptions(t, t.TempDir())
	s := mustOpen(t, o)
	stop := start(t, s)
	q := s.Queue("TopicTest", 0)
	for i := range 10 {
		put(t, s, q, fmt.Sprint(i))
	}
	end := s.Stats().MaxOffset
	stop()
	file := globSorted(t, o.Dir, "commitlog", "*")[0]
	pos := end
	for i := range 10 {
		m := msg("apache")
		m.Topic, m.QueueOffset, m.PhysicalOffset, m.StoreTimestamp, m.StoreHost = "TopicTest", int64(10+i), pos, time.Now().UnixMilli(), m.BornHost
		rec, _ := message.AppendRecord(nil, m, false)
		overwrite(t, file, int(pos), rec)
		pos += int64(len(rec))
	}
	// RocketMQ also writes the units and the head of the checkpoint; its units
	// are behind what ours says is dispatched.
	s = mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max(); got != 20 {
		t.Errorf("queue ends at %d, RocketMQ's broker acknowledged up to 20", got)
	}
}

// Behind RocketMQ's records our own torn ones are still found.
func TestOurRecordsBehindRocketMQs(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "s")
	os.Mkdir(dir, 0o755)
	o := testOptions(t, dir)
	plainStore(t, dir, 5, int(o.SegmentBytes))
	s := mustOpen(t, o)
	r := put(t, s, s.Queue("TopicTest", 0), "ours")
	if s.plain > r.PhysicalOffset {
		t.Errorf("records from %d on carry a CRC, ours is at %d", s.plain, r.PhysicalOffset)
	}
	end := s.Stats().MaxOffset
	s.Close()
	// A torn write: the last bytes of the record did not arrive.
	overwrite(t, globSorted(t, dir, "commitlog", "*")[0], int(end)-24, make([]byte, 24))
	s = mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max(); got != 5 {
		t.Errorf("a record with torn properties is believed: %d messages", got)
	}
}

// Queue offsets that cannot be true, in records without a record CRC.
func TestImpossibleQueueOffset(t *testing.T) {
	for _, at := range []int64{-1, math.MinInt64, 1 << 40, 1 << 60, math.MaxInt64 - 1} {
		t.Run(fmt.Sprint(at), func(t *testing.T) {
			if at == math.MinInt64 && os.Getenv("HUNT_OOM") == "" {
				t.Skip("eats all memory: run it under ulimit -v")
			}
			o := testOptions(t, t.TempDir())
			plainStore(t, o.Dir, 20, int(o.SegmentBytes))
			b := make([]byte, 8)
			binary.BigEndian.PutUint64(b, uint64(at))
			overwrite(t, globSorted(t, o.Dir, "commitlog", "*")[0], 20, b)
			s, err := Open(o)
			if err != nil {
				t.Fatalf("one flipped field of the first record: %v", err)
			}
			defer s.Close()
			q := s.Queue("TopicTest", 0)
			if got := len(bodies(t, s, q)); got < 19 {
				t.Errorf("%d of 19 undamaged messages readable, queue [%d,%d)", got, q.Min(), q.Max())
			}
		})
	}
}

// A store time from a field without a CRC does not reach new messages.
func TestCheckpointTimeIsNotBelieved(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 10, true)
	b := make([]byte, 8)
	binary.BigEndian.PutUint64(b, 1<<61)
	overwrite(t, filepath.Join(o.Dir, "checkpoint"), 0, b)
	s := mustOpen(t, o)
	defer s.Close()
	if r := put(t, s, s.Queue("TopicTest", 0), "x"); r.StoreTimestamp > time.Now().UnixMilli()+1000 {
		t.Errorf("store time %d from a field without a checksum", r.StoreTimestamp)
	}
}

// A checkpoint of a store with larger segments changes no file.
func TestForeignCheckpoint(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 300, true)
	other := testOptions(t, t.TempDir())
	other.SegmentBytes = 256 << 10
	fillStore(t, other, 10, true)
	own, _ := os.ReadFile(filepath.Join(o.Dir, "checkpoint"))
	foreign, _ := os.ReadFile(filepath.Join(other.Dir, "checkpoint"))
	os.WriteFile(filepath.Join(o.Dir, "checkpoint"), foreign, 0o644)
	s, err := Open(o)
	if err == nil {
		s.Close()
	}
	t.Logf("with the foreign checkpoint: %v", err)
	os.WriteFile(filepath.Join(o.Dir, "checkpoint"), own, 0o644)
	s, err = Open(o)
	if err != nil {
		t.Fatalf("with its own checkpoint again: %v", err)
	}
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max(); got != 150 {
		t.Errorf("queue ends at %d", got)
	}
}

// A stray file far behind the log is set aside.
func TestStrayLogFile(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 10, true)
	const n = 3000
	stray := filepath.Join(o.Dir, "commitlog", segment.FileName(n*o.SegmentBytes))
	os.WriteFile(stray, nil, 0o644)
	s, err := Open(o)
	if err == nil {
		s.Close()
	}
	made := 0
	files := globSorted(t, o.Dir, "commitlog", "*")
	for _, f := range files {
		if f != stray {
			made++
		}
	}
	counters := int64(0)
	if err == nil {
		counters = s.Stats().MaxOffset
	}
	t.Logf("open: %v, %d files left, end %d", err, made, counters)
}

// Queue files keep the size they were made with, whatever is configured.
func TestQueueFileSizeStays(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 16 << 10
	o.MaxBytes = 64 << 10
	s := mustOpen(t, o)
	stop := start(t, s)
	a, b := s.Queue("A", 0), s.Queue("B", 0)
	for range 7 {
		put(t, s, a, "a")
	}
	if err := a.Wait(t.Context(), 6); err != nil {
		t.Fatal(err)
	}
	for a.Min() < 7 {
		r := put(t, s, b, strings.Repeat("b", 3000))
		b.Wait(t.Context(), r.QueueOffset)
		s.correctMins()
	}
	stop()
	o.QueueFileEntries = 50
	s = mustOpen(t, o)
	defer s.Close()
	if r := put(t, s, s.Queue("A", 0), "new"); r.QueueOffset != 7 {
		t.Errorf("offset %d, want 7", r.QueueOffset)
	}
}

// The first bytes of the last segment in use are gone: what is behind stays.
func TestHeadOfLastSegmentGone(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 400, true)
	file, at, _ := lastRecords(t, o.Dir, 3)
	t.Logf("last segment %s has records at %v", filepath.Base(file), at)
	overwrite(t, file, 0, make([]byte, 512))
	s := mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max() + s.Queue("TopicTest", 1).Max(); got != 400 {
		q := globSorted(t, o.Dir, "quarantine", "*")
		t.Errorf("queues hold %d of 400 offsets; quarantine %v; %+v", got, q, s.Stats())
	}
}

// The end of one segment and the head of the last one are damaged.
func TestDamageIntoLastSegment(t *testing.T) {
	o := testOptions(t, t.TempDir())
	fillStore(t, o, 400, true)
	files := globSorted(t, o.Dir, "commitlog", "*")
	last, at, _ := lastRecords(t, o.Dir, 3)
	i := 0
	for files[i] != last {
		i++
	}
	t.Logf("last %s, records at %v, prepared: %v", filepath.Base(last), at, i < len(files)-1)
	overwrite(t, files[i-1], 64000, []byte(strings.Repeat("x", 1536)))
	overwrite(t, last, 0, make([]byte, 4096))
	s := mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max() + s.Queue("TopicTest", 1).Max(); got != 400 {
		t.Errorf("queues hold %d of 400 offsets; quarantine %v; %+v", got, globSorted(t, o.Dir, "quarantine", "*"), s.Stats())
	}
}

// A log that lost its end takes tombstones back with it, durably.
func TestTombstoneBeyondLogEnd(t *testing.T) {
	o := testOptions(t, t.TempDir())
	s := mustOpen(t, o)
	stop := start(t, s)
	put(t, s, s.Queue("Other", 0), "keep")
	cut := s.Stats().MaxOffset
	for range 20 {
		put(t, s, s.Queue("TopicTest", 0), strings.Repeat("old", 100))
	}
	s.Queue("TopicTest", 0).Wait(t.Context(), 19)
	if err := s.DeleteTopic("TopicTest"); err != nil {
		t.Fatal(err)
	}
	stop()
	// The device loses the log's end.
	overwrite(t, globSorted(t, o.Dir, "commitlog", "*")[0], int(cut), make([]byte, 20000))
	s = mustOpen(t, o)
	for range 5 {
		put(t, s, s.Queue("TopicTest", 0), "new life")
	}
	drain(t, s)
	if got := s.Queue("TopicTest", 0).Max(); got != 5 {
		t.Fatalf("queue at %d", got)
	}
	s.Close()
	s = mustOpen(t, o)
	defer s.Close()
	if got := s.Queue("TopicTest", 0).Max(); got != 5 {
		t.Errorf("after a restart the queue ends at %d, 5 were acknowledged", got)
	}
}

// An offset without a message does not mislead the search by time.
func TestOffsetByTimeAcrossGap(t *testing.T) {
	o := testOptions(t, t.TempDir())
	s := mustOpen(t, o)
	stop := start(t, s)
	q := s.Queue("TopicTest", 0)
	first := put(t, s, q, strings.Repeat("x", 300))
	var mid Result
	for i := 1; i < 40; i++ {
		r := put(t, s, q, strings.Repeat("x", 300))
		if i == 20 {
			mid = r
		}
	}
	stop()
	overwrite(t, globSorted(t, o.Dir, "commitlog", "*")[0], int(mid.PhysicalOffset)+100, []byte("damage"))
	os.RemoveAll(filepath.Join(o.Dir, "consumequeue"))
	s = mustOpen(t, o)
	defer s.Close()
	q = s.Queue("TopicTest", 0)
	if got := s.OffsetByTime(q, first.StoreTimestamp, false); got != 0 {
		t.Errorf("the first message stored at %d or later is at 0, found %d", first.StoreTimestamp, got)
	}
}

// A segment whose first record cannot be read does not end retention by age.
func TestAgeBehindDamage(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 16 << 10
	old := time.Now().Add(-1000 * time.Hour)
	o.Now = func() time.Time { return old }
	fillStore(t, o, 200, true)
	files := globSorted(t, o.Dir, "commitlog", "*")
	overwrite(t, files[2], 4, []byte{0xff})
	o.Now = time.Now
	s := mustOpen(t, o)
	defer s.Close()
	s.clock.start = time.Now().UnixMilli()
	for range 5 {
		s.retain()
	}
	if got := len(s.seq.Segments()); got > 2 {
		t.Errorf("%d segments of 1000 hours' age stay, the log begins at %d", got, s.seq.Base())
	}
}

// A clock that was far ahead once does not stay in later messages.
func TestClockThatWasWrong(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.SegmentBytes = 16 << 10
	wrong := time.Date(2099, 1, 1, 0, 0, 0, 0, time.UTC)
	o.Now = func() time.Time { return wrong }
	fillStore(t, o, 1, true)
	o.Now = time.Now
	s := mustOpen(t, o)
	defer s.Close()
	if r := put(t, s, s.Queue("TopicTest", 0), "right clock"); r.StoreTimestamp > time.Now().Add(time.Hour).UnixMilli() {
		t.Errorf("stored today with the time %v", time.UnixMilli(r.StoreTimestamp).UTC())
	}
}

// A spool that is closed changes nothing in a directory that is another's.
func TestClosedSpoolChangesNothing(t *testing.T) {
	o := testOptions(t, t.TempDir())
	o.QueueFileEntries = 20
	s := mustOpen(t, o)
	stop := start(t, s)
	q := s.Queue("TopicTest", 0)
	put(t, s, q, "a")
	stop()
	other := mustOpen(t, o)
	defer other.Close()
	put(t, other, other.Queue("TopicTest", 0), "b")
	drain(t, other)
	if _, err := other.Cursor("lane", other.Queue("TopicTest", 0), 0); err != nil {
		t.Fatal(err)
	}
	before, _ := os.ReadFile(filepath.Join(o.Dir, "cursors.json"))
	err := s.RemoveCursor("x", q)
	after, _ := os.ReadFile(filepath.Join(o.Dir, "cursors.json"))
	if string(before) != string(after) {
		t.Errorf("RemoveCursor (%v) of a closed spool rewrote another's cursors: %s -> %s", err, before, after)
	}
	err = s.DeleteTopic("TopicTest")
	if f := globSorted(t, o.Dir, "consumequeue", "TopicTest", "0", "*"); len(f) == 0 {
		t.Errorf("DeleteTopic (%v) of a closed spool removed another's queue files", err)
	}
}
