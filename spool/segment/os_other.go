//go:build unix && !linux

package segment

import (
	"os"

	"golang.org/x/sys/unix"
)

func syncData(f *os.File) error { return f.Sync() }

func lockFile(f *os.File) error {
	return unix.Flock(int(f.Fd()), unix.LOCK_EX|unix.LOCK_NB)
}
