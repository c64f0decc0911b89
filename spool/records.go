package spool

import (
	"fmt"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// Records are the result of a Read: slices of mapped log files, held there
// until Release. A Records is meant to be used again and again by one
// goroutine, and then allocates nothing. The zero value is ready.
type Records struct {
	recs  [][]byte
	pins  []*segment.Segment
	bytes int
	units []byte // scratch of Read
	err   error
}

// Len is the number of records.
func (r *Records) Len() int { return len(r.recs) }

// Bytes is the length of all records together, as stored.
func (r *Records) Bytes() int { return r.bytes }

// Err tells why the last Each or AppendTo ended early: the device could not
// read the mapped file.
func (r *Records) Err() error { return r.err }

// Each calls f with one record after the other until it returns false. A
// record is as stored, including its record CRC property, and is only valid
// until Release.
func (r *Records) Each(f func(record []byte) bool) {
	r.err = nil
	defer segment.PanicOnFault()()
	defer segment.CatchFault(&r.err)
	for _, rec := range r.recs {
		if !f(rec) {
			return
		}
	}
}

// AppendTo appends copies of the records without their record CRC to dst: what
// a pull answer carries. It copies each byte once. When a record cannot be
// read, the records before it are appended and Err tells why.
func (r *Records) AppendTo(dst []byte) []byte {
	r.err = nil
	defer segment.PanicOnFault()()
	whole := len(dst)
	for _, rec := range r.recs {
		next, err := appendStripped(dst, rec)
		if err != nil {
			r.err = fmt.Errorf("copy record: %w", err)
			return dst[:whole]
		}
		dst, whole = next, len(next)
	}
	return dst
}

func appendStripped(dst, rec []byte) (out []byte, err error) {
	defer segment.CatchFault(&err)
	return message.AppendStripped(dst, rec), nil
}

// Release lets go of the log files. The records must not be used any more.
func (r *Records) Release() {
	for i, seg := range r.pins {
		seg.Release()
		r.pins[i] = nil
	}
	clear(r.recs)
	r.recs, r.pins, r.bytes, r.err = r.recs[:0], r.pins[:0], 0, nil
}

// pin holds seg for the records' life; once is enough for any number of them.
func (r *Records) pin(seg *segment.Segment) error {
	for _, p := range r.pins {
		if p == seg {
			return nil
		}
	}
	if err := seg.Acquire(); err != nil {
		return err
	}
	r.pins = append(r.pins, seg)
	return nil
}

func (r *Records) add(rec []byte) {
	r.recs = append(r.recs, rec)
	r.bytes += len(rec)
}
