package segment

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
)

// A StateFile is a small file that is only ever replaced as a whole. The
// version before stays beside it with the suffix .bak. It is not safe for
// concurrent use.
//
// Save, line by line, and what a power cut after each line leaves:
//
//	write F.tmp, sync it    F is the old version
//	rename F to F.bak       no F: Load takes F.bak, the old version
//	rename F.tmp to F       F is the new version
//	sync the directory      F is durably the new version
type StateFile struct {
	fs   FS
	path string
	good bool // the file at path was loaded or saved whole: it may become .bak
}

// ErrStateLost tells that a state file and its backup are both unreadable.
var ErrStateLost = errors.New("neither the file nor its backup can be read")

// NewStateFile returns the state file at path; nothing is read yet.
func NewStateFile(fsys FS, path string) *StateFile { return &StateFile{fs: fsys, path: path} }

// Path is the file's name.
func (f *StateFile) Path() string { return f.path }

// Load passes the file's content to parse, and that of the backup if the file
// is missing or parse refuses it. found is false when neither exists. With
// both there but unusable the error wraps ErrStateLost. fallback tells why the
// backup was used, nil if it was not. A file that the device cannot read now is
// an error, not a reason to go back to an older state: it may well be whole.
func (f *StateFile) Load(parse func(data []byte) error) (found bool, fallback, err error) {
	f.good = false
	mainErr, readable := f.try(f.path, parse)
	if mainErr == nil {
		f.good = true
		return true, nil, nil
	}
	if !readable {
		return false, nil, fmt.Errorf("load state: %w", mainErr)
	}
	bakErr, _ := f.try(f.path+".bak", parse)
	switch {
	case bakErr == nil:
		return true, mainErr, nil
	case errors.Is(mainErr, fs.ErrNotExist) && errors.Is(bakErr, fs.ErrNotExist):
		return false, nil, nil
	}
	// The reasons are text here: one of them may be "does not exist", which must
	// not make the whole look like a state that was never saved.
	return false, nil, fmt.Errorf("%w: %s: %s; %s.bak: %s", ErrStateLost, f.path, mainErr.Error(), f.path, bakErr.Error())
}

// try reads and parses one file. readable is false when it is there and could
// not be read.
func (f *StateFile) try(path string, parse func([]byte) error) (err error, readable bool) {
	data, err := f.fs.ReadFile(path)
	if err != nil {
		return err, errors.Is(err, fs.ErrNotExist)
	}
	return parse(data), true
}

// Save replaces the file. On return without error the new version is durable;
// after an error the file holds the old or the new version.
func (f *StateFile) Save(data []byte) error {
	tmp := f.path + ".tmp"
	err := f.replace(tmp, data)
	if err != nil {
		_ = f.fs.Remove(tmp) // best effort: the next Save removes it as well
		return fmt.Errorf("save %s: %w", f.path, err)
	}
	return nil
}

func (f *StateFile) replace(tmp string, data []byte) error {
	if err := f.writeTemp(tmp, data); err != nil {
		return err
	}
	if f.good {
		f.good = false
		if err := f.fs.Rename(f.path, f.path+".bak"); err != nil {
			return err
		}
	}
	if err := f.fs.Rename(tmp, f.path); err != nil {
		return err
	}
	f.good = true
	return f.fs.SyncDir(filepath.Dir(f.path))
}

func (f *StateFile) writeTemp(tmp string, data []byte) error {
	if err := f.fs.Remove(tmp); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	w, err := f.fs.Create(tmp)
	if err != nil {
		return err
	}
	_, err = w.WriteAt(data, 0)
	if err == nil {
		err = w.Sync()
	}
	return errors.Join(err, w.Close())
}
