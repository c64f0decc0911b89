package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"golang.org/x/sys/unix"
)

func syncData(f *os.File) error {
	for {
		err := unix.Fdatasync(int(f.Fd()))
		if err != unix.EINTR {
			return err
		}
	}
}

// FillZeros writes zeros past the page cache (O_DIRECT). offset and size must be multiples of the page size.
func (f osFile) FillZeros(offset, size int64) error {
	direct, err := unix.Open(fmt.Sprintf("/proc/self/fd/%d", f.Fd()), unix.O_WRONLY|unix.O_DIRECT|unix.O_CLOEXEC, 0)
	if err != nil {
		return errors.ErrUnsupported // tmpfs, and whatever has no /proc
	}
	defer unix.Close(direct)
	// A private mapping that was never written to is one page of zeros, aligned
	// as the device wants it, however long it is.
	zeros, err := unix.Mmap(-1, 0, int(size), unix.PROT_READ, unix.MAP_ANON|unix.MAP_PRIVATE)
	if err != nil {
		return errors.ErrUnsupported
	}
	defer func() { _ = unix.Munmap(zeros) }()
	for done := int64(0); done < size; {
		n, err := unix.Pwrite(direct, zeros[done:], offset+done)
		switch {
		case err == unix.EINTR:
		case err == unix.EINVAL && done == 0:
			return errors.ErrUnsupported // a device with larger blocks than pages
		case err != nil:
			return &fs.PathError{Op: "write", Path: f.Name(), Err: err}
		case n == 0:
			return &fs.PathError{Op: "write", Path: f.Name(), Err: io.ErrShortWrite}
		}
		done += int64(max(n, 0))
	}
	return nil
}

// lockFile locks byte 0, as RocketMQ's store does, so that a Java broker on
// the same directory is kept out too. An open-file-description lock also
// excludes a second opener in this process, which a POSIX lock does not.
func lockFile(f *os.File) error {
	lk := unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Start: 0, Len: 1}
	return unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &lk)
}
