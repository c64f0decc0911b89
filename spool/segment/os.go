package segment

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"
)

// ErrLocked tells that another process, or another opener in this one, holds
// a lock file.
var ErrLocked = errors.New("locked by another process")

// OS returns the operating system's file system.
func OS() FS { return osFS{} }

type osFS struct{}

const (
	fileMode = 0o644
	dirMode  = 0o755
)

func (osFS) Create(name string) (File, error) {
	return openFile(name, os.O_RDWR|os.O_CREATE|os.O_EXCL)
}

func (osFS) Open(name string) (File, error) { return openFile(name, os.O_RDWR) }

func openFile(name string, flag int) (File, error) {
	f, err := os.OpenFile(name, flag, fileMode)
	if err != nil {
		return nil, err
	}
	return osFile{f}, nil
}

func (osFS) ReadFile(name string) ([]byte, error)      { return os.ReadFile(name) }
func (osFS) Rename(oldName, newName string) error      { return os.Rename(oldName, newName) }
func (osFS) Remove(name string) error                  { return os.Remove(name) }
func (osFS) RemoveAll(name string) error               { return os.RemoveAll(name) }
func (osFS) MkdirAll(dir string) error                 { return os.MkdirAll(dir, dirMode) }
func (osFS) ReadDir(dir string) ([]fs.DirEntry, error) { return os.ReadDir(dir) }
func (osFS) Stat(name string) (fs.FileInfo, error)     { return os.Stat(name) }

func (osFS) SyncDir(dir string) error {
	d, err := os.Open(dir)
	if err != nil {
		return err
	}
	err = d.Sync()
	return errors.Join(err, d.Close())
}

func (osFS) Space(dir string) (free, total int64, err error) {
	var st unix.Statfs_t
	if err := unix.Statfs(dir, &st); err != nil {
		return 0, 0, fmt.Errorf("statfs %s: %w", dir, err)
	}
	// Field types differ between architectures.
	block := int64(st.Bsize)
	return int64(st.Bavail) * block, int64(st.Blocks) * block, nil
}

func (osFS) Lock(name string) (io.Closer, error) {
	f, err := os.OpenFile(name, os.O_RDWR|os.O_CREATE, fileMode)
	if err != nil {
		return nil, err
	}
	if err := lockFile(f); err != nil {
		_ = f.Close()
		if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
			err = ErrLocked
		}
		return nil, fmt.Errorf("lock %s: %w", name, err)
	}
	return f, nil
}

type osFile struct{ *os.File }

func (f osFile) Sync() error {
	if err := syncData(f.File); err != nil {
		return &fs.PathError{Op: "fdatasync", Path: f.Name(), Err: err}
	}
	return nil
}

func (f osFile) Size() (int64, error) {
	fi, err := f.Stat()
	if err != nil {
		return 0, err
	}
	return fi.Size(), nil
}

func (f osFile) Allocated() (int64, error) {
	var st unix.Stat_t
	if err := unix.Fstat(int(f.Fd()), &st); err != nil {
		return 0, &fs.PathError{Op: "fstat", Path: f.Name(), Err: err}
	}
	// st_blocks counts 512-byte units whatever the block size is.
	return int64(st.Blocks) * 512, nil
}

func (f osFile) Map(size int64) ([]byte, error) {
	m, err := mmap.MapRegion(f.File, int(size), mmap.RDONLY, 0, 0)
	if err != nil {
		return nil, &fs.PathError{Op: "mmap", Path: f.Name(), Err: err}
	}
	return m, nil
}

func (osFS) Unmap(data []byte) error {
	m := mmap.MMap(data)
	return m.Unmap()
}
