package segment_test

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/sluicemq/sluice/spool/segment"
)

// The next segment is filled whole before it is needed: every block is there, as
// zeros, in the file as well as in a mapping that was made before.
func TestIdleSegmentIsFilledWhole(t *testing.T) {
	dir := t.TempDir()
	q := load(t, dir, 0)
	defer q.Close()
	if ready, err := q.Prepare(false); !ready || err != nil {
		t.Fatalf("ready %v, %v", ready, err)
	}
	next := q.Next()
	if err := next.Acquire(); err != nil {
		t.Fatal(err)
	}
	defer next.Release()
	if next.Data()[size-1] != 0 {
		t.Fatal("a new segment does not read as zeros")
	}
	for did := true; did; {
		var err error
		if did, err = next.FillIdleStep(); err != nil {
			t.Fatal(err)
		}
	}
	path := filepath.Join(dir, "log", segment.FileName(size))
	f, err := segment.OS().Open(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if got, err := f.Allocated(); got < size || err != nil {
		t.Errorf("%d bytes of %d are allocated, %v", got, size, err)
	}
	// Appends behind the fill show in the old mapping.
	if _, err := next.WriteAt([]byte("record"), size+4096-3); err != nil {
		t.Fatal(err)
	}
	if got := string(next.Data()[4096-3 : 4096+3]); got != "record" {
		t.Errorf("the mapping shows %q", got)
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for i, c := range content {
		if c != 0 && (i < 4096-3 || i >= 4096+3) {
			t.Fatalf("byte %d is %d", i, c)
		}
	}
}
