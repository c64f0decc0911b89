// Package faultfs is a file system for tests of the storage engine. It works
// on real files, so that they can be mapped, and can make any call fail, and
// show at any moment what a power cut would leave on disk.
//
// The model of a power cut, stricter than most disks and file systems:
//
//   - A file's bytes are durable once Sync of it returned. Of later writes any
//     subset of 512-byte sectors, or of 4096-byte pages, may have arrived, each
//     in any version that it went through.
//   - Names are durable once SyncDir of their directory returned. Later
//     changes have arrived up to some point, in order, as with a journal.
//     Sync of a file says nothing about its name.
//   - A Sync that failed loses what it should have written: a later one does
//     not bring it to disk, although reads still see it.
package faultfs

import (
	"io"
	"io/fs"
	"sync"

	"github.com/sluicemq/sluice/spool/segment"
)

// A Kind is a kind of call.
type Kind string

// The calls that can be observed and made to fail.
const (
	Create    Kind = "create"
	Write     Kind = "write"
	Sync      Kind = "sync"
	Truncate  Kind = "truncate"
	Map       Kind = "map"
	Read      Kind = "read"
	Rename    Kind = "rename"
	Remove    Kind = "remove"
	RemoveAll Kind = "removeall"
	Mkdir     Kind = "mkdir"
	SyncDir   Kind = "syncdir"
)

// An Op is one call about to happen.
type Op struct {
	N    int // number of calls before this one
	Kind Kind
	Name string // path; of Rename the old one
	Off  int64  // of Write
	Len  int    // of Write
}

// A Fault says how a call fails.
type Fault struct {
	Err error
	// Written is how many bytes a Write writes before it fails.
	Written int
}

// FS is a segment.FS. Its zero value is not usable.
type FS struct {
	real segment.FS
	root string

	hookMu sync.RWMutex
	hook   func(Op) *Fault

	mu      sync.Mutex
	ops     int
	names   map[string]*inode // as processes see them; directories are nil
	durable map[string]*inode // as they were at the last SyncDir
	pending []nameOp          // changes since
	free    int64             // what Space answers, -1 for the real figure
}

// A nameOp is one change of names, which happens as a whole or not at all.
type nameOp struct {
	dirs []string
	set  map[string]*inode
	del  []string
}

// New returns a file system for the files under root, whatever is there being
// durable.
func New(root string) (*FS, error) {
	f := &FS{real: segment.OS(), root: root, durable: make(map[string]*inode), free: -1}
	if err := f.scan(); err != nil {
		return nil, err
	}
	f.names = make(map[string]*inode, len(f.durable))
	for n, in := range f.durable {
		f.names[n] = in
	}
	return f, nil
}

// SetHook makes hook see every call before it happens, and decide its failure.
// It may block. nil removes it.
func (f *FS) SetHook(hook func(Op) *Fault) {
	f.hookMu.Lock()
	defer f.hookMu.Unlock()
	f.hook = hook
}

// SetFree makes Space answer that many free bytes of 1 TB; -1 the truth.
func (f *FS) SetFree(n int64) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.free = n
}

// Ops is the number of calls so far.
func (f *FS) Ops() int {
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.ops
}

// before reports a call to the hook.
func (f *FS) before(op Op) *Fault {
	f.mu.Lock()
	op.N = f.ops
	f.ops++
	f.mu.Unlock()
	f.hookMu.RLock()
	hook := f.hook
	f.hookMu.RUnlock()
	if hook == nil {
		return nil
	}
	return hook(op)
}

// Space implements segment.FS.
func (f *FS) Space(dir string) (free, total int64, err error) {
	f.mu.Lock()
	n := f.free
	f.mu.Unlock()
	if n >= 0 {
		return n, 1e12, nil
	}
	return f.real.Space(dir)
}

// ReadFile implements segment.FS.
func (f *FS) ReadFile(name string) ([]byte, error) {
	if ft := f.before(Op{Kind: Read, Name: name}); ft != nil {
		return nil, ft.Err
	}
	return f.real.ReadFile(name)
}

// ReadDir implements segment.FS.
func (f *FS) ReadDir(dir string) ([]fs.DirEntry, error) { return f.real.ReadDir(dir) }

// Stat implements segment.FS.
func (f *FS) Stat(name string) (fs.FileInfo, error) { return f.real.Stat(name) }

// Unmap implements segment.FS.
func (f *FS) Unmap(data []byte) error { return f.real.Unmap(data) }

// Lock implements segment.FS. Lock files are not part of the model.
func (f *FS) Lock(name string) (io.Closer, error) { return f.real.Lock(name) }
