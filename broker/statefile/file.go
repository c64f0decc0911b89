// Package statefile keeps a broker's tables in JSON files that a power cut
// cannot empty.
//
// A File is replaced in steps of which each leaves a whole old or a whole new
// state behind:
//
//	write  <name>.tmp, fsync      a crash leaves <name> as it was
//	rename <name>     → .bak      a crash leaves .bak, which Load then reads
//	rename <name>.tmp → <name>    a crash leaves the new state
//	fsync  directory              from here the new state survives a power cut
//
// A Value puts a File behind an immutable value that is read without a lock and
// changed by group commit.
package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool/segment"
)

const (
	backupSuffix = ".bak"
	tempSuffix   = ".tmp"
)

// A File holds one state of type T as JSON text. Its methods must not run at the
// same time.
type File[T any] struct {
	fs    segment.FS
	path  string
	check func(*T) error
	// sound says that the file at path is whole: only such a file may become
	// the backup. A damaged one is replaced, and the backup stays as it is.
	sound bool
}

// New returns the File at path; it touches nothing. Check (may be nil) tells
// whether a decoded state is one: text such as "{}" decodes into every struct.
func New[T any](fsys segment.FS, path string, check func(*T) error) *File[T] {
	return &File[T]{fs: fsys, path: path, check: check}
}

// Load reads the last state that was saved, in strict JSON or in Apache's form
// with unquoted integer keys. It falls back to the backup when the file is
// missing or damaged. A state that was never saved gives fs.ErrNotExist; when
// something is there and none of it can be read, the error names both files and
// what is wrong with each.
func (f *File[T]) Load() (*T, error) {
	f.sound = false
	state, err := f.read(f.path)
	if err == nil {
		f.sound = true
		return state, nil
	}
	state, backupErr := f.read(f.path + backupSuffix)
	if backupErr == nil {
		return state, nil
	}
	if errors.Is(err, fs.ErrNotExist) && errors.Is(backupErr, fs.ErrNotExist) {
		return nil, fmt.Errorf("load %s: %w", f.path, fs.ErrNotExist)
	}
	// The reasons are text here: one of them may be "does not exist", which
	// must not make the whole look like a state that was never saved.
	return nil, fmt.Errorf("load state: %s: %v; %s: %v", f.path, err, f.path+backupSuffix, backupErr)
}

func (f *File[T]) read(path string) (*T, error) {
	data, err := f.fs.ReadFile(path)
	if err != nil {
		return nil, err
	}
	text := bytes.TrimSpace(data)
	switch {
	case len(text) == 0:
		return nil, errors.New("is empty")
	case text[0] != '{':
		return nil, fmt.Errorf("is not a JSON object: begins with %q", text[0])
	}
	state := new(T)
	if err := protocol.Unmarshal(text, state); err != nil {
		return nil, fmt.Errorf("is damaged: %w", err)
	}
	if f.check != nil {
		if err := f.check(state); err != nil {
			return nil, fmt.Errorf("is damaged: %w", err)
		}
	}
	return state, nil
}

// Save replaces the file by state. When it returns nil the new state survives a
// power cut; after an error the file holds the old or the new state.
func (f *File[T]) Save(state *T) error {
	data, err := protocol.Marshal(state)
	if err != nil {
		return fmt.Errorf("encode %s: %w", f.path, err)
	}
	if err := f.replace(data); err != nil {
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	return nil
}

func (f *File[T]) replace(data []byte) error {
	temp := f.path + tempSuffix
	if err := f.fs.Remove(temp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	if err := f.writeTemp(temp, data); err != nil {
		_ = f.fs.Remove(temp)
		return err
	}
	if f.sound {
		f.sound = false
		if err := f.fs.Rename(f.path, f.path+backupSuffix); err != nil {
			_ = f.fs.Remove(temp)
			return err
		}
	}
	if err := f.fs.Rename(temp, f.path); err != nil {
		_ = f.fs.Remove(temp)
		return err
	}
	f.sound = true
	return f.fs.SyncDir(filepath.Dir(f.path))
}

func (f *File[T]) writeTemp(name string, data []byte) error {
	file, err := f.fs.Create(name)
	if err != nil {
		return err
	}
	_, err = file.WriteAt(data, 0)
	if err == nil {
		err = file.Sync()
	}
	return errors.Join(err, file.Close())
}
