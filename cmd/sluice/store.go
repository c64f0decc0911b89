package main

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"sort"
	"strconv"

	"github.com/edsrzf/mmap-go"
	"golang.org/x/sys/unix"

	"github.com/sluicemq/sluice/protocol/message"
)

// An offlineStore reads the files of a stopped store, ours or Apache's, and changes nothing:
// neither recovery nor the marker of a crash.
//
//	<dir>/lock                                      locked while a process uses the store
//	<dir>/abort                                     there after a crash
//	<dir>/cursors.json                              how far each reader is; ours only
//	<dir>/commitlog/<offset of its first byte>      records, one behind the other
//	<dir>/consumequeue/<topic>/<queue>/<position>   units of 20 bytes:
//	                                                log offset 8 | size 4 | tag hash 8
type offlineStore struct {
	dir      string
	lock     *os.File
	segments []segmentFile // by offset
}

type segmentFile struct {
	path       string
	base, size int64
}

const (
	queueUnit = 20
	gapSize   = math.MaxInt32 // the size in a unit that stands for an offset without a message
)

// errNotAStore tells a wrong directory from a damaged store.
var errNotAStore = errors.New("is no store: it has no directory commitlog")

func openOffline(dir string) (*offlineStore, error) {
	s := &offlineStore{dir: dir}
	if _, err := os.Stat(filepath.Join(dir, "commitlog")); errors.Is(err, fs.ErrNotExist) {
		return nil, fmt.Errorf("%s %w", dir, errNotAStore)
	}
	if err := s.takeLock(); err != nil {
		return nil, err
	}
	var err error
	if s.segments, err = numbered(filepath.Join(dir, "commitlog")); err != nil {
		s.close()
		return nil, err
	}
	return s, nil
}

// takeLock takes a read lock where a running process holds a write lock, so that neither
// starts while the other is there.
func (s *offlineStore) takeLock() error {
	f, err := os.Open(filepath.Join(s.dir, "lock"))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		return err
	}
	err = unix.FcntlFlock(f.Fd(), unix.F_SETLK, &unix.Flock_t{Type: unix.F_RDLCK, Whence: io.SeekStart, Len: 1})
	if errors.Is(err, unix.EAGAIN) || errors.Is(err, unix.EACCES) {
		f.Close()
		return fmt.Errorf("%s is in use by a running process; stop it first", s.dir)
	}
	if err != nil {
		f.Close()
		return fmt.Errorf("lock %s: %w", f.Name(), err)
	}
	s.lock = f
	return nil
}

func (s *offlineStore) close() {
	if s.lock != nil {
		s.lock.Close()
	}
}

// numbered lists the files of a directory whose names are 20 digits, in their order.
func numbered(dir string) ([]segmentFile, error) {
	entries, err := os.ReadDir(dir)
	if err != nil {
		return nil, err
	}
	var files []segmentFile
	for _, e := range entries {
		base, err := strconv.ParseInt(e.Name(), 10, 64)
		if err != nil || len(e.Name()) != 20 {
			continue
		}
		info, err := e.Info()
		if err != nil {
			return nil, err
		}
		files = append(files, segmentFile{filepath.Join(dir, e.Name()), base, info.Size()})
	}
	return files, nil
}

// crashed tells whether the store was left without a clean stop.
func (s *offlineStore) crashed() bool {
	_, err := os.Stat(filepath.Join(s.dir, "abort"))
	return err == nil
}

// records calls f for every record from the log's beginning to its end, until f returns false.
// It returns where the log ends, and an error when bytes are damaged there.
func (s *offlineStore) records(f func(v message.View) bool) (end int64, err error) {
	for _, seg := range s.segments {
		end = seg.base
		data, unmap, err := mapped(seg.path)
		if err != nil {
			return end, err
		}
		at, next, err := walk(data, seg.base, f)
		unmap()
		end = seg.base + at
		if err != nil || !next {
			return end, err
		}
	}
	return end, nil
}

// walk goes over the records of one segment. It returns where it stopped and whether the log
// goes on in the next segment.
func walk(data []byte, base int64, f func(v message.View) bool) (at int64, next bool, err error) {
	for int(at) < len(data) {
		v, err := message.ViewOf(data[at:])
		switch {
		case errors.Is(err, message.ErrBlank):
			return at, true, nil
		case err == nil && v.PhysicalOffset() != base+at:
			// What follows is left of the segment's former use.
			return at, false, nil
		case err != nil && allZero(data[at:min(len(data), int(at)+message.BlankLen)]):
			return at, false, nil
		case err != nil:
			return at, false, fmt.Errorf("log offset %d: %w", base+at, err)
		case !f(v):
			return at, false, nil
		}
		at += int64(v.Size())
	}
	return at, true, nil
}

func allZero(b []byte) bool { return !slices.ContainsFunc(b, func(c byte) bool { return c != 0 }) }

func mapped(path string) (data []byte, unmap func(), err error) {
	f, err := os.Open(path)
	if err != nil {
		return nil, nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err != nil || info.Size() == 0 {
		return nil, func() {}, err
	}
	m, err := mmap.Map(f, mmap.RDONLY, 0)
	if err != nil {
		return nil, nil, fmt.Errorf("map %s: %w", path, err)
	}
	return m, func() { _ = m.Unmap() }, nil
}

// recordAt reads the record at a log offset. It is a copy.
func (s *offlineStore) recordAt(offset int64, size int32) (message.View, error) {
	i := sort.Search(len(s.segments), func(i int) bool { return s.segments[i].base > offset }) - 1
	if i < 0 || offset >= s.segments[i].base+s.segments[i].size || size <= 0 || int64(size) > s.segments[i].size {
		return message.View{}, fmt.Errorf("log offset %d is not in the store", offset)
	}
	f, err := os.Open(s.segments[i].path)
	if err != nil {
		return message.View{}, err
	}
	defer f.Close()
	data := make([]byte, size)
	if _, err := f.ReadAt(data, offset-s.segments[i].base); err != nil {
		return message.View{}, fmt.Errorf("read the record at %d: %w", offset, err)
	}
	v, err := message.ViewOf(data)
	if err == nil && v.PhysicalOffset() != offset {
		err = message.ErrBadMagic
	}
	if err != nil {
		return message.View{}, fmt.Errorf("log offset %d: %w", offset, err)
	}
	return v, nil
}

// An offlineQueue is the consume queue files of one queue.
type offlineQueue struct {
	topic    string
	id       int
	files    []segmentFile
	min, max int64 // offsets of the first message that is there and after the last one
}

// queues lists all queues by topic and number.
func (s *offlineStore) queues() ([]offlineQueue, error) {
	root := filepath.Join(s.dir, "consumequeue")
	topics, err := os.ReadDir(root)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var list []offlineQueue
	for _, topic := range topics {
		ids, err := os.ReadDir(filepath.Join(root, topic.Name()))
		if err != nil {
			return nil, err
		}
		for _, e := range ids {
			id, err := strconv.Atoi(e.Name())
			if err != nil {
				continue
			}
			q, err := s.queue(topic.Name(), id)
			if err != nil {
				return nil, err
			}
			list = append(list, q)
		}
	}
	sort.Slice(list, func(i, j int) bool {
		return list[i].topic < list[j].topic || (list[i].topic == list[j].topic && list[i].id < list[j].id)
	})
	return list, nil
}

// queue finds the bounds of one queue.
func (s *offlineStore) queue(topic string, id int) (offlineQueue, error) {
	q := offlineQueue{topic: topic, id: id}
	var err error
	q.files, err = numbered(filepath.Join(s.dir, "consumequeue", topic, strconv.Itoa(id)))
	if errors.Is(err, fs.ErrNotExist) {
		return q, fmt.Errorf("there is no queue %s/%d in %s", topic, id, s.dir)
	}
	if err != nil || len(q.files) == 0 {
		return q, err
	}
	first := q.files[0].base / queueUnit
	last := q.files[len(q.files)-1]
	q.max = last.base/queueUnit + int64(sort.Search(int(last.size/queueUnit), func(i int) bool {
		_, size, err := q.unit(last.base/queueUnit + int64(i))
		return err != nil || size == 0
	}))
	oldest := int64(0)
	if len(s.segments) > 0 {
		oldest = s.segments[0].base
	}
	q.min = first + int64(sort.Search(int(q.max-first), func(i int) bool {
		return q.logOffsetFrom(first+int64(i)) >= oldest
	}))
	return q, nil
}

// logOffsetFrom is where the first message from a queue offset on is; behind everything when
// only offsets without messages follow.
func (q *offlineQueue) logOffsetFrom(offset int64) int64 {
	for ; offset < q.max; offset++ {
		if at, size, err := q.unit(offset); err == nil && size != gapSize {
			return at
		}
	}
	return math.MaxInt64
}

// unit reads where the message at a queue offset is. A size of 0 means that none was written
// there, gapSize that the offset has no message.
func (q *offlineQueue) unit(offset int64) (logOffset int64, size int32, err error) {
	at := offset * queueUnit
	for _, f := range q.files {
		if at < f.base || at >= f.base+f.size {
			continue
		}
		file, err := os.Open(f.path)
		if err != nil {
			return 0, 0, err
		}
		defer file.Close()
		var b [queueUnit]byte
		if _, err := file.ReadAt(b[:], at-f.base); err != nil {
			return 0, 0, fmt.Errorf("read %s: %w", f.path, err)
		}
		return int64(binary.BigEndian.Uint64(b[:])), int32(binary.BigEndian.Uint32(b[8:])), nil
	}
	return 0, 0, fmt.Errorf("queue %s/%d has no offset %d", q.topic, q.id, offset)
}

// A storedCursor is how far a named reader is in one queue.
type storedCursor struct {
	Name   string `json:"name"`
	Topic  string `json:"topic"`
	Queue  int32  `json:"queue"`
	Offset int64  `json:"offset"`
}

// cursors lists what cursors.json remembers; none without the file.
func (s *offlineStore) cursors() ([]storedCursor, error) {
	path := filepath.Join(s.dir, "cursors.json")
	data, err := os.ReadFile(path)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	var file struct {
		Cursors []storedCursor `json:"cursors"`
	}
	if err := json.Unmarshal(data, &file); err != nil {
		return nil, fmt.Errorf("read %s: %w", path, err)
	}
	return file.Cursors, nil
}
