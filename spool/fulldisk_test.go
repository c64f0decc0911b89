package spool_test

import (
	"context"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// smallDisk mounts a file system of its own, of 64 MiB.
func smallDisk(t *testing.T) string {
	t.Helper()
	if os.Getuid() != 0 {
		t.Skip("needs root to mount a small disk")
	}
	image, dir := filepath.Join(t.TempDir(), "image"), t.TempDir()
	if err := os.WriteFile(image, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Truncate(image, 64<<20); err != nil {
		t.Fatal(err)
	}
	for _, command := range [][]string{{"mkfs.ext4", "-q", "-F", image}, {"mount", "-o", "loop", image, dir}} {
		if out, err := exec.Command(command[0], command[1:]...).CombinedOutput(); err != nil {
			t.Skipf("%v: %v: %s", command, err, out)
		}
	}
	t.Cleanup(func() {
		if out, err := exec.Command("umount", dir).CombinedOutput(); err != nil {
			t.Errorf("umount: %v: %s", err, out)
		}
	})
	return dir
}

// hog takes all the space that is left, as another program would.
func hog(t *testing.T, path string) {
	t.Helper()
	f, err := os.Create(path)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for size := 1 << 20; size > 0; {
		if _, err := f.Write(make([]byte, size)); errors.Is(err, syscall.ENOSPC) {
			size /= 2
		} else if err != nil {
			t.Fatal(err)
		}
	}
}

// eventually asks again and again: what is waited for is another process's doing,
// the kernel's, and has no event.
func eventually(t *testing.T, what string, done func() bool) {
	t.Helper()
	tick := time.NewTicker(20 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(30 * time.Second); ; {
		select {
		case <-late:
			t.Fatalf("no %s", what)
		case <-tick.C:
		}
		if done() {
			return
		}
	}
}

// A disk without a free byte refuses messages, stops, is opened again, and takes
// messages again once the lanes have forwarded what is on it.
func TestFullDiskIsLeftAgain(t *testing.T) {
	disk := smallDisk(t)
	options := spool.Options{Dir: filepath.Join(disk, "spool"), SegmentBytes: 4 << 20, KeepUnread: true}
	run := func() (s *spool.Spool, stop func() error) {
		s, err := spool.Open(options)
		if err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithCancel(context.Background())
		ended := make(chan error, 1)
		go func() { ended <- s.Run(ctx) }()
		return s, func() error { cancel(); return <-ended }
	}
	var batch spool.Batch
	send := func(s *spool.Spool) error {
		batch.Reset()
		if _, err := batch.Add(s.Queue("t", 0), &message.Message{Body: make([]byte, 200<<10)}); err != nil {
			t.Fatal(err)
		}
		if err := s.Append(&batch); err != nil {
			return err
		}
		return s.WaitDurable(context.Background(), batch.End())
	}

	s, stop := run()
	_, err := s.Cursor("core", s.Queue("t", 0), 0)
	if err != nil {
		t.Fatal(err)
	}
	stored := int64(0)
	for ; err == nil; stored++ {
		if err = send(s); err != nil && !errors.Is(err, spool.ErrFull) {
			t.Fatal(err)
		}
	}
	stored--
	hog(t, filepath.Join(disk, "hog"))
	if err := stop(); err != nil {
		t.Fatalf("stop on a full disk: %v", err)
	}
	// The marker makes the next start recover as after a crash.
	if f, err := os.Create(filepath.Join(options.Dir, "abort")); err != nil {
		t.Fatal(err)
	} else if err := f.Close(); err != nil {
		t.Fatal(err)
	}

	s, stop = run()
	queue := s.Queue("t", 0)
	eventually(t, "message on the full disk is readable", func() bool { return queue.Max() == stored })
	if err := send(s); !errors.Is(err, spool.ErrFull) {
		t.Fatalf("a send to the full disk gives %v", err)
	}
	cursor, err := s.Cursor("core", queue, 0)
	if err != nil {
		t.Fatal(err)
	}
	cursor.Advance(stored)
	eventually(t, "room after everything was forwarded", func() bool { return send(s) == nil })
	if err := stop(); err != nil {
		t.Fatalf("stop: %v", err)
	}
}
