package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"sync"

	"github.com/sluicemq/sluice/spool/segment"
)

// A unit is one entry of a consume queue file: where a message's record is.
type unit struct {
	phys int64
	size int32
	tags int64
}

func parseUnit(b []byte) unit {
	return unit{
		phys: int64(binary.BigEndian.Uint64(b)),
		size: int32(binary.BigEndian.Uint32(b[8:])),
		tags: int64(binary.BigEndian.Uint64(b[12:])),
	}
}

// valid tells whether the unit was written: zeros are not.
func (u unit) valid() bool { return u.phys >= 0 && u.size > 0 }

// gap tells whether the unit stands for an offset without a message.
func (u unit) gap() bool { return u.size == gapSize }

// queueFiles are the consume queue files of all queues:
//
//	<dir>/<topic>/<queue>/<byte position of its first unit, 20 digits>
//
// Each has room for a fixed number of units and is sparse. A bounded number is
// open at a time; the longest unused ones are closed.
type queueFiles struct {
	fs      segment.FS
	dir     string
	entries int64 // units per file
	limit   int   // files open at a time, while unused ones can be closed

	mu        sync.Mutex
	open      map[fileKey]*queueFile
	used      queueFile // ring of open files, the longest unused first
	dirty     map[fileKey]struct{}
	dirtyDirs map[string]struct{}
	// suspect files failed to sync: what was written to them may be in the page
	// cache and nowhere else, and a later sync would say nothing about it.
	suspect map[fileKey]struct{}
	closed  bool
}

type fileKey struct {
	q     *Queue
	index int64 // the file holds units from index*entries on
}

type queueFile struct {
	key        fileKey
	f          segment.File
	refs       int // guarded by queueFiles.mu
	prev, next *queueFile
	stale      bool // dropped while in use: closed at the last put
}

func newQueueFiles(fsys segment.FS, dir string, entries, limit int) *queueFiles {
	c := &queueFiles{
		fs: fsys, dir: dir, entries: int64(entries), limit: limit,
		open:  make(map[fileKey]*queueFile),
		dirty: make(map[fileKey]struct{}), dirtyDirs: make(map[string]struct{}),
		suspect: make(map[fileKey]struct{}),
	}
	c.used.prev, c.used.next = &c.used, &c.used
	return c
}

func (c *queueFiles) queueDir(q *Queue) string {
	return filepath.Join(c.dir, q.topic.name, strconv.Itoa(int(q.id)))
}

func (c *queueFiles) path(k fileKey) string {
	return filepath.Join(c.queueDir(k.q), segment.FileName(k.index*c.entries*unitSize))
}

// get opens a file and holds it until put. A file that does not exist is made
// when create is set.
func (c *queueFiles) get(k fileKey, create bool) (*queueFile, error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if qf := c.open[k]; qf != nil {
		qf.refs++
		qf.unlink()
		c.link(qf)
		return qf, nil
	}
	if c.closed {
		return nil, ErrClosed
	}
	f, err := c.fs.Open(c.path(k))
	if create && errors.Is(err, fs.ErrNotExist) {
		f, err = c.create(k)
	}
	if err != nil {
		return nil, err
	}
	for qf := c.used.next; len(c.open) >= c.limit && qf != &c.used; {
		next := qf.next
		if qf.refs == 0 {
			c.forget(qf)
		}
		qf = next
	}
	qf := &queueFile{key: k, f: f, refs: 1}
	c.open[k] = qf
	c.link(qf)
	return qf, nil
}

func (c *queueFiles) create(k fileKey) (segment.File, error) {
	dir := c.queueDir(k.q)
	if err := c.fs.MkdirAll(dir); err != nil {
		return nil, err
	}
	f, err := c.fs.Create(c.path(k))
	if err != nil {
		return nil, err
	}
	if err := f.Truncate(c.entries * unitSize); err != nil {
		return nil, errors.Join(err, f.Close(), c.fs.Remove(c.path(k)))
	}
	for _, d := range []string{dir, filepath.Dir(dir), c.dir} {
		c.dirtyDirs[d] = struct{}{}
	}
	c.dirty[k] = struct{}{}
	return f, nil
}

func (c *queueFiles) put(qf *queueFile) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if qf.refs--; qf.refs == 0 && qf.stale {
		_ = qf.f.Close() // its queue is gone
	}
}

func (c *queueFiles) link(qf *queueFile) {
	qf.prev, qf.next = c.used.prev, &c.used
	qf.prev.next, qf.next.prev = qf, qf
}

func (qf *queueFile) unlink() { qf.prev.next, qf.next.prev = qf.next, qf.prev }

// forget closes a file, now or when its last user puts it back. Written bytes
// stay in the page cache and, if dirty, are synced through another opening.
func (c *queueFiles) forget(qf *queueFile) {
	delete(c.open, qf.key)
	qf.unlink()
	qf.stale = true
	if qf.refs == 0 {
		_ = qf.f.Close()
	}
}

// write writes units of q from queue offset at on, across files if need be.
func (c *queueFiles) write(q *Queue, at int64, units []byte) error {
	for len(units) > 0 {
		n := min(int64(len(units)), (c.entries-at%c.entries)*unitSize)
		if err := c.writeOne(fileKey{q, at / c.entries}, at%c.entries*unitSize, units[:n]); err != nil {
			return err
		}
		at, units = at+n/unitSize, units[n:]
	}
	return nil
}

func (c *queueFiles) writeOne(k fileKey, pos int64, b []byte) error {
	qf, err := c.get(k, true)
	if err != nil {
		return err
	}
	defer c.put(qf)
	if _, err := qf.f.WriteAt(b, pos); err != nil {
		return err
	}
	c.touch(k)
	return nil
}

// read fills buf with units of q from queue offset at on, at most to the end
// of the file, and returns how many there are.
func (c *queueFiles) read(q *Queue, at int64, buf []byte) (int, error) {
	qf, err := c.get(fileKey{q, at / c.entries}, false)
	if err != nil {
		return 0, err
	}
	defer c.put(qf)
	room := (c.entries - at%c.entries) * unitSize
	n, err := qf.f.ReadAt(buf[:min(int64(len(buf)), room)], at%c.entries*unitSize)
	if errors.Is(err, io.EOF) && n >= unitSize {
		err = nil
	}
	return n / unitSize, err
}

// unitAt reads one unit.
func (c *queueFiles) unitAt(q *Queue, at int64) (unit, error) {
	var buf [unitSize]byte
	if n, err := c.read(q, at, buf[:]); n != 1 {
		return unit{}, errors.Join(err, io.ErrUnexpectedEOF)
	}
	return parseUnit(buf[:]), nil
}

// touch marks a file dirty.
func (c *queueFiles) touch(k fileKey) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.dirty[k] = struct{}{}
}

// takeDirty returns what was written or made since the last call.
func (c *queueFiles) takeDirty() (files map[fileKey]struct{}, dirs map[string]struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	files, dirs = c.dirty, c.dirtyDirs
	c.dirty, c.dirtyDirs = make(map[fileKey]struct{}), make(map[string]struct{})
	return files, dirs
}

// sync makes the files and names that takeDirty returned durable. If it fails
// they are dirty again. A file that is gone meanwhile needs no sync.
func (c *queueFiles) sync(files map[fileKey]struct{}, dirs map[string]struct{}) error {
	var errs []error
	var failed []fileKey
	for k := range files {
		if err := c.syncFile(k); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs, failed = append(errs, err), append(failed, k)
		}
	}
	for d := range dirs {
		if err := c.fs.SyncDir(d); err != nil && !errors.Is(err, fs.ErrNotExist) {
			errs = append(errs, err)
		}
	}
	if len(errs) == 0 {
		return nil
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for k := range files {
		c.dirty[k] = struct{}{}
	}
	for d := range dirs {
		c.dirtyDirs[d] = struct{}{}
	}
	for _, k := range failed {
		c.suspect[k] = struct{}{}
	}
	return errors.Join(errs...)
}

// rewriteSuspects writes what suspect files hold once more, so that the next
// sync has to bring it to disk. Nobody else may write to them meanwhile.
func (c *queueFiles) rewriteSuspects() error {
	c.mu.Lock()
	suspects := slices.Collect(maps.Keys(c.suspect))
	c.mu.Unlock()
	for _, k := range suspects {
		if err := c.rewrite(k); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return err
		}
		c.mu.Lock()
		delete(c.suspect, k)
		c.mu.Unlock()
	}
	return nil
}

func (c *queueFiles) rewrite(k fileKey) error {
	qf, err := c.get(k, false)
	if err != nil {
		return err
	}
	defer c.put(qf)
	c.touch(k)
	buf := make([]byte, 64<<10)
	for at, end := int64(0), c.entries*unitSize; at < end; at += int64(len(buf)) {
		b := buf[:min(int64(len(buf)), end-at)]
		if _, err := qf.f.ReadAt(b, at); err != nil {
			return err
		}
		if len(bytes.Trim(b, "\x00")) == 0 {
			continue // leave holes
		}
		if _, err := qf.f.WriteAt(b, at); err != nil {
			return err
		}
	}
	return nil
}

func (c *queueFiles) syncFile(k fileKey) error {
	qf, err := c.get(k, false)
	if err != nil {
		return err
	}
	defer c.put(qf)
	return qf.f.Sync()
}

// remove deletes a file. An open one is forgotten first: writes to a file
// without a name would be lost.
func (c *queueFiles) remove(k fileKey) error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if qf := c.open[k]; qf != nil {
		c.forget(qf)
	}
	delete(c.dirty, k)
	delete(c.suspect, k)
	return c.fs.Remove(c.path(k))
}

// drop forgets the files of a queue whose index is below end.
func (c *queueFiles) drop(q *Queue, end int64) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for k, qf := range c.open {
		if k.q == q && k.index < end {
			c.forget(qf)
		}
	}
	for k := range c.dirty {
		if k.q == q && k.index < end {
			delete(c.dirty, k)
		}
	}
}

// close closes every file for good.
func (c *queueFiles) close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
	for _, qf := range c.open {
		c.forget(qf)
	}
}
