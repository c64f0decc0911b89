package configs

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// watched runs Watch on a file and gives the tests what it reports.
type watched struct {
	t       *testing.T
	file    string
	reports chan report
	hurry   chan os.Signal
	refuse  error // what apply returns
	levels  []string
}

type report struct {
	changed []string
	err     error
}

func watch(t *testing.T, file string, refuse error) *watched {
	t.Helper()
	w := &watched{t: t, file: file, reports: make(chan report, 16), hurry: make(chan os.Signal), refuse: refuse}
	l := Loader{File: file}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error)
	running := load(t, l)
	go func() {
		done <- Watch(ctx, Watcher{Loader: l, Running: running, Hurry: w.hurry, Report: func(changed []string, err error) {
			w.reports <- report{changed, err}
		}}, func(old, new *Config) error {
			w.levels = append(w.levels, old.Log.Level+">"+new.Log.Level)
			return w.refuse
		})
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	// A reload by hand answers only when the watch is on.
	w.hurry <- os.Interrupt
	if r := w.next(); r.err != nil || len(r.changed) > 0 {
		t.Fatalf("reload without a change: %v", r)
	}
	return w
}

func (w *watched) next() report {
	w.t.Helper()
	select {
	case r := <-w.reports:
		return r
	case <-time.After(10 * time.Second):
		w.t.Fatal("no reload within 10 s")
		return report{}
	}
}

// replace writes a file as editors do: beside it, then renamed over it.
func replace(t *testing.T, file, text string) {
	t.Helper()
	if err := os.WriteFile(file+"~", []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Rename(file+"~", file); err != nil {
		t.Fatal(err)
	}
}

func TestWatchAppliesWhatMayChange(t *testing.T) {
	w := watch(t, write(t, "log: {level: info}\n"), nil)
	replace(t, w.file, "log: {level: debug}\n")
	if r := w.next(); r.err != nil || !reflect.DeepEqual(r.changed, []string{"log.level"}) {
		t.Fatalf("got %v", r)
	}
	if err := os.WriteFile(w.file, []byte("log: {level: warn}\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	if r := w.next(); r.err != nil {
		t.Fatalf("got %v", r)
	}
	if !reflect.DeepEqual(w.levels, []string{"info>debug", "debug>warn"}) {
		t.Errorf("applied %v", w.levels)
	}
}

func TestWatchRefusesTheWholeReload(t *testing.T) {
	w := watch(t, write(t, "log: {level: info}\ndata: /a\n"), nil)
	replace(t, w.file, "log: {level: debug}\ndata: /b\n")
	r := w.next()
	refused, ok := errors.AsType[*RefusedError](r.err)
	if !ok || refused.Key != "data" || refused.Kept != "/a" || refused.Asked != "/b" || refused.Origin.Line != 2 {
		t.Fatalf("got %+v", r.err)
	}
	replace(t, w.file, "log: {levl: debug}\ndata: /a\n")
	if r := w.next(); r.err == nil || !strings.Contains(r.err.Error(), "log.level") {
		t.Fatalf("got %v", r)
	}
	replace(t, w.file, "\n")
	if r := w.next(); r.err == nil || !strings.Contains(r.err.Error(), "is empty") {
		t.Fatalf("got %v", r)
	}
	if len(w.levels) > 0 {
		t.Errorf("applied %v", w.levels)
	}
	replace(t, w.file, "log: {level: error}\ndata: /a\n")
	if r := w.next(); r.err != nil {
		t.Fatalf("got %v", r)
	}
	if !reflect.DeepEqual(w.levels, []string{"info>error"}) {
		t.Errorf("applied %v", w.levels)
	}
}

func TestWatchKeepsTheOldWhenApplyFails(t *testing.T) {
	w := watch(t, write(t, "log: {level: info}\n"), errors.New("no"))
	replace(t, w.file, "log: {level: debug}\n")
	if r := w.next(); r.err == nil {
		t.Fatal("no error")
	}
	replace(t, w.file, "log: {level: warn}\n")
	w.next()
	if !reflect.DeepEqual(w.levels, []string{"info>debug", "info>warn"}) {
		t.Errorf("applied %v", w.levels)
	}
}

// TestWatchFollowsSymlinkSwap swaps a directory behind a symbolic link, as Kubernetes does with
// a ConfigMap: the file itself sees no event.
func TestWatchFollowsSymlinkSwap(t *testing.T) {
	dir := t.TempDir()
	version := func(name, text string) {
		if err := os.Mkdir(filepath.Join(dir, name), 0o700); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name, "sluice.yaml"), []byte(text), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	link := func(target, name string) {
		if err := os.Symlink(target, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	version("..v1", "log: {level: info}\n")
	version("..v2", "log: {level: debug}\n")
	link("..v1", "..data")
	link("..data/sluice.yaml", "sluice.yaml")
	w := watch(t, filepath.Join(dir, "sluice.yaml"), nil)
	link("..v2", "..data_tmp")
	if err := os.Rename(filepath.Join(dir, "..data_tmp"), filepath.Join(dir, "..data")); err != nil {
		t.Fatal(err)
	}
	if r := w.next(); r.err != nil || len(r.changed) != 1 {
		t.Fatalf("got %v", r)
	}
}

func TestRefusedReloadCountsFurtherKeys(t *testing.T) {
	old := load(t, Loader{})
	next := load(t, Loader{Set: []string{"roles=broker", "broker.name=b", "log.level=warn"}})
	refused, ok := errors.AsType[*RefusedError](CheckReload(old, next))
	if !ok || refused.Key != "roles" || refused.AlsoFixed != 1 {
		t.Fatalf("got %+v", refused)
	}
	if err := CheckReload(old, load(t, Loader{Set: []string{"log.level=warn"}})); err != nil {
		t.Errorf("got %v", err)
	}
}

// TestReloadableKeysExist finds entries of the table that no key matches.
func TestReloadableKeysExist(t *testing.T) {
	for _, pattern := range reloadable {
		found := false
		newSchema().walk("", func(key string, n *node) {
			found = found || matchesKey(pattern, key)
			if n.kind == list {
				n.element.walk(key, func(key string, _ *node) { found = found || matchesKey(pattern, key) })
			}
		})
		if !found {
			t.Errorf("no key matches %s", pattern)
		}
	}
}

// After a refusal, that the file is as the process runs is news: someone has mended it.
func TestMendedFileIsReported(t *testing.T) {
	const good = "log: {level: warn}\n"
	file := write(t, good)
	w := watch(t, file, nil)
	replace(t, file, "lgo: {}\n")
	if r := w.next(); r.err == nil {
		t.Fatal("an unknown key is taken")
	}
	replace(t, file, good)
	if r := w.next(); r.err != nil || len(r.changed) > 0 {
		t.Fatalf("the mended file: %v", r)
	}
}
