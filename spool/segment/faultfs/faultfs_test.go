package faultfs_test

import (
	"errors"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// After a power cut: synced bytes are there, of unsynced ones some or all or
// none, and names only as far as their directory was synced.
func TestCrash(t *testing.T) {
	root := filepath.Join(t.TempDir(), "root")
	if err := os.Mkdir(root, 0o755); err != nil {
		t.Fatal(err)
	}
	ffs, err := faultfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := ffs.Create(filepath.Join(root, "a"))
	if err != nil {
		t.Fatal(err)
	}
	write := func(text string, off int64) {
		if _, err := f.WriteAt([]byte(text), off); err != nil {
			t.Fatal(err)
		}
	}
	write(strings.Repeat("d", 1024), 0)
	if err := errors.Join(f.Sync(), ffs.SyncDir(root)); err != nil {
		t.Fatal(err)
	}
	write(strings.Repeat("u", 512), 512)
	if err := ffs.Rename(filepath.Join(root, "a"), filepath.Join(root, "b")); err != nil {
		t.Fatal(err)
	}
	seen := make(map[string]bool)
	for seed := range uint64(60) {
		dst := filepath.Join(t.TempDir(), "c")
		if err := ffs.Crash(rand.New(rand.NewPCG(seed, 0)), dst); err != nil {
			t.Fatal(err)
		}
		entries, err := os.ReadDir(dst)
		if err != nil || len(entries) != 1 {
			t.Fatalf("%d names: %v", len(entries), err)
		}
		data, err := os.ReadFile(filepath.Join(dst, entries[0].Name()))
		if err != nil || len(data) != 1024 || data[0] != 'd' || data[511] != 'd' || data[512] != data[1023] {
			t.Fatalf("%d bytes: %v", len(data), err)
		}
		seen[entries[0].Name()+string(data[512])] = true
	}
	if len(seen) != 4 {
		t.Errorf("outcomes %v, want each of two names with each of two contents", seen)
	}
}

// A failed Sync loses what it should have written, for good.
func TestFailedSyncLoses(t *testing.T) {
	root := t.TempDir()
	ffs, err := faultfs.New(root)
	if err != nil {
		t.Fatal(err)
	}
	f, err := ffs.Create(filepath.Join(root, "a"))
	if err != nil {
		t.Fatal(err)
	}
	if err := ffs.SyncDir(root); err != nil {
		t.Fatal(err)
	}
	if _, err := f.WriteAt([]byte("lost"), 0); err != nil {
		t.Fatal(err)
	}
	fail := errors.New("no")
	ffs.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Sync {
			return &faultfs.Fault{Err: fail}
		}
		return nil
	})
	if err := f.Sync(); !errors.Is(err, fail) {
		t.Fatalf("sync: %v", err)
	}
	ffs.SetHook(nil)
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
	for seed := range uint64(10) {
		dst := filepath.Join(t.TempDir(), "c")
		if err := ffs.Crash(rand.New(rand.NewPCG(seed, 0)), dst); err != nil {
			t.Fatal(err)
		}
		if data, err := os.ReadFile(filepath.Join(dst, "a")); err != nil || strings.Trim(string(data), "\x00") != "" {
			t.Errorf("after the crash: %q, %v", data, err)
		}
	}
}
