// Package offsets is the table of how far each consumer group has read.
package offsets

import (
	"context"
	"errors"
	"fmt"
	"hash/maphash"
	"io/fs"
	"log/slog"
	"maps"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/broker/statefile"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool/segment"
)

const (
	shards = 32
	// versionStep is how many commits move the version by one (RocketMQ
	// storage formats, "broker offset version").
	versionStep = 500
)

// Options configure a Table. Zero values take the defaults.
type Options struct {
	SaveInterval time.Duration // 5 s; what a crash of the process may take back
	Logger       *slog.Logger
	Now          func() time.Time // wall clock for data versions; time.Now
}

// A Table holds the committed offsets and keeps them in consumerOffset.json.
// Nothing but commits and removals moves an offset. All methods are safe for
// concurrent use.
type Table struct {
	o      Options
	seed   maphash.Seed
	shards [shards]shard

	commits atomic.Int64 // of all time, for the version
	changes atomic.Int64 // goes up with every change of the table

	saving  sync.Mutex // held over a save; taken before any shard
	file    *statefile.File[offsetsFile]
	saved   int64 // value of changes that the file holds
	version versionCell
}

// key names what a group has read of a topic.
type key struct{ topic, group string }

type shard struct {
	mu      sync.RWMutex
	offsets map[key]map[int32]int64 // queue id → next offset to read
}

type versionCell struct {
	mu sync.Mutex
	v  protocol.DataVersion
}

// offsetsFile is the text of consumerOffset.json; keys are "topic@group".
type offsetsFile struct {
	DataVersion protocol.DataVersion       `json:"dataVersion"`
	OffsetTable map[string]map[int32]int64 `json:"offsetTable"`
}

func (f *offsetsFile) check() error {
	if f.OffsetTable == nil {
		return errors.New("has no offsetTable")
	}
	return nil
}

// Open loads the table at path, or begins a new one. It fails rather than forget
// how far groups have read.
func Open(fsys segment.FS, path string, o Options) (*Table, error) {
	if o.SaveInterval <= 0 {
		o.SaveInterval = 5 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	t := &Table{o: o, seed: maphash.MakeSeed(), file: statefile.New(fsys, path, o.Logger, (*offsetsFile).check)}
	for i := range t.shards {
		t.shards[i].offsets = map[key]map[int32]int64{}
	}
	loaded, err := t.file.Load()
	if errors.Is(err, fs.ErrNotExist) {
		return t, nil
	}
	if err != nil {
		return nil, fmt.Errorf("offsets: %w", err)
	}
	t.version.v = loaded.DataVersion
	for name, queues := range loaded.OffsetTable {
		topic, group, ok := strings.Cut(name, "@")
		if !ok || queues == nil {
			o.Logger.Warn("entry in the offset table is left out", "path", path, "entry", name)
			continue
		}
		k := key{strings.Clone(topic), strings.Clone(group)}
		t.shard(k).offsets[k] = queues
	}
	return t, nil
}

func (t *Table) shard(k key) *shard {
	return &t.shards[maphash.Comparable(t.seed, k)%shards]
}

// Run saves the table every SaveInterval when it has changed, and once more when
// ctx ends; it returns the error of that last save.
func (t *Table) Run(ctx context.Context) error {
	ticker := time.NewTicker(t.o.SaveInterval)
	defer ticker.Stop()
	failing := false
	for {
		select {
		case <-ctx.Done():
			return t.Save()
		case <-ticker.C:
		}
		err := t.Save()
		if err != nil && !failing {
			t.o.Logger.Error("consumer offsets cannot be saved; trying on", "err", err)
		} else if err == nil && failing {
			t.o.Logger.Info("consumer offsets are saved again")
		}
		failing = err != nil
	}
}

// Save writes the table if it has changed since it was last written.
func (t *Table) Save() error {
	t.saving.Lock()
	defer t.saving.Unlock()
	// Read before the copy: a change during it may be copied or not, and so
	// must count as not saved.
	changes := t.changes.Load()
	if changes == t.saved {
		return nil
	}
	table, version := t.Snapshot()
	if err := t.file.Save(&offsetsFile{DataVersion: version, OffsetTable: table}); err != nil {
		return fmt.Errorf("offsets: %w", err)
	}
	t.saved = changes
	return nil
}

// Snapshot returns a copy of the table in the form of its file, keys
// "topic@group", and its version.
func (t *Table) Snapshot() (map[string]map[int32]int64, protocol.DataVersion) {
	version := t.Version()
	table := map[string]map[int32]int64{}
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for k, queues := range s.offsets {
			table[k.topic+"@"+k.group] = maps.Clone(queues)
		}
		s.mu.RUnlock()
	}
	return table, version
}

// Version returns the table's version. It moves every 500 commits, as Apache's.
func (t *Table) Version() protocol.DataVersion {
	t.version.mu.Lock()
	defer t.version.mu.Unlock()
	return t.version.v
}

// Commit stores the offset that group will read next in a queue of topic. It may
// be lower than the one before; a negative offset or queue is refused with a
// *protocol.Error. The caller has checked that the topic and the group exist:
// that bounds the table.
func (t *Table) Commit(topic, group string, queue int32, offset int64) error {
	if queue < 0 || offset < 0 {
		return protocol.Errorf(protocol.InvalidParameter, "commit offset %d of queue %d of %s for %s: negative", offset, queue, topic, group)
	}
	k := key{topic, group}
	s := t.shard(k)
	s.mu.Lock()
	queues, ok := s.offsets[k]
	if !ok {
		// The names may alias longer texts that would stay in memory.
		queues = make(map[int32]int64, 4)
		s.offsets[key{strings.Clone(topic), strings.Clone(group)}] = queues
	}
	old, known := queues[queue]
	queues[queue] = offset
	s.mu.Unlock()
	if !known || old != offset {
		t.changes.Add(1)
	}
	if t.commits.Add(1)%versionStep == 0 {
		t.nextVersion()
	}
	return nil
}

func (t *Table) nextVersion() {
	t.version.mu.Lock()
	defer t.version.mu.Unlock()
	t.version.v = t.version.v.Next(t.o.Now().UnixMilli())
}

// Query returns the offset that group will read next in a queue of topic; ok is
// false when it never committed one.
func (t *Table) Query(topic, group string, queue int32) (offset int64, ok bool) {
	k := key{topic, group}
	s := t.shard(k)
	s.mu.RLock()
	defer s.mu.RUnlock()
	offset, ok = s.offsets[k][queue]
	return offset, ok
}

// Queues returns a copy of all that group has committed for topic, by queue.
func (t *Table) Queues(topic, group string) map[int32]int64 {
	k := key{topic, group}
	s := t.shard(k)
	s.mu.RLock()
	defer s.mu.RUnlock()
	return maps.Clone(s.offsets[k])
}

// ForEach calls f with every committed offset until f returns false. It works on
// copies, a part of the table at a time: f may call the table.
func (t *Table) ForEach(f func(topic, group string, queue int32, offset int64) bool) {
	type entry struct {
		key
		queues map[int32]int64
	}
	for i := range t.shards {
		s := &t.shards[i]
		var entries []entry
		s.mu.RLock()
		for k, queues := range s.offsets {
			entries = append(entries, entry{k, maps.Clone(queues)})
		}
		s.mu.RUnlock()
		for _, e := range entries {
			for queue, offset := range e.queues {
				if !f(e.topic, e.group, queue, offset) {
					return
				}
			}
		}
	}
}

// Groups returns the groups that committed offsets of topic, in no order.
func (t *Table) Groups(topic string) []string {
	var groups []string
	t.each(func(k key) {
		if k.topic == topic {
			groups = append(groups, k.group)
		}
	})
	return groups
}

// Topics returns the topics of which group committed offsets, in no order.
func (t *Table) Topics(group string) []string {
	var topics []string
	t.each(func(k key) {
		if k.group == group {
			topics = append(topics, k.topic)
		}
	})
	return topics
}

func (t *Table) each(f func(key)) {
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.RLock()
		for k := range s.offsets {
			f(k)
		}
		s.mu.RUnlock()
	}
}

// RemoveTopic forgets what every group has read of topic, and returns when that
// is saved: a topic made again under the name must not begin in the middle.
func (t *Table) RemoveTopic(topic string) error {
	return t.remove(func(k key) bool { return k.topic == topic })
}

// RemoveGroup forgets all that group has read, and returns when that is saved.
func (t *Table) RemoveGroup(group string) error {
	return t.remove(func(k key) bool { return k.group == group })
}

func (t *Table) remove(match func(key) bool) error {
	removed := false
	for i := range t.shards {
		s := &t.shards[i]
		s.mu.Lock()
		for k := range s.offsets {
			if match(k) {
				delete(s.offsets, k)
				removed = true
			}
		}
		s.mu.Unlock()
	}
	if removed {
		t.changes.Add(1)
		t.nextVersion()
	}
	// Also when nothing is there: an earlier removal may not have been saved.
	return t.Save()
}
