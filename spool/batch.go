package spool

import (
	"errors"
	"fmt"

	"github.com/sluicemq/sluice/protocol/message"
)

// Errors of Batch.Add.
var (
	// ErrTooLarge: the message is above MaxMessageBytes, or its record or
	// group does not fit into a segment.
	ErrTooLarge = errors.New("message too large")
	// ErrBadTopic: the topic's name cannot be stored.
	ErrBadTopic = errors.New("bad topic name")
)

// A Batch collects encoded records for one Append. It is made to be used again
// and again by one goroutine, and then allocates nothing. The zero value is
// ready.
//
//	buf      | record | record | record | ...
//	entries  | queue, start, end, group, result | ...
//
// Entries with the same group number are stored together or not at all.
type Batch struct {
	buf     []byte
	entries []entry
	groups  int32
	end     int64
	reserve bool
}

type entry struct {
	queue      *Queue
	start, end int
	group      int32
	// queued is false for half messages and rollbacks: they take no offset.
	queued bool
	result Result
}

// A Result says what became of one message of a batch.
type Result struct {
	PhysicalOffset int64 // position in the commit log, in bytes
	QueueOffset    int64 // position in the queue
	StoreTimestamp int64 // ms since 1970
	Err            error // not stored, and why
}

// Reset empties the batch and keeps its memory.
func (b *Batch) Reset() {
	clear(b.entries)
	b.buf, b.entries, b.groups, b.end, b.reserve = b.buf[:0], b.entries[:0], 0, 0, false
}

// UseReserve lets the batch's messages in where MaxBytes refuses others, up to
// one segment beyond it: for what must be stored so that a full store can be
// emptied. Reset takes the permission back.
func (b *Batch) UseReserve() { b.reserve = true }

// Len is the number of messages added.
func (b *Batch) Len() int { return len(b.entries) }

// Size is the number of bytes of the records added.
func (b *Batch) Size() int { return len(b.buf) }

// Result is what Append did with message i.
func (b *Batch) Result(i int) Result { return b.entries[i].result }

// End is the log offset after the batch's last stored message: what
// WaitDurable takes. It is 0 when nothing was stored.
func (b *Batch) End() int64 { return b.end }

// Add encodes m for q and returns its index in the batch. Topic and queue
// number are q's; a missing store host is the spool's. m is not kept. On error
// nothing is added.
func (b *Batch) Add(q *Queue, m *message.Message) (int, error) {
	if err := b.encode(q, m); err != nil {
		return 0, err
	}
	b.groups++
	return len(b.entries) - 1, nil
}

// AddGroup adds messages that get consecutive offsets in one segment, all or
// none of them, and returns the index of the first.
func (b *Batch) AddGroup(q *Queue, ms []message.Message) (first int, err error) {
	first, start := len(b.entries), len(b.buf)
	for i := range ms {
		if err = b.encode(q, &ms[i]); err != nil {
			break
		}
	}
	if size := len(b.buf) - start; err == nil && int64(size)+cutLen > q.spool.o.SegmentBytes {
		err = fmt.Errorf("%w: group of %d bytes, segments have %d", ErrTooLarge, size, q.spool.o.SegmentBytes)
	}
	if err != nil {
		clear(b.entries[first:])
		b.entries, b.buf = b.entries[:first], b.buf[:start]
		return 0, err
	}
	b.groups++
	return first, nil
}

// Join makes one group of all messages added, whatever their queues: all of them
// are stored or none. It fails with ErrTooLarge, and changes nothing, when they do
// not fit into a segment together.
func (b *Batch) Join() error {
	if len(b.entries) == 0 {
		return nil
	}
	segment := b.entries[0].queue.spool.o.SegmentBytes
	if int64(len(b.buf))+cutLen > segment {
		return fmt.Errorf("%w: %d messages of %d bytes together, segments have %d", ErrTooLarge, len(b.entries), len(b.buf), segment)
	}
	for i := range b.entries {
		b.entries[i].group = 0
	}
	b.groups = 1
	return nil
}

func (b *Batch) encode(q *Queue, m *message.Message) error {
	o := &q.spool.o
	if len(m.Body) > o.MaxMessageBytes {
		return fmt.Errorf("%w: body of %d bytes, at most %d", ErrTooLarge, len(m.Body), o.MaxMessageBytes)
	}
	if !validTopic(q.topic.name) || q.id < 0 {
		return fmt.Errorf("%w: %q queue %d", ErrBadTopic, q.topic.name, q.id)
	}
	c := *m
	c.Topic, c.QueueID = q.topic.name, q.id
	if !c.StoreHost.IsValid() {
		c.StoreHost = o.StoreHost
	}
	start := len(b.buf)
	buf, err := message.AppendRecord(b.buf, &c, true)
	if err != nil {
		return fmt.Errorf("append to %s: %w", q.topic.name, err)
	}
	size := len(buf) - start
	if size > o.MaxMessageBytes+recordOverhead || int64(size)+cutLen > o.SegmentBytes {
		return fmt.Errorf("%w: record of %d bytes", ErrTooLarge, size)
	}
	b.buf = buf
	tx := m.SysFlag.Transaction()
	b.entries = append(b.entries, entry{
		queue: q, start: start, end: len(buf), group: b.groups,
		queued: tx == 0 || tx == message.TransactionCommit,
	})
	return nil
}
