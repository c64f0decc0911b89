package main

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// TestRunTellsSystemd is a service manager that listens to one start and stop.
func TestRunTellsSystemd(t *testing.T) {
	path := filepath.Join(t.TempDir(), "notify")
	socket, err := net.ListenUnixgram("unixgram", &net.UnixAddr{Name: path, Net: "unixgram"})
	if err != nil {
		t.Fatal(err)
	}
	defer socket.Close()
	t.Setenv("NOTIFY_SOCKET", path)
	next := func() string {
		t.Helper()
		var b [256]byte
		if err := socket.SetReadDeadline(time.Now().Add(10 * time.Second)); err != nil {
			t.Fatal(err)
		}
		n, err := socket.Read(b[:])
		if err != nil {
			t.Fatal(err)
		}
		return string(b[:n])
	}
	r := startAll(t, t.TempDir())
	if got := next(); got != "READY=1" {
		t.Errorf("got %q", got)
	}
	if code := r.stop(); code != exitOK {
		t.Errorf("exit %d", code)
	}
	if got := next(); got != "STOPPING=1" {
		t.Errorf("got %q", got)
	}
}
