package spool

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

const (
	// roundBytes is how much of the log one round takes before it publishes.
	roundBytes = 4 << 20
	// gapSize in a unit's size field marks an offset without a message, as
	// RocketMQ does before the first unit of a queue.
	gapSize = math.MaxInt32
	// maxGap bounds the offsets that one record may skip. More is not
	// believed.
	maxGap = 16 << 20
	// maxQueueOffset bounds what is believed to be a queue offset.
	maxQueueOffset = 1 << 50
	// dispatchPause follows a failed write or read before the next try.
	dispatchPause = 100 * time.Millisecond
)

// A dispatcher follows the log and writes consume queue units. One round reads
// some records, collects their units per queue, writes each queue's units with
// one write, and makes them readable.
type dispatcher struct {
	wake chan struct{}
	pos  atomic.Int64 // records before it are in their queues; set under mu

	// mu is held for a round, and by whoever else changes queue files.
	mu        sync.Mutex
	touched   []*Queue // queues with pending units
	units     int64    // sum of all queues' max
	lastStore int64    // store time of the newest dispatched record, ms
	last      *topic   // of the record before
	buffers   [][]byte // for pending units
	// rebuilding is set while Open dispatches the whole log into empty queues.
	rebuilding bool
	// started are queues that Open found the first kept message of.
	started map[*Queue]bool
	view    message.View
}

func (d *dispatcher) nudge() { nudge(d.wake) }

// runDispatch follows the log until ctx ends. It never gives up: what cannot
// be read is counted and skipped, what cannot be written is tried again.
func (s *Spool) runDispatch(ctx context.Context) error {
	failing := false
	for {
		switch err := s.dispatchRound(); {
		case errors.Is(err, errCaughtUp):
			failing = false
			select {
			case <-s.dispatch.wake:
			case <-ctx.Done():
				return nil
			}
		case err != nil:
			s.counters.dispatchErrors.Add(1)
			if !failing { // once, not ten times a second
				s.log.Error("dispatch; trying on", "offset", s.dispatch.pos.Load(), "err", err)
			}
			failing = true
			if noSpace(err) {
				s.dropBallast()
			}
			select {
			case <-time.After(dispatchPause):
			case <-ctx.Done():
				return nil
			}
		}
		if ctx.Err() != nil {
			return nil
		}
	}
}

// dispatchAll dispatches everything readable.
func (s *Spool) dispatchAll() error {
	for {
		if err := s.dispatchRound(); errors.Is(err, errCaughtUp) {
			return nil
		} else if err != nil {
			return fmt.Errorf("dispatch: %w", err)
		}
	}
}

var errCaughtUp = errors.New("nothing to dispatch")

// dispatchRound does one round; errCaughtUp when there was nothing to do.
func (s *Spool) dispatchRound() (err error) {
	d := &s.dispatch
	d.mu.Lock()
	defer d.mu.Unlock()
	// Units that an earlier round could not write come first.
	if len(d.touched) > 0 {
		if err := s.publishLocked(); err != nil {
			return err
		}
	}
	pos, limit := max(d.pos.Load(), s.seq.Base()), s.readable()
	if pos >= limit {
		return errCaughtUp
	}
	pos, err = s.collectLocked(pos, limit)
	// What was collected is written even when the next record was unreadable.
	err = errors.Join(err, s.publishLocked())
	if len(d.touched) == 0 {
		d.pos.Store(pos)
	}
	return err
}

// collectLocked reads records of one segment from pos on and returns where the
// next round begins.
func (s *Spool) collectLocked(pos, limit int64) (next int64, err error) {
	seg := s.seq.Find(pos)
	if seg == nil {
		return pos, fmt.Errorf("no segment at %d", pos)
	}
	if err := seg.Acquire(); err != nil {
		return pos, err
	}
	defer seg.Release()
	defer segment.PanicOnFault()()
	data := seg.Data()[:min(limit, seg.End())-seg.Base()]
	next, err = s.collectSome(data, seg.Base(), pos, seg.End())
	if errors.Is(err, segment.ErrFault) {
		// The device cannot read the record at next.
		skip := int64(len(data)) - (next - seg.Base())
		if at, ok := findRecord(data[next-seg.Base():], next, s.sealed()); ok {
			skip = at - next
		}
		s.counters.badRecords.Add(1)
		s.log.Error("record skipped", "offset", next, "bytes", skip, "err", err)
		return next + skip, nil
	}
	return next, err
}

// collectSome reads records from pos on, up to the end of data, which begins
// at log offset base, or until it has enough for a round.
func (s *Spool) collectSome(data []byte, base, pos, end int64) (next int64, err error) {
	defer segment.CatchFault(&err)
	stop := min(base+int64(len(data)), pos+roundBytes)
	for next = pos; next < stop; {
		next += s.dispatchOne(data[next-base:], next, end)
	}
	return next, nil
}

// dispatchOne collects the record that data begins with and returns its length.
func (s *Spool) dispatchOne(data []byte, pos, end int64) int64 {
	v := &s.dispatch.view
	var err error
	*v, err = message.ViewOf(data)
	if err == nil && v.PhysicalOffset() == pos {
		s.unit(v)
		return int64(v.Size())
	}
	size, magic, _ := message.Head(data)
	if magic == message.MagicBlank && int64(size) == end-pos {
		return int64(size)
	}
	// Damaged since it was written. If the size leads to the next record it is
	// to be trusted, else the next one is searched for.
	skip := int64(size)
	if skip < cutLen || skip >= int64(len(data)) || !recordAt(data[skip:], pos+skip, end) {
		skip = int64(len(data))
		if g, ok := findRecord(data, pos, s.sealed()); ok {
			skip = g - pos
		}
	}
	s.counters.badRecords.Add(1)
	s.log.Error("record skipped", "offset", pos, "bytes", skip, "err", err)
	return skip
}

// sealed is where records carry a record CRC.
func (s *Spool) sealed() span { return span{s.plain, math.MaxInt64} }

// unit adds the unit of one record to its queue's pending ones. Half messages
// and rollbacks have none.
func (s *Spool) unit(v *message.View) {
	d := &s.dispatch
	d.lastStore = v.StoreTimestamp()
	if tx := v.SysFlag().Transaction(); tx != 0 && tx != message.TransactionCommit {
		return
	}
	if d.last == nil || d.last.name != string(v.Topic()) {
		d.last = s.table.topic(v.Topic())
	}
	tp := d.last
	phys := v.PhysicalOffset()
	if phys < tp.deletedAt || v.QueueID() < 0 || !validTopic(tp.name) {
		return
	}
	q := s.table.queue(s, tp, v.QueueID())
	at := v.QueueOffset()
	next := q.max.Load() + int64(len(q.pending)/unitSize)
	if at != next && !s.skipTo(q, next, at, phys) {
		return
	}
	tags, _ := message.Property(v.Properties(), message.PropertyTags)
	d.add(q, phys, int32(v.Size()), message.TagHash(tags))
}

// skipTo brings a queue to offset at, when its next unit would be at next. It
// answers false for a record that has its unit already, as when the log is
// dispatched again, or whose offset cannot be true.
func (s *Spool) skipTo(q *Queue, next, at, phys int64) bool {
	d := &s.dispatch
	empty := len(q.pending) == 0 && q.min.Load() == q.max.Load()
	// Of a first and a second record that do not fit together, the second is
	// believed: records of RocketMQ's broker have no CRC over their offset.
	doubtful := d.started[q] && next-q.min.Load() == 1
	switch {
	case at < 0 || at > maxQueueOffset:
		return s.badOffset(q, next, at, phys)
	case next == 0 || d.rebuilding && empty || doubtful && at < next:
		return s.startQueue(q, at)
	case at < next:
		return false
	case at-next > maxGap:
		return s.badOffset(q, next, at, phys)
	}
	s.counters.gaps.Add(at - next)
	s.log.Error("messages missing from queue", "topic", q.Topic(), "queue", q.id, "from", next, "to", at)
	for ; next < at; next++ {
		d.add(q, phys, gapSize, 0)
	}
	return true
}

func (s *Spool) badOffset(q *Queue, next, at, phys int64) bool {
	s.counters.badRecords.Add(1)
	s.log.Error("record with impossible queue offset", "topic", q.Topic(), "queue", q.id,
		"offset", phys, "want", next, "got", at)
	return false
}

// startQueue makes at the first offset of a queue whose earlier messages were
// deleted with their segments. As in RocketMQ's files, the offsets before it
// in the same file get units without a message. This happens in recovery only.
func (s *Spool) startQueue(q *Queue, at int64) bool {
	d := &s.dispatch
	d.units -= q.max.Load()
	if err := s.removeQueueFiles(q); err != nil {
		s.log.Error("remove queue files", "topic", q.Topic(), "queue", q.id, "err", err)
		return false
	}
	first := at - at%s.files.entries
	d.units += first
	q.pending = q.pending[:0]
	d.started[q] = true
	q.max.Store(first)
	q.min.Store(at)
	for range at - first {
		d.add(q, 0, gapSize, 0)
	}
	return true
}

// add appends a unit (RocketMQ consume queue format):
//
//	0 commit log offset 8 | 8 record size 4 | 12 tags code 8
func (d *dispatcher) add(q *Queue, phys int64, size int32, tags int64) {
	if len(q.pending) == 0 {
		d.touched = append(d.touched, q)
		if n := len(d.buffers); q.pending == nil && n > 0 {
			q.pending, d.buffers = d.buffers[n-1], d.buffers[:n-1]
		}
	}
	p := binary.BigEndian.AppendUint64(q.pending, uint64(phys))
	p = binary.BigEndian.AppendUint32(p, uint32(size))
	q.pending = binary.BigEndian.AppendUint64(p, uint64(tags))
}

// publishLocked writes the pending units and makes them readable. Queues whose
// write failed keep theirs and stay in touched.
func (s *Spool) publishLocked() error {
	d := &s.dispatch
	var errs []error
	kept := d.touched[:0]
	for _, q := range d.touched {
		from := q.max.Load()
		if err := s.files.write(q, from, q.pending); err != nil {
			errs = append(errs, fmt.Errorf("%s queue %d: %w", q.Topic(), q.id, err))
			kept = append(kept, q)
			continue
		}
		n := int64(len(q.pending) / unitSize)
		d.units += n
		d.buffers = append(d.buffers, q.pending[:0])
		q.pending = nil
		q.publish(from + n)
	}
	clear(d.touched[len(kept):])
	d.touched = kept
	return errors.Join(errs...)
}
