package offsets_test

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/broker/offsets"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool/segment"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func open(t testing.TB, fsys segment.FS, path string) *offsets.Table {
	t.Helper()
	table, err := offsets.Open(fsys, path, offsets.Options{})
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func fresh(t testing.TB) (*offsets.Table, string) {
	path := filepath.Join(t.TempDir(), "consumerOffset.json")
	return open(t, segment.OS(), path), path
}

func commit(t testing.TB, table *offsets.Table, topic, group string, queue int32, offset int64) {
	t.Helper()
	if err := table.Commit(topic, group, queue, offset); err != nil {
		t.Fatal(err)
	}
}

func TestCommitAndQuery(t *testing.T) {
	table, _ := fresh(t)
	if _, ok := table.Query("t", "g", 0); ok {
		t.Error("an offset that nobody committed")
	}
	for _, offset := range []int64{0, 100, 7} { // back is allowed: a consumer may want to read again
		commit(t, table, "t", "g", 3, offset)
		if got, ok := table.Query("t", "g", 3); !ok || got != offset {
			t.Errorf("query: %d, %v; want %d", got, ok, offset)
		}
	}
	for _, other := range []struct {
		topic, group string
		queue        int32
	}{{"t", "g", 2}, {"t", "h", 3}, {"u", "g", 3}} {
		if _, ok := table.Query(other.topic, other.group, other.queue); ok {
			t.Errorf("%v has an offset", other)
		}
	}
	for _, err := range []error{table.Commit("t", "g", 3, -1), table.Commit("t", "g", -1, 5)} {
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != protocol.InvalidParameter {
			t.Errorf("error %v, want an invalid parameter", err)
		}
	}
	if got, _ := table.Query("t", "g", 3); got != 7 {
		t.Errorf("a refused commit moved the offset to %d", got)
	}
}

func TestOffsetsSurviveRestart(t *testing.T) {
	table, path := fresh(t)
	commit(t, table, "t", "g", 0, 5)
	commit(t, table, "%RETRY%g", "g", 1, 6)
	if err := table.Save(); err != nil {
		t.Fatal(err)
	}
	again := open(t, segment.OS(), path)
	was, _ := table.Snapshot()
	is, _ := again.Snapshot()
	if fmt.Sprint(was) != fmt.Sprint(is) || len(is) != 2 {
		t.Errorf("%v became %v", was, is)
	}
}

func TestOpenReadsApachesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "consumerOffset.json")
	text := "{\n\t\"dataVersion\":{\n\t\t\"counter\":2,\n\t\t\"stateVersion\":0,\n\t\t\"timestamp\":1695114340000\n\t},\n" +
		"\t\"groupTopicMap\":{\"group_a\":[\"TopicTest\"]},\n" +
		"\t\"offsetTable\":{\n\t\t\"%RETRY%group_a@group_a\":{0:0\n\t\t},\n\t\t\"TopicTest@group_a\":{0:250,1:251,2:249,3:0\n\t\t},\n\t\t\"nonsense\":{0:1\n\t\t}\n\t}\n}"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table := open(t, segment.OS(), path)
	if got := fmt.Sprint(table.Queues("TopicTest", "group_a")); got != "map[0:250 1:251 2:249 3:0]" {
		t.Errorf("offsets %v", got)
	}
	if v := table.Version(); v.Counter != 2 || v.Timestamp != 1695114340000 {
		t.Errorf("version %+v", v)
	}
	if topics := table.Topics("group_a"); len(topics) != 2 {
		t.Errorf("topics %v", topics)
	}
}

func TestOpenRefusesToForgetOffsets(t *testing.T) {
	_, path := fresh(t)
	if err := os.WriteFile(path, []byte("{}"), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := offsets.Open(segment.OS(), path, offsets.Options{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("open: %v, want a refusal that names the file", err)
	}
}

// Removed offsets are gone from the file when the removal is confirmed.
func TestRemove(t *testing.T) {
	table, path := fresh(t)
	for _, topic := range []string{"t", "u"} {
		for _, group := range []string{"g", "h"} {
			commit(t, table, topic, group, 0, 9)
		}
	}
	if err := table.RemoveTopic("t"); err != nil {
		t.Fatal(err)
	}
	if err := table.RemoveGroup("h"); err != nil {
		t.Fatal(err)
	}
	for _, table := range []*offsets.Table{table, open(t, segment.OS(), path)} {
		if left, _ := table.Snapshot(); fmt.Sprint(left) != "map[u@g:map[0:9]]" {
			t.Errorf("left %v", left)
		}
	}
}

// Reading never changes anything, however odd the arguments.
func TestQueriesChangeNothing(t *testing.T) {
	table, path := fresh(t)
	commit(t, table, "t", "g1", 0, 5)
	commit(t, table, "t", "g2", 0, 6)
	if err := table.Save(); err != nil {
		t.Fatal(err)
	}
	before, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	table.Query("no", "no", -1)
	table.Queues("t", "g1")[0] = 99
	table.Queues("t", "none")
	snapshot, _ := table.Snapshot()
	delete(snapshot["t@g1"], 0)
	delete(snapshot, "t@g2")
	groups := table.Groups("t")
	slices.Sort(groups)
	if fmt.Sprint(groups) != "[g1 g2]" || fmt.Sprint(table.Topics("g1")) != "[t]" {
		t.Errorf("groups %v, topics %v", groups, table.Topics("g1"))
	}
	seen := 0
	table.ForEach(func(topic, group string, queue int32, offset int64) bool {
		seen++
		table.Query(topic, group, queue) // a callback may call the table
		return false
	})
	if seen != 1 {
		t.Errorf("ForEach went on %d times after false", seen-1)
	}
	for group, want := range map[string]int64{"g1": 5, "g2": 6} {
		if got, ok := table.Query("t", group, 0); !ok || got != want {
			t.Errorf("%s: %d, %v; want %d", group, got, ok, want)
		}
	}
	if err := table.Save(); err != nil {
		t.Fatal(err)
	}
	if after, _ := os.ReadFile(path); string(after) != string(before) {
		t.Errorf("file\n%s\nbecame\n%s", before, after)
	}
}

func TestVersionMovesEvery500Commits(t *testing.T) {
	table, _ := fresh(t)
	for i := range int64(1499) {
		commit(t, table, "t", "g", 0, i)
	}
	if v := table.Version(); v.Counter != 2 {
		t.Errorf("counter %d after 1499 commits, want 2", v.Counter)
	}
}

// countingFS counts the files that are made, and fails when told to.
type countingFS struct {
	segment.FS
	made atomic.Int64
	fail atomic.Bool
}

func (f *countingFS) Create(name string) (segment.File, error) {
	if f.fail.Load() {
		return nil, errors.New("no space left")
	}
	f.made.Add(1)
	return f.FS.Create(name)
}

func TestRunSavesWhatChangedAndAtTheEnd(t *testing.T) {
	dir := t.TempDir()
	synctest.Test(t, func(t *testing.T) {
		disk := &countingFS{FS: segment.OS()}
		path := filepath.Join(dir, "consumerOffset.json")
		table := open(t, disk, path)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- table.Run(ctx) }()

		saves := func(when string, want int64) {
			t.Helper()
			synctest.Wait()
			if got := disk.made.Load(); got != want {
				t.Errorf("%s: %d saves, want %d", when, got, want)
			}
		}
		time.Sleep(time.Minute)
		saves("nothing committed", 0)
		commit(t, table, "t", "g", 0, 1)
		time.Sleep(4 * time.Second)
		saves("before the interval is over", 0)
		time.Sleep(2 * time.Second)
		saves("after it", 1)
		commit(t, table, "t", "g", 0, 1)
		time.Sleep(time.Minute)
		saves("the same offset again", 1)

		disk.fail.Store(true)
		commit(t, table, "t", "g", 0, 2)
		time.Sleep(time.Minute)
		disk.fail.Store(false)
		time.Sleep(5 * time.Second)
		saves("once the disk works again", 2)

		commit(t, table, "t", "g", 0, 3)
		stop()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if got, _ := open(t, disk, path).Query("t", "g", 0); got != 3 {
			t.Errorf("offset %d after a clean stop, want 3", got)
		}
	})
}

func TestRunReportsAFailedLastSave(t *testing.T) {
	disk := &countingFS{FS: segment.OS()}
	table := open(t, disk, filepath.Join(t.TempDir(), "consumerOffset.json"))
	commit(t, table, "t", "g", 0, 1)
	disk.fail.Store(true)
	ctx, stop := context.WithCancel(t.Context())
	stop()
	if err := table.Run(ctx); err == nil {
		t.Error("no error")
	}
}

func TestConcurrentUse(t *testing.T) {
	table, _ := fresh(t)
	var wg sync.WaitGroup
	for w := range 4 {
		wg.Go(func() {
			group := fmt.Sprintf("g%d", w)
			for i := range int64(200) {
				if err := table.Commit("t", group, int32(i%4), i); err != nil {
					t.Error(err)
				}
				table.Query("t", group, 0)
				if i%50 == 0 {
					table.Groups("t")
					if err := table.Save(); err != nil {
						t.Error(err)
					}
				}
			}
		})
	}
	wg.Wait()
	if n := len(table.Groups("t")); n != 4 {
		t.Errorf("%d groups, want 4", n)
	}
}

func BenchmarkCommit(b *testing.B) {
	table, _ := fresh(b)
	b.ReportAllocs()
	b.RunParallel(func(pb *testing.PB) {
		for i := int64(0); pb.Next(); i++ {
			if err := table.Commit("topic", "group", int32(i%16), i); err != nil {
				b.Error(err)
			}
		}
	})
}

func BenchmarkQuery(b *testing.B) {
	table, _ := fresh(b)
	commit(b, table, "topic", "group", 3, 5)
	b.ReportAllocs()
	for b.Loop() {
		table.Query("topic", "group", 3)
	}
}

// BenchmarkSave writes 40 000 offsets.
func BenchmarkSave(b *testing.B) {
	table, _ := fresh(b)
	for i := range 10_000 {
		for queue := range int32(4) {
			commit(b, table, fmt.Sprintf("topic-%d", i), "group", queue, int64(i))
		}
	}
	for i := int64(0); b.Loop(); i++ {
		commit(b, table, "topic-0", "group", 0, i+1)
		if err := table.Save(); err != nil {
			b.Fatal(err)
		}
	}
}
