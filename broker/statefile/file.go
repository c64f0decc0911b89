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
	"log/slog"
	"path/filepath"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool/segment"
)

var errDamaged = errors.New("damaged")

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
	log   *slog.Logger
	// sound says that the file at path is whole: only such a file may become
	// the backup. A damaged one is replaced, and the backup stays as it is.
	sound bool
}

// New returns the File at path; it touches nothing. Check tells whether a
// decoded state is one: text such as "{}" decodes into every struct.
func New[T any](fsys segment.FS, path string, log *slog.Logger, check func(*T) error) *File[T] {
	return &File[T]{fs: fsys, path: path, log: log, check: check}
}

// Load reads the last state that was saved, in strict JSON or in Apache's form
// with unquoted integer keys. It falls back to the backup when the file is
// missing or damaged, and logs that. A state that was never saved gives
// fs.ErrNotExist; when something is there and none of it is whole, the error
// names both files and what is wrong with each. A file that cannot be read now
// is an error too: it may well be whole, and newer than the backup.
func (f *File[T]) Load() (*T, error) {
	f.sound = false
	state, err := f.read(f.path)
	if err == nil {
		f.sound = true
		return state, nil
	}
	if !errors.Is(err, errDamaged) && !errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("load state: %w", err)
	}
	state, backupErr := f.read(f.path + backupSuffix)
	if backupErr == nil {
		f.log.Warn("state loaded from its backup", "path", f.path, "err", err)
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
		return nil, fmt.Errorf("%w: it is empty", errDamaged)
	case text[0] != '{':
		return nil, fmt.Errorf("%w: it begins with %q, not with an object", errDamaged, text[0])
	}
	state := new(T)
	if err := protocol.Unmarshal(text, state); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
	}
	if err := f.check(state); err != nil {
		return nil, fmt.Errorf("%w: %w", errDamaged, err)
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
