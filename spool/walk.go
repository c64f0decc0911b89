package spool

import (
	"bytes"
	"encoding/binary"
	"fmt"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// magicPrefix is what the magic numbers of both record versions begin with.
var magicPrefix = []byte{0xDA, 0xA3, 0x20}

const (
	magicPos = 4  // of the magic number in a record
	physPos  = 28 // of the record's own log offset
)

// claimed tells whether a record at log offset pos may begin with data: its
// magic number and its own offset are there.
func claimed(data []byte, pos int64) bool {
	if len(data) < physPos+8 {
		return false
	}
	_, magic, _ := message.Head(data)
	return (magic == message.MagicV1 || magic == message.MagicV2) &&
		int64(binary.BigEndian.Uint64(data[physPos:])) == pos
}

// goodRecord returns the record at log offset pos that data begins with, if it
// is whole and undamaged. A record that lost its end lost its record CRC, too,
// so one without is believed only where there need not be one: before the log
// offset plain, where RocketMQ's broker wrote, in the place of damage, and
// when its properties left no room.
func goodRecord(data []byte, pos, plain int64) (v message.View, ok bool) {
	v, err := message.ViewOf(data)
	if err != nil || v.PhysicalOffset() != pos {
		return v, false
	}
	if !v.HasCRC() && pos >= plain && !isHole(&v) &&
		len(v.Properties()) < message.MaxPropertiesLen-message.CRCSuffixLen {
		return v, false
	}
	return v, v.Verify() == nil
}

// recordAt tells whether data at log offset pos begins with a record or with
// the blank one that ends the segment.
func recordAt(data []byte, pos, end int64) bool {
	if v, err := message.ViewOf(data); err == nil {
		return v.PhysicalOffset() == pos
	}
	size, magic, ok := message.Head(data)
	return ok && magic == message.MagicBlank && int64(size) == end-pos
}

// eachClaim calls f for every place behind the first byte of data, which is at
// log offset pos, where a record claims to be, until f returns false.
func eachClaim(data []byte, pos int64, f func(at int64, data []byte) bool) {
	for from := magicPos + 1; from < len(data); {
		i := bytes.Index(data[from:], magicPrefix)
		if i < 0 {
			return
		}
		at := from + i - magicPos
		if claimed(data[at:], pos+int64(at)) && !f(pos+int64(at), data[at:]) {
			return
		}
		from += i + 1
	}
}

// findRecord returns the log offset of the first good record behind the first
// byte of data, which is at log offset pos. plain is as for goodRecord.
func findRecord(data []byte, pos, plain int64) (found int64, ok bool) {
	eachClaim(data, pos, func(at int64, rest []byte) bool {
		_, ok = goodRecord(rest, at, plain)
		found = at
		return !ok
	})
	return found, ok
}

// A walk goes over the log at Open: it verifies every record, hands those that
// the queues lack to the dispatcher, mends damage and finds the end.
type walk struct {
	s     *Spool
	from  int64 // records from here on are dispatched
	mark  int64 // everything before was durable once
	plain int64 // records from here on carry a record CRC
	pos   int64
	last  int64 // store time of the newest record
	exact bool  // a record began at from, or the log ended there
	used  int   // index of the last segment whose first bytes are not zero
	clean bool  // the spool was stopped properly at from

	quarantined, holes int
}

// run walks from the start of segment i to the end of the log, which it leaves
// in w.pos, and returns the segment it is in.
func (w *walk) run(i int) (*segment.Segment, error) {
	segs := w.s.seq.Segments()
	w.pos = segs[i].Base()
	for {
		seg := w.s.seq.Find(w.pos)
		if seg == nil { // the last segment is full to its end
			seg = segs[len(segs)-1]
			if next, err := w.s.seq.Advance(); err != nil {
				return nil, err
			} else {
				return next, w.publish()
			}
		}
		ended, err := w.segment(seg)
		if err != nil {
			return nil, fmt.Errorf("walk segment %s: %w", segment.FileName(seg.Base()), err)
		}
		if ended {
			return seg, w.publish()
		}
	}
}

func (w *walk) publish() error {
	w.exact = w.exact || w.pos == w.from
	d := &w.s.dispatch
	d.mu.Lock()
	defer d.mu.Unlock()
	return w.s.publishLocked()
}

// segment walks one segment from w.pos on. ended tells that the log ends in
// it; otherwise w.pos is then in a later one.
func (w *walk) segment(seg *segment.Segment) (ended bool, err error) {
	if err := seg.Acquire(); err != nil {
		return false, err
	}
	defer seg.Release()
	defer segment.PanicOnFault()()
	defer segment.CatchFault(&err)
	data := seg.Data()
	for w.pos < seg.End() {
		rest := data[w.pos-seg.Base():]
		if v, ok := goodRecord(rest, w.pos, w.plain); ok {
			if err := w.record(&v); err != nil {
				return false, err
			}
			continue
		}
		if size, magic, ok := message.Head(rest); ok && magic == message.MagicBlank && int(size) == len(rest) {
			w.exact = w.exact || w.pos == w.from
			w.pos = seg.End()
			break
		}
		next, ok, err := w.afterDamage(seg, rest)
		if err != nil || !ok {
			return !ok, err
		}
		w.pos = next
	}
	return false, nil
}

func (w *walk) record(v *message.View) error {
	d := &w.s.dispatch
	w.exact = w.exact || w.pos == w.from
	w.last = max(w.last, v.StoreTimestamp())
	if w.pos >= w.from {
		d.mu.Lock()
		w.s.unit(v)
		var err error
		if len(d.touched) > 0 && w.pos%roundBytes < int64(v.Size()) {
			err = w.s.publishLocked()
		}
		d.mu.Unlock()
		if err != nil {
			return err
		}
	}
	w.pos += int64(v.Size())
	return nil
}

// afterDamage decides what the bytes at w.pos mean, which are no good record:
// the end of the log, or damage in its middle that has to be passed.
//
// The end: no good record follows; or some do, but the place is beyond what
// was ever known to be durable. Then they are parts of writes that a power cut
// tore, nobody was told they are stored, and a queue must not get them without
// those that went missing between.
func (w *walk) afterDamage(seg *segment.Segment, rest []byte) (next int64, goOn bool, err error) {
	size, magic, _ := message.Head(rest)
	zero := size == 0 && magic == 0
	if w.clean && zero && w.pos == w.from {
		return 0, false, nil
	}
	next, found := w.later(seg, rest)
	if found && w.pos < w.mark {
		w.holes++
		return next, true, w.hole(seg, next)
	}
	if found || w.pos < w.mark {
		// Bytes that somebody may miss are copied before they go.
		if err := w.quarantineTail(seg); err != nil {
			return 0, false, err
		}
	}
	return 0, false, w.cut(seg, rest, zero)
}

// later searches for the next good record after the damage at w.pos, in this
// segment and in the used ones after it.
func (w *walk) later(seg *segment.Segment, rest []byte) (int64, bool) {
	if at, ok := findRecord(rest, w.pos, w.plain); ok {
		return at, true
	}
	segs := w.s.seq.Segments()
	for i := range segs[:w.used+1] {
		if segs[i].Base() <= seg.Base() {
			continue
		}
		if at, ok := firstGood(segs[i], w.plain); ok {
			return at, true
		}
	}
	return 0, false
}

// firstGood returns the offset of the first good record in a segment.
func firstGood(seg *segment.Segment, plain int64) (at int64, ok bool) {
	if seg.Acquire() != nil {
		return 0, false
	}
	defer seg.Release()
	if _, ok := goodRecord(seg.Data(), seg.Base(), plain); ok {
		return seg.Base(), true
	}
	return findRecord(seg.Data(), seg.Base(), plain)
}

// cut ends the log at w.pos durably: neither the bytes there nor any record
// that claims its place behind can be taken for part of the log later.
func (w *walk) cut(seg *segment.Segment, rest []byte, zero bool) error {
	var places []int64
	if !zero {
		places = append(places, w.pos)
	}
	eachClaim(rest, w.pos, func(at int64, _ []byte) bool {
		places = append(places, at)
		return true
	})
	if len(places) == 0 {
		return nil
	}
	if err := seg.Reopen(); err != nil {
		return err
	}
	var zeros [cutLen]byte
	for _, at := range places {
		n := min(cutLen, seg.End()-at)
		if _, err := seg.WriteAt(zeros[:n], at); err != nil {
			return err
		}
	}
	w.s.log.Warn("log cut at a torn record", "offset", w.pos, "records dropped", len(places))
	return seg.Sync()
}

// headZero tells whether a segment's first bytes are zero: nothing was
// appended to it, or it was cut at its start.
func headZero(seg *segment.Segment) (zero bool, err error) {
	if err := seg.Acquire(); err != nil {
		return false, err
	}
	defer seg.Release()
	defer segment.PanicOnFault()()
	defer segment.CatchFault(&err)
	size, magic, _ := message.Head(seg.Data())
	return size == 0 && magic == 0, nil
}

// withFirst calls f with the first record of a segment, unverified; it answers
// false when there is none.
func withFirst(seg *segment.Segment, f func(v *message.View)) bool {
	if seg.Acquire() != nil {
		return false
	}
	defer seg.Release()
	var err error
	defer segment.PanicOnFault()()
	defer segment.CatchFault(&err)
	v, verr := message.ViewOf(seg.Data())
	if verr != nil || v.PhysicalOffset() != seg.Base() {
		return false
	}
	f(&v)
	return true
}

// firstStoreTime is the store time of a segment's first record in ms, or 0.
func firstStoreTime(seg *segment.Segment) (ms int64) {
	withFirst(seg, func(v *message.View) { ms = v.StoreTimestamp() })
	return ms
}

// plainEnd finds from where on records carry a record CRC in a log whose
// checkpoint does not say it: RocketMQ's broker wrote the segments before.
func plainEnd(segs []*segment.Segment, used int) int64 {
	for i := used; i >= 0; i-- {
		plain := false
		if !withFirst(segs[i], func(v *message.View) { plain = !v.HasCRC() && !isHole(v) }) {
			continue // nothing there, or damaged
		}
		if plain {
			return segs[i].End()
		}
	}
	return 0
}
