package namesrv

import (
	"errors"
	"log/slog"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/spool/segment"
)

func openTestKV(t *testing.T, fsys segment.FS, path string) *kvConfig {
	t.Helper()
	kv, err := openKV(fsys, path, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	return kv
}

func TestKVSurvivesRestart(t *testing.T) {
	path := filepath.Join(t.TempDir(), "sub", "kvConfig.json")
	kv := openTestKV(t, segment.OS(), path)
	for _, s := range [][3]string{{"ns", "a", "1"}, {"ns", "b", "zwei – 2"}, {"other", "a", "3"}, {"ns", "a", "4"}} {
		if err := kv.put(s[0], s[1], s[2]); err != nil {
			t.Fatal(err)
		}
	}
	if err := kv.remove("ns", "b"); err != nil {
		t.Fatal(err)
	}
	for _, k := range []*kvConfig{kv, openTestKV(t, segment.OS(), path)} {
		if v, ok := k.get("ns", "a"); v != "4" || !ok {
			t.Errorf("a is %q %v", v, ok)
		}
		if _, ok := k.get("ns", "b"); ok {
			t.Error("b is still there")
		}
		if m, ok := k.list("other"); !ok || m["a"] != "3" {
			t.Errorf("list %v %v", m, ok)
		}
		if _, ok := k.list("none"); ok {
			t.Error("a namespace that was never set")
		}
	}
}

func TestKVReadsApachesFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kvConfig.json")
	if err := os.WriteFile(path, []byte(`{"configTable":{"ORDER_TOPIC_CONFIG":{"t":"broker-a:4"}}}`), 0o600); err != nil {
		t.Fatal(err)
	}
	if v, _ := openTestKV(t, segment.OS(), path).get(orderNamespace, "t"); v != "broker-a:4" {
		t.Errorf("%q", v)
	}
}

func TestKVDamagedFileIsNotReplaced(t *testing.T) {
	path := filepath.Join(t.TempDir(), "kvConfig.json")
	if err := os.WriteFile(path, []byte(`{"configTable":{"ns":`), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openKV(segment.OS(), path, slog.New(slog.DiscardHandler)); !errors.Is(err, segment.ErrStateLost) {
		t.Errorf("%v", err)
	}
}

// TestKVFailedSaveChangesNothing: a setting that is not durable is not shown.
func TestKVFailedSaveChangesNothing(t *testing.T) {
	dir := t.TempDir()
	path := filepath.Join(dir, "kvConfig.json")
	kv := openTestKV(t, segment.OS(), path)
	if err := kv.put("ns", "a", "1"); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(path+".tmp", 0o700); err != nil { // in the way of the new file
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(path+".tmp", "x"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := kv.put("ns", "a", "2"); err == nil {
		t.Fatal("saved over a directory")
	}
	if v, _ := kv.get("ns", "a"); v != "1" {
		t.Errorf("shown %q, saved 1", v)
	}
}

func TestKVRefusesBadSettings(t *testing.T) { // fault F59
	kv := openTestKV(t, segment.OS(), "")
	for _, name := range []string{"", ".", "..", "../x", "/etc/x", "a/b", `a\b`, "a\x00b", "ключ", strings.Repeat("x", 256)} {
		if kv.put(name, "k", "v") == nil || kv.put("ns", name, "v") == nil {
			t.Errorf("%q was taken", name)
		}
	}
	if kv.put("ns", "k", strings.Repeat("v", maxValueLen+1)) == nil || kv.put("ns", "k", "\xff") == nil {
		t.Error("a bad value was taken")
	}
	if len(*kv.table.Load()) != 0 {
		t.Errorf("left: %v", *kv.table.Load())
	}
	value := strings.Repeat("v", maxValueLen)
	for i := 0; ; i++ {
		if err := kv.put("ns", "k"+strings.Repeat("x", i), value); err != nil {
			break
		}
		if i > maxKVBytes/maxValueLen {
			t.Fatal("no end of settings")
		}
	}
}
