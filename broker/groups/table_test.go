package groups_test

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/sluicemq/sluice/broker/groups"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool/segment"
)

func open(t *testing.T, path string, o groups.Options) *groups.Table {
	t.Helper()
	o.Now = func() time.Time { return time.UnixMilli(1_700_000_000_000) }
	table, err := groups.Open(segment.OS(), path, o)
	if err != nil {
		t.Fatal(err)
	}
	return table
}

func fresh(t *testing.T) (*groups.Table, string) {
	path := filepath.Join(t.TempDir(), "subscriptionGroup.json")
	return open(t, path, groups.Options{AutoCreate: true}), path
}

func wantCode(t *testing.T, err error, code protocol.ResponseCode) {
	t.Helper()
	var e *protocol.Error
	if !errors.As(err, &e) || e.Code != code {
		t.Errorf("error %v, want code %v", err, code)
	}
}

func TestGroupsComeToLifeWithApachesDefaults(t *testing.T) {
	table, path := fresh(t)
	g, err := table.Ensure("g")
	if err != nil {
		t.Fatal(err)
	}
	if !g.ConsumeEnable || !g.NotifyConsumerIDsChangedEnable || g.RetryQueueNums != 1 || g.RetryMaxTimes != 16 || g.WhichBrokerWhenConsumeSlowly != 1 {
		t.Errorf("defaults are %+v", g.SubscriptionGroupConfig)
	}
	if _, ok := open(t, path, groups.Options{}).Get("g"); !ok {
		t.Error("the group is gone after a restart")
	}
	if same, err := table.EnsureBytes([]byte("g")); same != g || err != nil {
		t.Errorf("found %p, %v; want %p", same, err, g)
	}
}

func TestAutoCreateOff(t *testing.T) {
	table := open(t, filepath.Join(t.TempDir(), "subscriptionGroup.json"), groups.Options{})
	_, err := table.Ensure("g")
	wantCode(t, err, protocol.SubscriptionGroupNotExist)
	if _, ok := table.Get("g"); ok {
		t.Error("the group was made")
	}
	for _, name := range []string{"TOOLS_CONSUMER", "CID_RMQ_SYS_x"} {
		if _, err := table.Ensure(name); err != nil {
			t.Errorf("system group %s: %v", name, err)
		}
	}
}

func TestIllegalNamesAreRefused(t *testing.T) {
	table, _ := fresh(t)
	before := len(table.All())
	for _, name := range []string{"", ".", "..", "../x", "a/b", `a\b`, "a\x00b", "a@b", "naïve", strings.Repeat("x", 121)} {
		_, err := table.Ensure(name)
		wantCode(t, err, protocol.InvalidParameter)
		wantCode(t, table.Update(protocol.NewSubscriptionGroupConfig(name)), protocol.InvalidParameter)
	}
	if n := len(table.All()); n != before {
		t.Errorf("%d groups were made", n-before)
	}
}

func TestUpdate(t *testing.T) {
	table, path := fresh(t)
	c := protocol.NewSubscriptionGroupConfig("g")
	c.ConsumeEnable = false
	c.RetryMaxTimes = 3
	if err := table.Update(c); err != nil {
		t.Fatal(err)
	}
	before := table.Version()
	if err := table.Update(c); err != nil || table.Version() != before {
		t.Errorf("the same again: %v, version %v became %v", err, before, table.Version())
	}
	again := open(t, path, groups.Options{})
	if g, ok := again.Get("g"); !ok || g.ConsumeEnable || g.RetryMaxTimes != 3 {
		t.Errorf("after a restart: %+v", g)
	}
	if again.Version() != before {
		t.Errorf("version %v became %v", before, again.Version())
	}

	for name, edit := range map[string]func(*protocol.SubscriptionGroupConfig){
		"negative retry queues": func(c *protocol.SubscriptionGroupConfig) { c.RetryQueueNums = -1 },
		"too many retry queues": func(c *protocol.SubscriptionGroupConfig) { c.RetryQueueNums = 1 << 20 },
		"negative retries":      func(c *protocol.SubscriptionGroupConfig) { c.RetryMaxTimes = -2 },
		"unknown attribute":     func(c *protocol.SubscriptionGroupConfig) { c.Attributes = map[string]string{"+x": "y"} },
	} {
		bad := protocol.NewSubscriptionGroupConfig("bad")
		edit(&bad)
		err := table.Update(protocol.NewSubscriptionGroupConfig("good"), bad)
		if err == nil {
			t.Errorf("%s: accepted", name)
		} else {
			wantCode(t, err, protocol.InvalidParameter)
		}
	}
	if _, ok := table.Get("good"); ok {
		t.Error("half of an update happened")
	}
}

func TestDelete(t *testing.T) {
	table, path := fresh(t)
	if _, err := table.Ensure("g"); err != nil {
		t.Fatal(err)
	}
	if existed, err := table.Delete("g"); !existed || err != nil {
		t.Errorf("delete: %v, %v", existed, err)
	}
	if existed, err := table.Delete("g"); existed || err != nil {
		t.Errorf("second delete: %v, %v", existed, err)
	}
	if _, ok := open(t, path, groups.Options{}).Get("g"); ok {
		t.Error("the group is back after a restart")
	}
	_, err := table.Delete("TOOLS_CONSUMER")
	wantCode(t, err, protocol.InvalidParameter)
}

func TestGroupsAreLimited(t *testing.T) {
	table := open(t, filepath.Join(t.TempDir(), "subscriptionGroup.json"), groups.Options{AutoCreate: true, MaxGroups: 8})
	if _, err := table.Ensure("one"); err != nil { // seven are system groups
		t.Fatal(err)
	}
	_, err := table.Ensure("two")
	wantCode(t, err, protocol.SystemError)
	wantCode(t, table.Update(protocol.NewSubscriptionGroupConfig("two")), protocol.SystemError)
	changed := protocol.NewSubscriptionGroupConfig("one")
	changed.ConsumeEnable = false
	if err := table.Update(changed); err != nil {
		t.Errorf("a full table refuses a change: %v", err)
	}
}

func TestForbiddenTableIsKept(t *testing.T) {
	path := filepath.Join(t.TempDir(), "subscriptionGroup.json")
	text := "{\n\t\"dataVersion\":{\"counter\":9,\"stateVersion\":0,\"timestamp\":5},\n" +
		"\t\"forbiddenTable\":{\"g\":{\"closed\":4,\"open\":0}},\n" +
		"\t\"subscriptionGroupTable\":{\"g\":{\"groupName\":\"g\",\"retryMaxTimes\":5},\"a/b\":{}}\n}"
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	table := open(t, path, groups.Options{AutoCreate: true})
	if g, ok := table.Get("g"); !ok || g.RetryMaxTimes != 5 || !g.ConsumeEnable {
		t.Errorf("g is %+v", g)
	}
	if _, ok := table.Get("a/b"); ok {
		t.Error("an illegal name is served")
	}
	if _, err := table.Ensure("h"); err != nil { // writes the file
		t.Fatal(err)
	}
	table = open(t, path, groups.Options{})
	if !table.ReadForbidden("g", "closed") || table.ReadForbidden("g", "open") || table.ReadForbidden("h", "closed") {
		t.Errorf("forbidden: %v", table.Snapshot().Forbidden)
	}
	if _, err := table.Delete("g"); err != nil {
		t.Fatal(err)
	}
	if table.ReadForbidden("g", "closed") {
		t.Error("a deleted group leaves its forbidden topics to the next of its name")
	}
}

func TestOpenRefusesToForgetGroups(t *testing.T) {
	_, path := fresh(t)
	for _, name := range []string{path, path + ".bak"} {
		if err := os.WriteFile(name, []byte("{"), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := groups.Open(segment.OS(), path, groups.Options{}); err == nil || !strings.Contains(err.Error(), path) {
		t.Errorf("open: %v, want a refusal that names the file", err)
	}
}

func TestEnsureBytesDoesNotAllocate(t *testing.T) {
	table, _ := fresh(t)
	name := []byte("TOOLS_CONSUMER")
	if n := testing.AllocsPerRun(100, func() {
		if _, err := table.EnsureBytes(name); err != nil {
			t.Fatal(err)
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
