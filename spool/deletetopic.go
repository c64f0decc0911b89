package spool

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"path/filepath"

	"github.com/sluicemq/sluice/spool/segment"
)

// tombstones say from which log offset on a topic's records count: it was
// deleted there, and queues rebuilt from the log must not bring older records
// back. Guarded by dispatcher.mu.
type tombstones struct {
	file *segment.StateFile
	at   map[string]int64
}

type tombstoneFile struct {
	Deleted map[string]int64 `json:"deleted"`
}

func (s *Spool) loadTombstones() error {
	t := &s.tombs
	t.file = segment.NewStateFile(s.fs, s.path("deleted.json"))
	t.at = make(map[string]int64)
	var file tombstoneFile
	_, fallback, err := t.file.Load(func(data []byte) error {
		file = tombstoneFile{}
		return json.Unmarshal(data, &file)
	})
	if errors.Is(err, segment.ErrStateLost) {
		// Deleted messages may come back, which is less bad than not starting.
		s.log.Error("deleted topics are forgotten", "err", err)
		err = s.setAside("deleted.json", "deleted.json.bak")
	}
	if err != nil {
		return err
	}
	if fallback != nil {
		s.log.Error("deleted topics loaded from the backup", "err", fallback)
	}
	for name, at := range file.Deleted {
		t.at[name] = at
		s.table.topic([]byte(name)).deletedAt = at
	}
	return nil
}

// boundTombstones follows a log that lost its end, durably: what is appended
// from there on belongs to the topic's new life.
func (s *Spool) boundTombstones(end int64) error {
	changed := false
	for name, at := range s.tombs.at {
		if at > end {
			s.tombs.at[name] = end
			s.table.topic([]byte(name)).deletedAt = end
			changed = true
		}
	}
	if !changed {
		return nil
	}
	return s.saveTombstones()
}

func (s *Spool) saveTombstones() error {
	// Below the log's start there is nothing left to hide.
	base := s.seq.Base()
	for name, at := range s.tombs.at {
		if at <= base {
			delete(s.tombs.at, name)
		}
	}
	data, err := json.Marshal(tombstoneFile{s.tombs.at})
	if err != nil {
		return err
	}
	return s.tombs.file.Save(append(data, '\n'))
}

// DeleteTopic empties a topic's queues and forgets their cursors: their next
// offset is 0, and messages appended before are never read again, whatever
// happens to the queue files. It is durable on return. Handles stay good; who
// waits on one is woken.
//
// Line by line, and what a power cut after each leaves:
//
//	log flushed                                 the topic as it was
//	tombstone saved                             recovery removes the queue files
//	queue files removed                         the same, less to remove
//	checkpoint saved                            nothing left to do
func (s *Spool) DeleteTopic(name string) error {
	if err := s.enter(); err != nil {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	defer s.life.RUnlock()
	tp, queues := s.table.of(name)
	if tp == nil {
		return nil
	}
	if err := s.deleteQueues(tp, queues); err != nil {
		return fmt.Errorf("delete topic %s: %w", name, err)
	}
	s.cursors.mu.Lock()
	for k := range s.cursors.all {
		if k.q.topic == tp {
			delete(s.cursors.all, k)
		}
	}
	s.cursors.mu.Unlock()
	if err := s.saveCursors(); err != nil {
		return err
	}
	return s.saveCheckpoint()
}

func (s *Spool) deleteQueues(tp *topic, queues []*Queue) error {
	d := &s.dispatch
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	d.mu.Lock()
	defer d.mu.Unlock()
	// The tombstone's offset must never be beyond the log's end after a power
	// cut: what is appended there later would be dead.
	if err := s.flushTo(context.Background(), s.w.end); err != nil {
		return err
	}
	before, was := s.tombs.at[tp.name], tp.deletedAt
	s.tombs.at[tp.name] = s.w.end
	if err := s.saveTombstones(); err != nil {
		s.tombs.at[tp.name] = before
		return err
	}
	tp.deletedAt = s.w.end
	for _, q := range queues {
		s.files.drop(q, math.MaxInt64)
	}
	err := s.fs.RemoveAll(filepath.Join(s.files.dir, tp.name))
	for _, q := range queues { // what a reader opened meanwhile has no name now
		s.files.drop(q, math.MaxInt64)
	}
	if err == nil {
		err = s.fs.SyncDir(s.files.dir)
	}
	if err != nil {
		tp.deletedAt = was
		return err
	}
	kept := d.touched[:0]
	for _, q := range d.touched {
		if q.topic != tp {
			kept = append(kept, q)
		}
	}
	d.touched = kept
	tp.deletions.Add(1)
	for _, q := range queues {
		d.units -= q.max.Load()
		q.pending = nil
		q.next = 0
		q.min.Store(0)
		q.max.Store(0)
		q.wake()
	}
	return nil
}
