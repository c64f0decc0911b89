// Package statefile keeps a broker's tables in JSON files that a power cut
// cannot empty.
//
// A File is a segment.StateFile, replaced as a whole and backed up, that holds
// one value as JSON. A Value puts a File behind an immutable value that is read
// without a lock and changed by group commit.
package statefile

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool/segment"
)

var errDamaged = errors.New("damaged")

// A File holds one state of type T as JSON text. Its methods must not run at the
// same time.
type File[T any] struct {
	file  *segment.StateFile
	check func(*T) error
	log   *slog.Logger
}

// New returns the File at path; it touches nothing. Check tells whether a
// decoded state is one: text such as "{}" decodes into every struct.
func New[T any](fsys segment.FS, path string, log *slog.Logger, check func(*T) error) *File[T] {
	return &File[T]{file: segment.NewStateFile(fsys, path), log: log, check: check}
}

// Load reads the last state that was saved, in strict JSON or in Apache's form
// with unquoted integer keys. It falls back to the backup when the file is
// missing or damaged, and logs that. A state that was never saved gives
// fs.ErrNotExist; when something is there and none of it is whole, the error
// names both files and what is wrong with each.
func (f *File[T]) Load() (*T, error) {
	var state *T
	found, fallback, err := f.file.Load(func(data []byte) error {
		loaded, err := f.decode(data)
		if err == nil {
			state = loaded
		}
		return err
	})
	switch {
	case err != nil:
		return nil, err
	case !found:
		return nil, fmt.Errorf("load %s: %w", f.file.Path(), fs.ErrNotExist)
	case fallback != nil:
		f.log.Warn("state loaded from its backup", "path", f.file.Path(), "err", fallback)
	}
	return state, nil
}

func (f *File[T]) decode(data []byte) (*T, error) {
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
		return fmt.Errorf("encode %s: %w", f.file.Path(), err)
	}
	return f.file.Save(data)
}
