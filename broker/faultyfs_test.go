package broker

import (
	"strings"
	"sync/atomic"

	"github.com/sluicemq/sluice/spool/segment"
)

// faultyFS is the operating system's file system with a say in every call that
// changes a file.
type faultyFS struct {
	segment.FS
	// fault (may be unset) is asked before each call; it may block. A write
	// that it fails leaves half of its bytes behind.
	fault atomic.Pointer[func(op, name string) error]
}

func newFaultyFS() *faultyFS { return &faultyFS{FS: segment.OS()} }

// set replaces the fault; nil ends all faults.
func (f *faultyFS) set(fault func(op, name string) error) {
	if fault == nil {
		f.fault.Store(nil)
		return
	}
	f.fault.Store(&fault)
}

func (f *faultyFS) ask(op, name string) error {
	if fault := f.fault.Load(); fault != nil {
		return (*fault)(op, name)
	}
	return nil
}

func (f *faultyFS) Create(name string) (segment.File, error) {
	if err := f.ask("create", name); err != nil {
		return nil, err
	}
	file, err := f.FS.Create(name)
	return f.wrap(file, name, err)
}

func (f *faultyFS) Open(name string) (segment.File, error) {
	file, err := f.FS.Open(name)
	return f.wrap(file, name, err)
}

func (f *faultyFS) wrap(file segment.File, name string, err error) (segment.File, error) {
	if err != nil {
		return nil, err
	}
	return &faultyFile{File: file, fs: f, name: name}, nil
}

func (f *faultyFS) Rename(from, to string) error {
	if err := f.ask("rename", to); err != nil {
		return err
	}
	return f.FS.Rename(from, to)
}

func (f *faultyFS) SyncDir(dir string) error {
	if err := f.ask("syncdir", dir); err != nil {
		return err
	}
	return f.FS.SyncDir(dir)
}

type faultyFile struct {
	segment.File
	fs   *faultyFS
	name string
}

func (f *faultyFile) WriteAt(p []byte, off int64) (int, error) {
	if err := f.fs.ask("write", f.name); err != nil {
		n, _ := f.File.WriteAt(p[:len(p)/2], off)
		return n, err
	}
	return f.File.WriteAt(p, off)
}

func (f *faultyFile) Sync() error {
	if err := f.fs.ask("sync", f.name); err != nil {
		return err
	}
	return f.File.Sync()
}

// inLog says whether a file is one of the commit log.
func inLog(name string) bool { return strings.Contains(name, "commitlog") }
