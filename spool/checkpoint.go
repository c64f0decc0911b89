package spool

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"io/fs"
	"sync"
	"time"

	"github.com/sluicemq/sluice/spool/segment"
)

// The checkpoint file, 4096 bytes, big endian. The first fields are RocketMQ's,
// for its broker and tools; recovery uses them only when ours say nothing.
//
//	   0 physicMsgTimestamp 8   store time of the newest durable record, ms
//	   8 logicsMsgTimestamp 8   store time of the newest durably dispatched one
//	  16 indexMsgTimestamp 8    0: there is no index
//	  24 masterFlushedOffset 8  the durable offset
//	  32 confirmPhyOffset 8     the durable offset
//	1024 slot A | 1536 slot B   written in turn, so that one is always whole:
//	     magic 8 "SLUICE\0\1" | sequence 8 | segment size 8 | dispatched 8 |
//	     units 8 | base 8 | mins 8 | plain 8 | entries 8 | last 8 |
//	     back 8 | CRC-32 of the bytes before 4
//	2048 durable offset 8 | CRC-32 of it 4, written after every flush and
//	     synced only with the slots: it may be old, never too new
//
// dispatched is a log offset: the queues durably have the units of all records
// before it. units is the sum of the queues' maximum offsets at that point, and
// mins that of their minimum offsets with the log beginning at base, -1 when
// they were not up to date: queue files that are gone show in them. Records
// from plain on carry a record CRC, those before may do without. entries is the
// number of units in a queue file, last the store time of the newest dispatched
// record, and back the log offset where store time last went back.
const (
	checkpointLen = 4096
	slotA, slotB  = 1024, 1536
	slotLen       = 92
	headLen       = 40
	markAt        = 2048

	slotMagic = 0x534C554943450001
)

// A checkpoint is what the file says.
type checkpoint struct {
	physic, logics int64 // ms since 1970, not covered by a CRC
	slot           *slot // nil when neither slot is whole
	mark           int64 // 0 when not whole
}

type slot struct {
	sequence, segmentBytes, dispatched, units, base, mins, plain, entries, last, back int64
}

func (sl *slot) fields() []*int64 {
	return []*int64{
		&sl.sequence, &sl.segmentBytes, &sl.dispatched, &sl.units, &sl.base,
		&sl.mins, &sl.plain, &sl.entries, &sl.last, &sl.back,
	}
}

func (sl *slot) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, slotLen), slotMagic)
	for _, v := range sl.fields() {
		b = binary.BigEndian.AppendUint64(b, uint64(*v))
	}
	return binary.BigEndian.AppendUint32(b, crc32.ChecksumIEEE(b))
}

func decodeSlot(b []byte) *slot {
	b = b[:slotLen]
	be := binary.BigEndian
	if be.Uint64(b) != slotMagic || be.Uint32(b[slotLen-4:]) != crc32.ChecksumIEEE(b[:slotLen-4]) {
		return nil
	}
	sl := new(slot)
	for i, v := range sl.fields() {
		*v = int64(be.Uint64(b[8+8*i:]))
	}
	return sl
}

func encodeMark(offset int64) (b [12]byte) {
	binary.BigEndian.PutUint64(b[:], uint64(offset))
	binary.BigEndian.PutUint32(b[8:], crc32.ChecksumIEEE(b[:8]))
	return b
}

func decodeCheckpoint(b []byte) checkpoint {
	b = append(b, make([]byte, checkpointLen)...)[:checkpointLen]
	be := binary.BigEndian
	cp := checkpoint{physic: int64(be.Uint64(b)), logics: int64(be.Uint64(b[8:]))}
	cp.slot = decodeSlot(b[slotA:])
	if o := decodeSlot(b[slotB:]); o != nil && (cp.slot == nil || o.sequence > cp.slot.sequence) {
		cp.slot = o
	}
	mark := int64(be.Uint64(b[markAt:]))
	if m := encodeMark(mark); string(m[:]) == string(b[markAt:markAt+len(m)]) && mark >= 0 {
		cp.mark = mark
	}
	return cp
}

// readCheckpoint reads the file; one that is missing says nothing.
func readCheckpoint(fsys segment.FS, path string) (checkpoint, error) {
	b, err := fsys.ReadFile(path)
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		return checkpoint{}, err
	}
	return decodeCheckpoint(b), nil
}

// A checkpointFile writes the checkpoint.
type checkpointFile struct {
	f segment.File

	mu       sync.Mutex // one save at a time
	sequence int64
	scratch  [12]byte // of mark
}

func openCheckpoint(fsys segment.FS, path string) (segment.File, error) {
	f, err := fsys.Open(path)
	if errors.Is(err, fs.ErrNotExist) {
		f, err = fsys.Create(path)
	}
	if err != nil {
		return nil, err
	}
	if size, err := f.Size(); err != nil || size != checkpointLen {
		if err = errors.Join(err, f.Truncate(checkpointLen)); err != nil {
			return nil, errors.Join(err, f.Close())
		}
	}
	return f, nil
}

// mark notes the durable offset. It is a hint for recovery, so a failure is
// left to the next save to report. Only the flush under way calls it.
func (c *checkpointFile) mark(durable int64) {
	c.scratch = encodeMark(durable)
	_, _ = c.f.WriteAt(c.scratch[:], markAt)
}

// saveCheckpoint syncs the queue files and then says so in the checkpoint.
func (s *Spool) saveCheckpoint() error {
	s.check.mu.Lock()
	defer s.check.mu.Unlock()
	sl, files, dirs, err := s.snapshot()
	if err == nil {
		err = s.files.sync(files, dirs)
	}
	if err == nil {
		// Under FlushAsync the queues run ahead of the flushed log.
		err = s.flushTo(context.Background(), sl.dispatched)
	}
	if err == nil {
		err = s.check.save(sl, s.durable.Load())
	}
	if err != nil {
		return fmt.Errorf("save checkpoint: %w", err)
	}
	s.checked.Store(sl.dispatched)
	return nil
}

// snapshot is what the next checkpoint says, and what has to be synced before.
func (s *Spool) snapshot() (sl slot, files map[fileKey]struct{}, dirs map[string]struct{}, err error) {
	d := &s.dispatch
	d.mu.Lock()
	defer d.mu.Unlock()
	if err := s.files.rewriteSuspects(); err != nil {
		return sl, nil, nil, err
	}
	sl = slot{
		segmentBytes: s.o.SegmentBytes, dispatched: d.pos.Load(), units: d.units,
		base: s.seq.Base(), mins: s.sumMins(), plain: s.plain,
		entries: s.files.entries, last: d.lastStore, back: s.backAt.Load(),
	}
	if s.minsFor.Load() != sl.base {
		sl.mins = -1
	}
	files, dirs = s.files.takeDirty()
	return sl, files, dirs, nil
}

// save writes RocketMQ's fields and one slot, durably.
func (c *checkpointFile) save(sl slot, durable int64) error {
	head := make([]byte, 0, headLen)
	// What is dispatched is stored: one time serves for both.
	for _, v := range []int64{sl.last, sl.last, 0, durable, durable} {
		head = binary.BigEndian.AppendUint64(head, uint64(v))
	}
	c.sequence++
	sl.sequence = c.sequence
	at := int64(slotA)
	if sl.sequence%2 == 0 {
		at = slotB
	}
	_, err1 := c.f.WriteAt(head, 0)
	_, err2 := c.f.WriteAt(sl.encode(), at)
	if err := errors.Join(err1, err2); err != nil {
		return err
	}
	return c.f.Sync()
}

const (
	checkpointInterval = 5 * time.Second
	// checkpointBytes of dispatched log bring the next checkpoint forward:
	// they are what a restart after a power cut has to dispatch again.
	checkpointBytes = 256 << 20
)

// runCheckpoint saves the checkpoint while the log grows.
func (s *Spool) runCheckpoint(ctx context.Context) error {
	const look = checkpointInterval / 10
	t := time.NewTicker(look)
	defer t.Stop()
	for quiet := 0; ; quiet++ {
		select {
		case <-t.C:
		case <-ctx.Done():
			return nil
		}
		behind := s.dispatch.pos.Load() - s.checked.Load()
		if behind == 0 || behind < checkpointBytes && quiet < 10 {
			continue
		}
		quiet = 0
		if err := s.saveCheckpoint(); err != nil {
			s.log.Error("queues are not durable", "err", err)
		}
	}
}
