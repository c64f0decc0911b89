package statefile_test

import (
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"sync"

	"github.com/sluicemq/sluice/spool/segment"
)

var errPower = errors.New("power is out")
var errFault = errors.New("injected fault")

// fakeFS is a directory in memory that knows what a power cut would leave. File
// bytes are durable after Sync; names are durable after SyncDir, and before
// that each change of a name may or may not have reached the disk.
type fakeFS struct {
	segment.FS // what these tests do not call

	mu      sync.Mutex
	names   map[string]*inode // as programs see them
	durable map[string]*inode // as of the last SyncDir
	pending []nameChange      // since then

	calls   int
	crashAt int // this call and all later ones fail; 0 is never
	faultAt int // only this call fails

	unreadable string // name of a file that gives errors
}

type inode struct{ data, synced []byte }

type nameChange func(names map[string]*inode)

func newFakeFS() *fakeFS {
	return &fakeFS{names: map[string]*inode{}, durable: map[string]*inode{}}
}

// step counts one call that reaches the disk.
func (f *fakeFS) step() error {
	f.calls++
	switch {
	case f.crashAt > 0 && f.calls >= f.crashAt:
		return errPower
	case f.calls == f.faultAt:
		return errFault
	}
	return nil
}

func (f *fakeFS) change(c nameChange) {
	c(f.names)
	f.pending = append(f.pending, c)
}

func (f *fakeFS) Create(name string) (segment.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step(); err != nil {
		return nil, err
	}
	if f.names[name] != nil {
		return nil, fs.ErrExist
	}
	node := &inode{}
	f.change(func(n map[string]*inode) { n[name] = node })
	return &fakeFile{fs: f, node: node}, nil
}

func (f *fakeFS) ReadFile(name string) ([]byte, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	if name == f.unreadable {
		return nil, errFault
	}
	node := f.names[name]
	if node == nil {
		return nil, &fs.PathError{Op: "open", Path: name, Err: fs.ErrNotExist}
	}
	return slices.Clone(node.data), nil
}

func (f *fakeFS) Rename(from, to string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step(); err != nil {
		return err
	}
	node := f.names[from]
	if node == nil {
		return fs.ErrNotExist
	}
	f.change(func(n map[string]*inode) {
		n[to] = node
		if n[from] == node {
			delete(n, from)
		}
	})
	return nil
}

func (f *fakeFS) Remove(name string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step(); err != nil {
		return err
	}
	if f.names[name] == nil {
		return fs.ErrNotExist
	}
	f.change(func(n map[string]*inode) { delete(n, name) })
	return nil
}

func (f *fakeFS) SyncDir(dir string) error {
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.step(); err != nil {
		return err
	}
	if dir != filepath.Dir(path) {
		return fs.ErrNotExist
	}
	f.durable, f.pending = maps.Clone(f.names), nil
	return nil
}

// afterPowerCut returns each directory that a power cut now may leave: any
// subset of the pending name changes, with synced bytes only or with all bytes.
func (f *fakeFS) afterPowerCut() []*fakeFS {
	var left []*fakeFS
	for subset := range 1 << len(f.pending) {
		for _, flushed := range []bool{false, true} {
			names := maps.Clone(f.durable)
			for i, change := range f.pending {
				if subset&(1<<i) != 0 {
					change(names)
				}
			}
			disk := newFakeFS()
			for name, node := range names {
				data := node.synced
				if flushed {
					data = node.data
				}
				disk.names[name] = &inode{data: slices.Clone(data), synced: slices.Clone(data)}
			}
			disk.durable = maps.Clone(disk.names)
			left = append(left, disk)
		}
	}
	return left
}

func (f *fakeFS) put(name, text string) {
	f.names[name] = &inode{data: []byte(text), synced: []byte(text)}
	f.durable[name] = f.names[name]
}

type fakeFile struct {
	segment.File
	fs   *fakeFS
	node *inode
}

func (f *fakeFile) WriteAt(p []byte, off int64) (int, error) {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	err := f.fs.step()
	if err != nil {
		p = p[:len(p)/2] // a short write
	}
	f.node.data = append(f.node.data[:off], p...)
	return len(p), err
}

func (f *fakeFile) Sync() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	if err := f.fs.step(); err != nil {
		return err
	}
	f.node.synced = slices.Clone(f.node.data)
	return nil
}

func (f *fakeFile) Close() error {
	f.fs.mu.Lock()
	defer f.fs.mu.Unlock()
	return f.fs.step()
}
