package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/spool/segment"
)

// A Cursor is a durable read position in a queue. All methods may be called
// concurrently.
type Cursor struct {
	name  string
	queue *Queue
	set   *cursorSet

	offset  atomic.Int64
	durable atomic.Int64
}

// A CursorInfo describes one cursor.
type CursorInfo struct {
	Name    string
	Topic   string
	QueueID int32
	Offset  int64 // next message to be read
	Durable int64 // what a restart begins with
}

// cursorSet is all cursors and the file that remembers them.
type cursorSet struct {
	file  *segment.StateFile // used by one save at a time, under saving
	dirty atomic.Bool
	// noRoom says that the last save failed because the disk is full.
	noRoom atomic.Bool
	wake   chan struct{}

	making sync.Mutex // one cursor made or removed at a time
	saving sync.Mutex

	mu  sync.Mutex
	all map[cursorKey]*Cursor
}

type cursorKey struct {
	name string
	q    *Queue
}

// cursorRecord is one cursor in cursors.json.
type cursorRecord struct {
	Name   string `json:"name"`
	Topic  string `json:"topic"`
	Queue  int32  `json:"queue"`
	Offset int64  `json:"offset"`
}

type cursorFile struct {
	Cursors []cursorRecord `json:"cursors"`
}

// Name is the cursor's name.
func (c *Cursor) Name() string { return c.name }

// Queue is the queue that the cursor is in.
func (c *Cursor) Queue() *Queue { return c.queue }

// Offset is the queue offset of the next message to be read.
func (c *Cursor) Offset() int64 { return c.offset.Load() }

// Advance moves the cursor forward to an offset; it never goes back. The move
// is durable within CursorInterval, and when Run has returned.
func (c *Cursor) Advance(to int64) {
	for {
		at := c.offset.Load()
		if to <= at {
			return
		}
		if c.offset.CompareAndSwap(at, to) {
			break
		}
	}
	if !c.set.dirty.Swap(true) {
		nudge(c.set.wake)
	}
}

// Cursor returns the cursor of that name in q. One that does not exist is made
// at offset start and is durable on return.
func (s *Spool) Cursor(name string, q *Queue, start int64) (*Cursor, error) {
	if err := s.enter(); err != nil {
		return nil, err
	}
	defer s.life.RUnlock()
	set := &s.cursors
	set.making.Lock()
	defer set.making.Unlock()
	if c := set.get(cursorKey{name, q}); c != nil {
		return c, nil
	}
	c := &Cursor{name: name, queue: q, set: set}
	c.offset.Store(start)
	c.durable.Store(start)
	set.put(cursorKey{name, q}, c)
	if err := s.saveCursors(); err != nil {
		set.put(cursorKey{name, q}, nil)
		return nil, err
	}
	return c, nil
}

func (set *cursorSet) get(k cursorKey) *Cursor {
	set.mu.Lock()
	defer set.mu.Unlock()
	return set.all[k]
}

// put adds a cursor, or removes it with nil.
func (set *cursorSet) put(k cursorKey, c *Cursor) {
	set.mu.Lock()
	defer set.mu.Unlock()
	if c == nil {
		delete(set.all, k)
		return
	}
	set.all[k] = c
}

// Cursors describes all cursors, sorted by name, topic and queue.
func (s *Spool) Cursors() []CursorInfo {
	var infos []CursorInfo
	for _, c := range s.cursors.list() {
		infos = append(infos, CursorInfo{c.name, c.queue.Topic(), c.queue.id, c.offset.Load(), c.durable.Load()})
	}
	return infos
}

func (set *cursorSet) list() []*Cursor {
	set.mu.Lock()
	cs := make([]*Cursor, 0, len(set.all))
	for _, c := range set.all {
		cs = append(cs, c)
	}
	set.mu.Unlock()
	slices.SortFunc(cs, func(a, b *Cursor) int {
		if n := strings.Compare(a.name, b.name); n != 0 {
			return n
		}
		if n := strings.Compare(a.queue.Topic(), b.queue.Topic()); n != 0 {
			return n
		}
		return int(a.queue.id) - int(b.queue.id)
	})
	return cs
}

// RemoveCursor forgets a cursor, durably: it holds back nothing any more.
func (s *Spool) RemoveCursor(name string, q *Queue) error {
	if err := s.enter(); err != nil {
		return err
	}
	defer s.life.RUnlock()
	s.cursors.making.Lock()
	defer s.cursors.making.Unlock()
	s.cursors.put(cursorKey{name, q}, nil)
	err := s.saveCursors()
	s.nudgeRetain()
	return err
}

// saveCursors writes cursors.json. Positions count as durable only after the
// file was replaced.
func (s *Spool) saveCursors() error {
	set := &s.cursors
	set.saving.Lock()
	defer set.saving.Unlock()
	set.dirty.Store(false)
	cs := set.list()
	offsets := make([]int64, len(cs))
	var file cursorFile
	for i, c := range cs {
		offsets[i] = c.offset.Load()
		file.Cursors = append(file.Cursors, cursorRecord{c.name, c.queue.Topic(), c.queue.id, offsets[i]})
	}
	data, err := json.Marshal(file)
	if err == nil {
		err = set.file.Save(append(data, '\n'))
	}
	if noSpace(err) {
		s.dropBallast()
		err = set.file.Save(append(data, '\n'))
	}
	set.noRoom.Store(noSpace(err))
	if err != nil {
		set.dirty.Store(true)
		nudge(set.wake) // moves from now on do not
		return err
	}
	for i, c := range cs {
		c.durable.Store(offsets[i])
	}
	return nil
}

// runCursors saves cursors that moved. A store with so many that a save takes
// long saves them less often: at most a tenth of the time goes into it.
func (s *Spool) runCursors(ctx context.Context) error {
	t := time.NewTimer(0)
	defer t.Stop()
	failing := false
	for {
		select {
		case <-s.cursors.wake:
		case <-ctx.Done():
			return nil
		}
		began := time.Now()
		if s.cursors.dirty.Load() {
			err := s.saveCursors()
			if err != nil && !failing { // once, not five times a second
				s.log.Error("save cursors; trying on", "err", err)
			}
			failing = err != nil
			s.nudgeRetain()
		}
		t.Reset(max(s.o.CursorInterval, 9*time.Since(began)))
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
	}
}

// loadCursors reads cursors.json. Positions that the queues do not have any
// more are set to the nearest they have, and what that loses is logged.
func (s *Spool) loadCursors() error {
	s.cursors.file = segment.NewStateFile(s.fs, s.path("cursors.json"))
	var file cursorFile
	_, fallback, err := s.cursors.file.Load(func(data []byte) error {
		file = cursorFile{}
		return json.Unmarshal(data, &file)
	})
	switch {
	case errors.Is(err, segment.ErrStateLost):
		// Reading everything again doubles messages; it loses none.
		s.log.Error("cursors are lost, readers begin again at the oldest message", "err", err)
		if err := s.setAside("cursors.json", "cursors.json.bak"); err != nil {
			return err
		}
	case err != nil:
		return err
	case fallback != nil:
		s.log.Error("cursors loaded from the backup", "err", fallback)
	}
	for _, r := range file.Cursors {
		if !validTopic(r.Topic) || r.Queue < 0 {
			continue
		}
		q := s.Queue(r.Topic, r.Queue)
		c := &Cursor{name: r.Name, queue: q, set: &s.cursors}
		at := r.Offset
		if hi := q.Max(); at > hi {
			s.log.Error("cursor beyond its queue set back", "cursor", r.Name, "topic", r.Topic, "queue", r.Queue, "from", at, "to", hi)
			at = hi
		}
		if lo := q.Min(); at < lo {
			s.counters.lost.Add(lo - at)
			s.log.Error("messages deleted before a cursor read them", "cursor", r.Name, "topic", r.Topic, "queue", r.Queue, "from", at, "to", lo)
			at = lo
		}
		c.offset.Store(at)
		c.durable.Store(at)
		s.cursors.all[cursorKey{r.Name, q}] = c
		if at != r.Offset {
			s.cursors.dirty.Store(true)
			nudge(s.cursors.wake)
		}
	}
	return nil
}

// setAside moves files that cannot be read to the quarantine.
func (s *Spool) setAside(names ...string) error {
	dir := s.path("quarantine")
	if err := s.fs.MkdirAll(dir); err != nil {
		return err
	}
	for _, n := range names {
		to := s.path(fmt.Sprintf("quarantine/%s-%d", filepath.Base(n), s.o.Now().UnixMilli()))
		if there, err := s.exists(n); err != nil || !there {
			continue
		}
		if err := s.fs.Rename(s.path(n), to); err != nil {
			return err
		}
	}
	return s.fs.SyncDir(dir)
}
