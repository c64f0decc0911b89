package faultfs

import (
	"errors"
	"io/fs"
	"path/filepath"
	"sort"
	"strings"

	"github.com/sluicemq/sluice/spool/segment"
)

// scan takes in what is under the root.
func (f *FS) scan() error {
	return filepath.WalkDir(f.root, func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		if d.IsDir() {
			f.durable[path] = nil
			return nil
		}
		f.durable[path] = &inode{source: path}
		return nil
	})
}

// change makes a change of names visible and pending. Called with mu held.
func (f *FS) change(op nameOp) {
	for n, in := range op.set {
		f.names[n] = in
	}
	for _, n := range op.del {
		delete(f.names, n)
	}
	f.pending = append(f.pending, op)
}

// Create implements segment.FS.
func (f *FS) Create(name string) (segment.File, error) {
	if ft := f.before(Op{Kind: Create, Name: name}); ft != nil {
		return nil, ft.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := f.real.Create(name)
	if err != nil {
		return nil, err
	}
	in := &inode{loaded: true}
	f.change(nameOp{dirs: []string{filepath.Dir(name)}, set: map[string]*inode{name: in}})
	return &handle{File: file, fs: f, in: in, name: name}, nil
}

// Open implements segment.FS.
func (f *FS) Open(name string) (segment.File, error) {
	f.mu.Lock()
	defer f.mu.Unlock()
	file, err := f.real.Open(name)
	if err != nil {
		return nil, err
	}
	in := f.names[name]
	if in == nil {
		return nil, errors.Join(errors.New("faultfs: unknown file "+name), file.Close())
	}
	if err := in.load(); err != nil {
		return nil, errors.Join(err, file.Close())
	}
	return &handle{File: file, fs: f, in: in, name: name}, nil
}

// Rename implements segment.FS.
func (f *FS) Rename(oldName, newName string) error {
	if ft := f.before(Op{Kind: Rename, Name: oldName}); ft != nil {
		return ft.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	in := f.names[oldName]
	if in != nil {
		if err := in.load(); err != nil { // its source moves
			return err
		}
	}
	if err := f.real.Rename(oldName, newName); err != nil {
		return err
	}
	f.change(nameOp{
		dirs: []string{filepath.Dir(oldName), filepath.Dir(newName)},
		set:  map[string]*inode{newName: in}, del: []string{oldName},
	})
	return nil
}

// Remove implements segment.FS.
func (f *FS) Remove(name string) error {
	if ft := f.before(Op{Kind: Remove, Name: name}); ft != nil {
		return ft.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	return f.remove(name)
}

func (f *FS) remove(name string) error {
	if in := f.names[name]; in != nil {
		if err := in.load(); err != nil {
			return err
		}
	}
	if err := f.real.Remove(name); err != nil {
		return err
	}
	f.change(nameOp{dirs: []string{filepath.Dir(name)}, del: []string{name}})
	return nil
}

// RemoveAll implements segment.FS. Each name goes in a step of its own.
func (f *FS) RemoveAll(name string) error {
	if ft := f.before(Op{Kind: RemoveAll, Name: name}); ft != nil {
		return ft.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	var names []string
	for n := range f.names {
		if n == name || strings.HasPrefix(n, name+string(filepath.Separator)) {
			names = append(names, n)
		}
	}
	// What is inside goes before what it is in.
	sort.Sort(sort.Reverse(sort.StringSlice(names)))
	for _, n := range names {
		if err := f.remove(n); err != nil {
			return err
		}
	}
	return nil
}

// MkdirAll implements segment.FS.
func (f *FS) MkdirAll(dir string) error {
	f.mu.Lock()
	_, there := f.names[dir]
	f.mu.Unlock()
	if there {
		return nil
	}
	if ft := f.before(Op{Kind: Mkdir, Name: dir}); ft != nil {
		return ft.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if err := f.real.MkdirAll(dir); err != nil {
		return err
	}
	var made []string
	for d := dir; strings.HasPrefix(d, f.root); d = filepath.Dir(d) {
		if _, there := f.names[d]; there {
			break
		}
		made = append(made, d)
	}
	for i := len(made) - 1; i >= 0; i-- {
		f.change(nameOp{dirs: []string{filepath.Dir(made[i])}, set: map[string]*inode{made[i]: nil}})
	}
	return nil
}

// SyncDir implements segment.FS: all changes up to the last one in dir become
// durable.
func (f *FS) SyncDir(dir string) error {
	if ft := f.before(Op{Kind: SyncDir, Name: dir}); ft != nil {
		return ft.Err
	}
	f.mu.Lock()
	defer f.mu.Unlock()
	if _, there := f.names[dir]; !there {
		return &fs.PathError{Op: "open", Path: dir, Err: fs.ErrNotExist}
	}
	n := 0
	for i, op := range f.pending {
		for _, d := range op.dirs {
			if d == dir {
				n = i + 1
			}
		}
	}
	for _, op := range f.pending[:n] {
		op.apply(f.durable)
	}
	f.pending = append([]nameOp(nil), f.pending[n:]...)
	return nil
}

func (op *nameOp) apply(names map[string]*inode) {
	for n, in := range op.set {
		names[n] = in
	}
	for _, n := range op.del {
		delete(names, n)
	}
}
