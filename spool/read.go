package spool

import (
	"errors"
	"fmt"
	"io/fs"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// A Limit bounds what one Read returns. The first record is returned whatever
// its size. Zero or less means 1 message, or no bound on bytes.
type Limit struct{ Messages, Bytes int }

// A Filter decides by the tags code in a queue unit whether the record is
// wanted. nil wants all.
type Filter func(tagsCode int64) bool

// A ReadStatus says what a Read met, in RocketMQ's terms.
type ReadStatus int

// The statuses of a Read, with what ReadResult.Next is.
const (
	Found               ReadStatus = iota // records were found; after the last one examined
	NoMatchedMessage                      // none of the examined ones matched; after the last one examined
	MessageWasRemoving                    // the examined ones are not in the log any more; after the last one
	OffsetFoundNull                       // the queue's file is not there; the first offset of the next file
	OffsetOverflowBadly                   // the offset is beyond Max; Max
	OffsetOverflowOne                     // the offset is Max: nothing yet; the offset
	OffsetTooSmall                        // the offset is below Min; Min
	NoMatchedLogicQueue                   // no such queue; 0
	NoMessageInQueue                      // the queue never had a message; 0
)

var readStatusNames = [...]string{
	"FOUND", "NO_MATCHED_MESSAGE", "MESSAGE_WAS_REMOVING", "OFFSET_FOUND_NULL", "OFFSET_OVERFLOW_BADLY",
	"OFFSET_OVERFLOW_ONE", "OFFSET_TOO_SMALL", "NO_MATCHED_LOGIC_QUEUE", "NO_MESSAGE_IN_QUEUE",
}

// String is RocketMQ's name of the status.
func (s ReadStatus) String() string {
	if s < 0 || int(s) >= len(readStatusNames) {
		return fmt.Sprintf("ReadStatus(%d)", int(s))
	}
	return readStatusNames[s]
}

// A ReadResult says where to read on and what the queue holds.
type ReadResult struct {
	Status   ReadStatus
	Next     int64 // queue offset to read from next
	Min, Max int64
	// Err is set when something kept the read from going on that may pass, as a
	// lack of memory or of file handles; Next is where it stopped.
	Err error
}

// unitsAtOnce is how many units a Read takes from the queue file at a time.
const unitsAtOnce = 128

// minScan is how many units a Read examines at least before it gives up
// finding a match: RocketMQ's 16000 bytes of queue.
const minScan = 16000 / unitSize

// Read puts the messages of q from offset on that filter wants into the empty
// into, up to limit. They are valid until into.Release, which the caller owes
// whatever the status. It examines at most max(800, limit.Messages) messages.
// It takes no lock that appends take.
func (s *Spool) Read(q *Queue, offset int64, limit Limit, filter Filter, into *Records) ReadResult {
	if q == nil {
		return ReadResult{Status: NoMatchedLogicQueue}
	}
	r := ReadResult{Min: q.Min(), Max: q.Max()}
	switch {
	case r.Max == 0:
		r.Status = NoMessageInQueue
		return r
	case offset < r.Min:
		r.Status, r.Next = OffsetTooSmall, r.Min
		return r
	case offset == r.Max:
		r.Status, r.Next = OffsetOverflowOne, offset
		return r
	case offset > r.Max:
		r.Status, r.Next = OffsetOverflowBadly, r.Max
		return r
	}
	defer segment.PanicOnFault()()
	limit.Messages = max(limit.Messages, 1)
	end := min(r.Max, offset+int64(max(minScan, limit.Messages)))
	s.scan(q, offset, end, limit, filter, into, &r)
	return r
}

// scan examines units [at, end) and sets the status and where to go on.
func (s *Spool) scan(q *Queue, at, end int64, limit Limit, filter Filter, into *Records, r *ReadResult) {
	if cap(into.units) == 0 {
		into.units = make([]byte, unitsAtOnce*unitSize)
	}
	r.Status = NoMatchedMessage
	for at < end && into.Len() < limit.Messages {
		n := min(end-at, unitsAtOnce)
		if filter == nil {
			n = min(n, int64(limit.Messages-into.Len()))
		}
		got, err := s.files.read(q, at, into.units[:n*unitSize])
		if got == 0 {
			if errors.Is(err, fs.ErrNotExist) && into.Len() == 0 {
				r.Status = OffsetFoundNull
				at = min(end, (at/s.files.entries+1)*s.files.entries)
			} else {
				s.readError(q, at, err)
				r.Err = err
			}
			break
		}
		for i := range got {
			u := parseUnit(into.units[i*unitSize:])
			if filter != nil && !filter(u.tags) && !u.gap() {
				at++
				continue
			}
			full, err := s.take(u, at, limit, into)
			if full || err != nil && !gone(err) {
				r.Next, r.Err = at, err
				return
			}
			at++
			if err != nil && into.Len() == 0 {
				r.Status = MessageWasRemoving
			} else if err == nil {
				r.Status = Found
				if into.Len() == limit.Messages {
					break
				}
			}
		}
	}
	r.Next = at
}

// take adds the record of the unit at a queue offset. full tells that it is
// over the limit; an error that the record is not there.
func (s *Spool) take(u unit, at int64, limit Limit, into *Records) (full bool, err error) {
	if into.Len() > 0 && limit.Bytes > 0 && into.bytes+int(u.size) > limit.Bytes && !u.gap() {
		return true, nil
	}
	if u.gap() {
		return false, errNoRecord
	}
	v, err := s.record(u.phys, into)
	if err != nil {
		return false, err
	}
	if v.Size() != int(u.size) || v.QueueOffset() != at {
		s.counters.unreadable.Add(1)
		return false, errNoRecord
	}
	into.add(v.Bytes())
	return false, nil
}

var errNoRecord = errors.New("no record there")

// gone tells whether an error means that a record will not be there next time.
func gone(err error) bool {
	return errors.Is(err, errNoRecord) || errors.Is(err, segment.ErrRetired) || errors.Is(err, segment.ErrFault)
}

// record returns the record at a log offset, pinned by into.
func (s *Spool) record(phys int64, into *Records) (v message.View, err error) {
	seg := s.seq.Find(phys)
	if seg == nil || phys >= s.readable() {
		return v, errNoRecord
	}
	if err := into.pin(seg); err != nil {
		return v, err
	}
	if v, err = viewAt(seg.Data()[phys-seg.Base():], phys); err != nil {
		s.counters.unreadable.Add(1)
		return v, fmt.Errorf("offset %d: %w", phys, err)
	}
	return v, nil
}

// viewAt is the record at a log offset that data begins with.
func viewAt(data []byte, phys int64) (message.View, error) {
	v, ok := placedView(data, phys)
	if !ok || isHole(&v) {
		return v, errNoRecord
	}
	return v, nil
}

// placedView is the same, a hole included. ok is false also for what the device
// cannot read.
func placedView(data []byte, phys int64) (v message.View, ok bool) {
	var err error
	defer segment.CatchFault(&err)
	v, err = message.ViewOf(data)
	return v, err == nil && v.PhysicalOffset() == phys
}

// ReadAt puts the one record that begins at a log offset into the empty into;
// the caller owes into.Release. The error says that there is no readable one.
func (s *Spool) ReadAt(physicalOffset int64, into *Records) error {
	if physicalOffset < s.seq.Base() {
		return fmt.Errorf("read at %d: %w, the log begins at %d", physicalOffset, errNoRecord, s.seq.Base())
	}
	defer segment.PanicOnFault()()
	v, err := s.record(physicalOffset, into)
	if err != nil {
		return fmt.Errorf("read at %d: %w", physicalOffset, err)
	}
	into.add(v.Bytes())
	return nil
}

func (s *Spool) readError(q *Queue, at int64, err error) {
	s.counters.unreadable.Add(1)
	s.log.Error("read queue", "topic", q.Topic(), "queue", q.id, "offset", at, "err", err)
}
