package topics_test

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool/segment"
)

const template = "TBW102"

func options() topics.Options {
	return topics.Options{
		AutoCreate: true, Cluster: "DefaultCluster", Broker: "broker-a",
		Now: func() time.Time { return time.UnixMilli(1_700_000_000_000) },
	}
}

func open(t *testing.T, path string, o topics.Options) *topics.Table {
	t.Helper()
	table, err := topics.Open(segment.OS(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func fresh(t *testing.T) (*topics.Table, string) {
	path := filepath.Join(t.TempDir(), "topics.json")
	return open(t, path, options()), path
}

func config(name string) protocol.TopicConfig {
	return protocol.TopicConfig{
		TopicName: name, ReadQueueNums: 4, WriteQueueNums: 4, Perm: 6, TopicFilterType: "SINGLE_TAG",
	}
}

func wantCode(t *testing.T, err error, code protocol.ResponseCode) {
	t.Helper()
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("error %v, want code %v", err, code)
	}
}

func TestSystemTopicsExistFromTheStart(t *testing.T) {
	table, path := fresh(t)
	want := map[string]string{
		template:                     "8/8 perm 7",
		"DefaultCluster":             "16/16 perm 7",
		"broker-a":                   "1/1 perm 7",
		"DefaultCluster_REPLY_TOPIC": "1/1 perm 6",
		"SELF_TEST_TOPIC":            "1/1 perm 6",
		"OFFSET_MOVED_EVENT":         "1/1 perm 6",
	}
	for name, shape := range want {
		topic, ok := table.Get(name)
		if !ok {
			t.Errorf("%s is missing", name)
			continue
		}
		if got := fmt.Sprintf("%d/%d perm %d", topic.ReadQueueNums, topic.WriteQueueNums, topic.Perm); got != shape {
			t.Errorf("%s is %s, want %s", name, got, shape)
		}
		if _, err := table.Delete(name); err == nil {
			t.Errorf("%s was deleted", name)
		} else {
			wantCode(t, err, protocol.InvalidParameter)
		}
	}
	if n := len(table.All()); n != len(want) {
		t.Errorf("%d topics, want %d: nothing else is served", n, len(want))
	}
	before := table.Version()
	if again := open(t, path, options()); again.Version() != before {
		t.Errorf("a restart moved the version from %v to %v", before, again.Version())
	}
}

func TestAutoCreateFollowsTheTemplate(t *testing.T) {
	tests := []struct {
		name, template string
		asked, queues  int
		err            error
	}{
		{"four-of-eight", template, 4, 4, nil},
		{"no-more-than-the-template", template, 100, 8, nil},
		{"at-least-one", template, 0, 1, nil},
		{"from-the-cluster", "DefaultCluster", 12, 12, nil},
		{"from-the-broker", "broker-a", 4, 1, nil},
		{"from-nothing", "NoSuchTopic", 4, 0, topics.ErrNotCreated},
		{"from-one-without-inheritance", "SELF_TEST_TOPIC", 4, 0, topics.ErrNotCreated},
	}
	table, _ := fresh(t)
	for _, tt := range tests {
		topic, err := table.AutoCreate(tt.name, tt.template, tt.asked)
		if !errors.Is(err, tt.err) {
			t.Errorf("%s: error %v, want %v", tt.name, err, tt.err)
			continue
		}
		if err == nil && (int(topic.WriteQueueNums) != tt.queues || int(topic.ReadQueueNums) != tt.queues || topic.Perm != 6) {
			t.Errorf("%s: %+v, want %d queues and perm 6", tt.name, topic.TopicConfig, tt.queues)
		}
		if _, exists := table.Get(tt.name); exists != (tt.err == nil) {
			t.Errorf("%s: exists %v", tt.name, exists)
		}
	}
}

// With automatic creation off, no default topic may be a way around it, and the
// template is not there for clients to find a route to.
func TestAutoCreateOffHasNoWayAround(t *testing.T) {
	_, path := fresh(t)
	o := options()
	o.AutoCreate = false
	table := open(t, path, o)
	for _, from := range []string{template, "DefaultCluster", "broker-a"} {
		if _, err := table.AutoCreate("sneaky", from, 4); !errors.Is(err, topics.ErrNotCreated) {
			t.Errorf("from %s: %v, want ErrNotCreated", from, err)
		}
	}
	if _, ok := table.Get(template); ok {
		t.Error("the template outlives the setting")
	}
	if _, ok := open(t, path, o).Get(template); ok {
		t.Error("the template is back after a restart")
	}
}

var badNames = []string{
	"", " ", ".", "..", "../x", "/etc/x", "a/b", `a\b`, "a\x00b", "a+b", "naïve", strings.Repeat("x", 128),
	"%RETRY%" + strings.Repeat("x", 256),
}

func TestIllegalNamesAreRefusedEverywhere(t *testing.T) {
	table, _ := fresh(t)
	before := len(table.All())
	for _, name := range badNames {
		_, err := table.AutoCreate(name, template, 4)
		wantCode(t, err, protocol.InvalidParameter)
		wantCode(t, table.Update(config(name)), protocol.InvalidParameter)
		if !strings.Contains(name, "+") {
			_, err = table.Ensure(config(name))
			wantCode(t, err, protocol.InvalidParameter)
		}
	}
	if n := len(table.All()); n != before {
		t.Errorf("%d topics were made", n-before)
	}
}

func TestBrokersOwnTopicsAreNotMadeByClients(t *testing.T) {
	table, _ := fresh(t)
	for _, name := range []string{"SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "rmq_sys_wheel_timer", "rmq_sys_x"} {
		_, err := table.AutoCreate(name, template, 4)
		wantCode(t, err, protocol.NoPermission)
		wantCode(t, table.Update(config(name)), protocol.InvalidParameter)
	}
	// Clients that trace their messages rely on this one.
	if _, err := table.AutoCreate("RMQ_SYS_TRACE_TOPIC", template, 4); err != nil {
		t.Error(err)
	}
	if topic, _ := table.Get("SELF_TEST_TOPIC"); !topic.SendForbidden {
		t.Error("SELF_TEST_TOPIC may be sent to")
	}
}

func TestStateSurvivesRestart(t *testing.T) {
	table, path := fresh(t)
	c := config("orders")
	c.Attributes = map[string]string{"+message.type": "FIFO"}
	c.Order = true
	if err := table.Update(c); err != nil {
		t.Fatal(err)
	}
	if _, err := table.AutoCreate("auto", template, 3); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Ensure(topics.ReadWrite("%RETRY%g", 1)); err != nil {
		t.Fatal(err)
	}
	again := open(t, path, options())
	if again.Version() != table.Version() {
		t.Errorf("version %v became %v", table.Version(), again.Version())
	}
	was, _ := table.Snapshot()
	is, _ := again.Snapshot()
	if fmt.Sprint(was) != fmt.Sprint(is) {
		t.Errorf("topics\n%v\nbecame\n%v", was, is)
	}
	if is["orders"].Attributes["message.type"] != "FIFO" {
		t.Errorf("attributes %v", is["orders"].Attributes)
	}
}

func TestDeletedTopicStaysAway(t *testing.T) {
	table, path := fresh(t)
	if err := table.Update(config("gone")); err != nil {
		t.Fatal(err)
	}
	if existed, err := table.Delete("gone"); !existed || err != nil {
		t.Fatalf("delete: %v, %v", existed, err)
	}
	if existed, err := table.Delete("gone"); existed || err != nil {
		t.Errorf("second delete: %v, %v", existed, err)
	}
	for _, table := range []*topics.Table{table, open(t, path, options())} {
		if _, ok := table.Get("gone"); ok {
			t.Error("the topic is back")
		}
	}
}

func TestOpenReadsApachesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "topics.json")
	text := "{\n\t\"dataVersion\":{\n\t\t\"counter\":3,\n\t\t\"stateVersion\":1,\n\t\t\"timestamp\":1695114340000\n\t},\n" +
		"\t\"topicConfigTable\":{\n\t\t\"TopicTest\":{\n\t\t\t\"attributes\":{},\n\t\t\t\"order\":false,\n\t\t\t\"perm\":6,\n" +
		"\t\t\t\"readQueueNums\":4,\n\t\t\t\"topicFilterType\":\"SINGLE_TAG\",\n\t\t\t\"topicName\":\"TopicTest\",\n" +
		"\t\t\t\"topicSysFlag\":0,\n\t\t\t\"writeQueueNums\":5\n\t\t},\n" +
		"\t\t\"%RETRY%g+t\":{\"perm\":6,\"readQueueNums\":1,\"writeQueueNums\":1},\n" +
		"\t\t\"../../evil\":{\"perm\":6,\"readQueueNums\":1,\"writeQueueNums\":1}\n\t}\n}"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table := open(t, path, options())
	topic, ok := table.Get("TopicTest")
	if !ok || topic.WriteQueueNums != 5 || topic.ReadQueueNums != 4 || !topic.Readable || !topic.Writable {
		t.Errorf("TopicTest is %+v", topic)
	}
	if _, ok := table.Get("%RETRY%g+t"); !ok {
		t.Error("a pop retry topic is missing")
	}
	if _, ok := table.Get("../../evil"); ok {
		t.Error("a name that leaves the directory is served")
	}
	if v := table.Version(); v.Counter != 4 || v.StateVersion != 1 || v.Timestamp != 1_700_000_000_000 {
		t.Errorf("version %+v, want one after the file's: system topics were added", v)
	}
}

func TestOpenRefusesToForgetTopics(t *testing.T) {
	_, path := fresh(t)
	for _, name := range []string{path, path + ".bak"} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := topics.Open(segment.OS(), path, options()); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("open: %v, want a refusal that names the file", err)
	}
}

// Whenever two readers see one version they see the same topics.
func TestSnapshotAndVersionAgree(t *testing.T) {
	table, _ := fresh(t)
	stop := make(chan struct{})
	var reader sync.WaitGroup
	seen := map[protocol.DataVersion]int{}
	reader.Go(func() {
		for {
			configs, version := table.Snapshot()
			if n, ok := seen[version]; ok && n != len(configs) {
				t.Errorf("version %v has %d and %d topics", version, n, len(configs))
			}
			seen[version] = len(configs)
			select {
			case <-stop:
				return
			default:
			}
		}
	})
	var writers sync.WaitGroup
	for w := range 4 {
		writers.Go(func() {
			for i := range 10 {
				if err := table.Update(config(fmt.Sprintf("t-%d-%d", w, i))); err != nil {
					t.Error(err)
				}
			}
		})
	}
	writers.Wait()
	close(stop)
	reader.Wait()
}

func TestOnChangeNamesWhatChanged(t *testing.T) {
	o := options()
	var changed, deleted []string
	o.OnChange = func(c []*topics.Topic, d []string) {
		for _, topic := range c {
			changed = append(changed, topic.Name)
		}
		deleted = append(deleted, d...)
	}
	table := open(t, filepath.Join(t.TempDir(), "topics.json"), o)
	if err := table.Update(config("a")); err != nil {
		t.Fatal(err)
	}
	if err := table.Update(config("a")); err != nil {
		t.Fatal(err)
	}
	if _, err := table.Delete("a"); err != nil {
		t.Fatal(err)
	}
	if fmt.Sprint(changed, deleted) != "[a] [a]" {
		t.Errorf("heard of %v changed and %v deleted", changed, deleted)
	}
}

// noSpace is a disk on which no file can be made any more.
type noSpace struct {
	segment.FS
	full bool
}

var errFull = errors.New("no space left")

func (f *noSpace) Create(name string) (segment.File, error) {
	if f.full {
		return nil, errFull
	}
	return f.FS.Create(name)
}

func TestChangeThatCannotBeSavedDoesNotHappen(t *testing.T) {
	disk := &noSpace{FS: segment.OS()}
	table, err := topics.Open(disk, filepath.Join(t.TempDir(), "topics.json"), options())
	if err != nil {
		t.Fatal(err)
	}
	before := table.Version()
	disk.full = true
	if _, err := table.AutoCreate("lost", template, 4); !errors.Is(err, errFull) {
		t.Errorf("error %v, want %v", err, errFull)
	}
	if _, ok := table.Get("lost"); ok || table.Version() != before {
		t.Error("an unsaved topic is visible")
	}
	disk.full = false
	if _, err := table.AutoCreate("lost", template, 4); err != nil {
		t.Errorf("once there is space: %v", err)
	}
}

func TestTopicsAreLimited(t *testing.T) {
	o := options()
	o.MaxTopics = 8 // six are the broker's own
	table := open(t, filepath.Join(t.TempDir(), "topics.json"), o)
	if err := table.Update(config("a"), config("b"), config("c")); err == nil {
		t.Error("three more fit into two")
	}
	if err := table.Update(config("a"), config("b")); err != nil {
		t.Error(err)
	}
	_, err := table.AutoCreate("d", template, 1)
	wantCode(t, err, protocol.SystemError)
	c := config("a")
	c.Perm = 4
	if err := table.Update(c); err != nil {
		t.Errorf("a full table refuses a change: %v", err)
	}
}

func TestGetBytesDoesNotAllocate(t *testing.T) {
	table, _ := fresh(t)
	name := []byte("DefaultCluster")
	if n := testing.AllocsPerRun(100, func() {
		if _, ok := table.GetBytes(name); !ok {
			t.Fatal("missing")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkGetBytes(b *testing.B) {
	table, err := topics.Open(segment.OS(), filepath.Join(b.TempDir(), "topics.json"), options())
	if err != nil {
		b.Fatal(err)
	}
	name := []byte("DefaultCluster")
	for b.Loop() {
		table.GetBytes(name)
	}
}

// BenchmarkCreate makes topics beside 10 000 others, from 32 callers at once.
func BenchmarkCreate(b *testing.B) {
	table, err := topics.Open(segment.OS(), filepath.Join(b.TempDir(), "topics.json"), options())
	if err != nil {
		b.Fatal(err)
	}
	many := make([]protocol.TopicConfig, 10_000)
	for i := range many {
		many[i] = config(fmt.Sprintf("topic-%d", i))
	}
	if err := table.Update(many...); err != nil {
		b.Fatal(err)
	}
	b.SetParallelism(16)
	var mu sync.Mutex
	n := 0
	b.ResetTimer()
	b.RunParallel(func(pb *testing.PB) {
		for pb.Next() {
			mu.Lock()
			n++
			name := fmt.Sprintf("new-%d", n)
			mu.Unlock()
			if _, err := table.AutoCreate(name, template, 4); err != nil {
				b.Error(err)
			}
		}
	})
}
