package statefile_test

import (
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"slices"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/broker/statefile"
)

const path = "config/table.json"

type table struct {
	Rows map[string]map[int32]int64 `json:"rows"`
}

func (t *table) check() error {
	if t.Rows == nil {
		return errors.New("has no rows")
	}
	return nil
}

func rows(n int64) *table { return &table{Rows: map[string]map[int32]int64{"row": {0: n, 7: n}}} }

func open(f *fakeFS) *statefile.File[table] {
	return statefile.New(f, path, slog.New(slog.DiscardHandler), (*table).check)
}

// loaded opens the file as a process does that has just started.
func loaded(t *testing.T, f *fakeFS) (*statefile.File[table], int64) {
	t.Helper()
	file := open(f)
	state, err := file.Load()
	if err != nil {
		t.Fatalf("load: %v", err)
	}
	if state.Rows["row"][0] != state.Rows["row"][7] {
		t.Fatalf("loaded a mixture: %v", state.Rows)
	}
	return file, state.Rows["row"][0]
}

// saved returns a directory in which states 1 and 2 were saved in full.
func saved(t *testing.T) *fakeFS {
	t.Helper()
	disk := newFakeFS()
	file := open(disk)
	for n := range int64(2) {
		if err := file.Save(rows(n + 1)); err != nil {
			t.Fatal(err)
		}
	}
	return disk
}

// savedDir is saved, as seen by the next process.
func savedDir(t *testing.T) *fakeFS {
	disks := saved(t).afterPowerCut()
	if len(disks) != 2 {
		t.Fatalf("%d ways to lose a state that was saved, want only the bytes to vary", len(disks))
	}
	return disks[0]
}

func TestSaveSurvivesPowerCutAtEveryCall(t *testing.T) {
	cuts := 0
	for at := 1; ; at++ {
		disk := savedDir(t)
		file, _ := loaded(t, disk)
		disk.crashAt = at
		err := file.Save(rows(3))
		for _, left := range disk.afterPowerCut() {
			cuts++
			_, n := loaded(t, left)
			if n != 3 && (err == nil || n != 2) {
				t.Fatalf("power cut at call %d (save: %v): loaded state %d", at, err, n)
			}
		}
		if err == nil {
			break
		}
	}
	if cuts < 20 {
		t.Errorf("only %d power cuts tried", cuts)
	}
}

// A process that starts after a power cut saves again, and the power fails again.
func TestSaveSurvivesSecondPowerCut(t *testing.T) {
	for first := 1; ; first++ {
		disk := savedDir(t)
		file, _ := loaded(t, disk)
		disk.crashAt = first
		done := file.Save(rows(3)) == nil
		for _, left := range disk.afterPowerCut() {
			secondCut(t, left, first)
		}
		if done {
			return
		}
	}
}

func secondCut(t *testing.T, start *fakeFS, first int) {
	t.Helper()
	for second := 1; ; second++ {
		disk := start.afterPowerCut()[0]
		file, before := loaded(t, disk)
		disk.crashAt = second
		err := file.Save(rows(4))
		for _, left := range disk.afterPowerCut() {
			if _, n := loaded(t, left); n != 4 && (err == nil || n != before) {
				t.Fatalf("cuts at calls %d and %d: state %d was there, loaded %d", first, second, before, n)
			}
		}
		if err == nil {
			return
		}
	}
}

func TestFailedSaveKeepsOldOrNew(t *testing.T) {
	for at := 1; ; at++ {
		disk := savedDir(t)
		file, _ := loaded(t, disk)
		disk.faultAt = at
		err := file.Save(rows(3))
		if _, n := loaded(t, disk); n != 3 && n != 2 {
			t.Fatalf("fault at call %d: loaded state %d", at, n)
		}
		disk.faultAt = 0
		if again := file.Save(rows(4)); again != nil {
			t.Fatalf("save after the fault at call %d: %v", at, again)
		}
		if _, n := loaded(t, disk); n != 4 {
			t.Fatalf("after the fault at call %d: loaded state %d, want 4", at, n)
		}
		for name := range disk.names {
			if strings.HasSuffix(name, ".tmp") {
				t.Errorf("fault at call %d: %s is left", at, name)
			}
		}
		if err == nil {
			break
		}
		if !errors.Is(err, errFault) {
			t.Fatalf("fault at call %d: error %v hides its cause", at, err)
		}
	}
}

var damaged = map[string]string{
	"empty":     "",
	"blank":     " \n\t",
	"NUL bytes": strings.Repeat("\x00", 64),
	"half":      `{"rows":{"row":{0:1,7`,
	"no object": `null`,
	"no rows":   `{}`,
}

func TestLoadFallsBackToBackup(t *testing.T) {
	for name, text := range damaged {
		t.Run(name, func(t *testing.T) {
			disk := savedDir(t)
			disk.put(path, text)
			file, n := loaded(t, disk)
			if n != 1 {
				t.Fatalf("loaded state %d, want the backup's 1", n)
			}
			backup := slices.Clone(disk.names[path+".bak"].data)
			if err := file.Save(rows(5)); err != nil {
				t.Fatal(err)
			}
			if got := disk.names[path+".bak"].data; string(got) != string(backup) {
				t.Errorf("backup became %q; a damaged file must not replace it", got)
			}
			if _, n := loaded(t, disk); n != 5 {
				t.Errorf("loaded state %d, want 5", n)
			}
		})
	}
}

func TestLoadRefusesWhenBothAreDamaged(t *testing.T) {
	for name, text := range damaged {
		t.Run(name, func(t *testing.T) {
			disk := newFakeFS()
			disk.put(path, text)
			for _, backup := range []string{"", "{"} {
				if backup != "" {
					disk.put(path+".bak", backup)
				}
				_, err := open(disk).Load()
				if err == nil || errors.Is(err, fs.ErrNotExist) {
					t.Fatalf("load: %v, want a refusal that does not look like a first start", err)
				}
				if text := err.Error(); !strings.Contains(text, path+": ") || !strings.Contains(text, path+".bak: ") {
					t.Errorf("%q does not name both files", text)
				}
			}
		})
	}
}

// A file that cannot be read at the moment is no reason to go back to the one
// before it.
func TestLoadRefusesWhenTheFileCannotBeRead(t *testing.T) {
	disk := savedDir(t)
	disk.unreadable = path
	if _, err := open(disk).Load(); !errors.Is(err, errFault) {
		t.Errorf("load: %v, want %v", err, errFault)
	}
}

func TestLoadOfNothingIsNotExist(t *testing.T) {
	if _, err := open(newFakeFS()).Load(); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("load: %v, want fs.ErrNotExist", err)
	}
}

func TestLoadReadsApachesText(t *testing.T) {
	disk := newFakeFS()
	disk.put(path, "{\n\t\"rows\":{\n\t\t\"row\":{0:250,7:250\n\t\t}\n\t}\n}")
	if _, n := loaded(t, disk); n != 250 {
		t.Errorf("loaded %d, want 250", n)
	}
}

func TestSaveCleansUpAnOldTempFile(t *testing.T) {
	disk := savedDir(t)
	disk.put(path+".tmp", "left by a crash")
	file, _ := loaded(t, disk)
	if err := file.Save(rows(9)); err != nil {
		t.Fatal(err)
	}
	want := fmt.Sprint([]string{path, path + ".bak"})
	if got := fmt.Sprint(slices.Sorted(keys(disk.names))); got != want {
		t.Errorf("files %v, want %v", got, want)
	}
}

func keys(m map[string]*inode) func(func(string) bool) {
	return func(yield func(string) bool) {
		for k := range m {
			if !yield(k) {
				return
			}
		}
	}
}
