package segment

import (
	"io"
	"io/fs"
)

// A File is one open regular file. ReadAt, WriteAt and Sync may be called
// concurrently; Close must not overlap any other call.
type File interface {
	io.ReaderAt
	// WriteAt writes p at off. What it leaves behind after an error or a
	// crash is any mixture of old and new bytes within [off, off+len(p)).
	io.WriterAt
	// Sync returns once every byte written before it was called, and the
	// file's length, would survive a power cut (fdatasync). After an error
	// nothing is known about unsynced bytes; a later success does not
	// redeem them.
	Sync() error
	// Truncate sets the length in bytes; new bytes read as zero and take no
	// blocks.
	Truncate(size int64) error
	// Size returns the length in bytes.
	Size() (int64, error)
	// Allocated returns the bytes of storage behind the file: less than Size
	// for a sparse one.
	Allocated() (int64, error)
	// Map maps the first size bytes read-only. Later writes show in it. The
	// file must not shrink while mapped. Closing the file keeps the mapping.
	Map(size int64) ([]byte, error)
	Close() error
}

// An FS is every call the storage engine makes on a file system. Tests pass
// one that fails, tears or forgets. All methods may be called concurrently.
type FS interface {
	// Create makes a new file for reading and writing; it is an error
	// (fs.ErrExist) if the name exists.
	Create(name string) (File, error)
	// Open opens an existing file for reading and writing.
	Open(name string) (File, error)
	// ReadFile returns the whole content of a file.
	ReadFile(name string) ([]byte, error)
	// Rename moves a file, replacing a file at the new name in one step. Like
	// Create and Remove it survives a power cut only after SyncDir of the
	// directories concerned.
	Rename(oldName, newName string) error
	Remove(name string) error
	RemoveAll(name string) error
	MkdirAll(dir string) error
	// ReadDir lists a directory sorted by name.
	ReadDir(dir string) ([]fs.DirEntry, error)
	Stat(name string) (fs.FileInfo, error)
	// SyncDir makes the names in dir durable.
	SyncDir(dir string) error
	// Space returns the bytes that this process may still allocate on the
	// file system of dir, and that file system's size.
	Space(dir string) (free, total int64, err error)
	// Unmap ends a mapping that File.Map returned.
	Unmap(data []byte) error
	// Lock takes an exclusive lock on the file, made if need be. It fails at
	// once with an error wrapping ErrLocked when another opener holds it, in
	// this process or in another. Closing releases it.
	Lock(name string) (io.Closer, error)
}
