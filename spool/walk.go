package spool

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"unsafe"

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

// A span is a part of the log, [from, to).
type span struct{ from, to int64 }

func (s span) has(offset int64) bool { return s.from <= offset && offset < s.to }

// goodRecord returns the record at log offset pos that data begins with, if it
// is whole and undamaged. A record that lost its end lost its record CRC, too,
// so one without is believed only where there need not be one: outside of
// sealed, where RocketMQ's broker wrote, in the place of damage, and when its
// properties left no room. One that the device cannot read is not good.
func goodRecord(data []byte, pos int64, sealed span) (v message.View, ok bool) {
	var err error
	defer segment.CatchFault(&err)
	v, err = message.ViewOf(data)
	if err != nil || v.PhysicalOffset() != pos {
		return v, false
	}
	if !v.HasCRC() && sealed.has(pos) && !isHole(&v) &&
		len(v.Properties()) < message.MaxPropertiesLen-message.CRCSuffixLen {
		return v, false
	}
	return v, v.Verify() == nil
}

// readHead is message.Head for bytes that the device may not be able to read:
// what it answers then is nothing that can stand there.
func readHead(data []byte) (size int32, magic uint32) {
	size, magic = -1, 0
	var err error
	defer segment.CatchFault(&err)
	size, magic, _ = message.Head(data)
	return size, magic
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
// log offset pos, where a record claims to be, until f returns false. Pages
// that the device cannot read are passed.
func eachClaim(data []byte, pos int64, f func(at int64, data []byte) bool) {
	for from := 1; from < len(data); {
		at, bad := nextClaim(data, from, pos)
		switch {
		case bad >= 0: // on with the page behind; mappings begin with a page
			skip := pageSize - (pos+int64(bad))%pageSize
			from = bad + int(skip)
		case at < 0 || !f(pos+int64(at), data[at:]):
			return
		default:
			from = at + 1
		}
	}
}

// nextClaim returns the first index from on where a record claims to be, or -1.
// If it meets a byte that cannot be read, bad is its index, otherwise -1.
func nextClaim(data []byte, from int, pos int64) (at, bad int) {
	var err error
	at, bad = -1, -1
	defer func() {
		var fault *segment.FaultError
		if errors.As(err, &fault) {
			at, bad = -1, max(from, int(fault.Addr-uintptr(unsafe.Pointer(unsafe.SliceData(data)))))
		}
	}()
	defer segment.CatchFault(&err)
	for i := from + magicPos; i < len(data); {
		n := bytes.Index(data[i:], magicPrefix)
		if n < 0 {
			break
		}
		i += n
		if claimed(data[i-magicPos:], pos+int64(i-magicPos)) {
			return i - magicPos, -1
		}
		i++
	}
	return -1, -1
}

// findRecord returns the log offset of the first good record behind the first
// byte of data, which is at log offset pos. sealed is as for goodRecord.
func findRecord(data []byte, pos int64, sealed span) (found int64, ok bool) {
	eachClaim(data, pos, func(at int64, rest []byte) bool {
		_, ok = goodRecord(rest, at, sealed)
		found = at
		return !ok
	})
	return found, ok
}

// A walk goes over the log at Open: it verifies every record, hands those that
// the queues lack to the dispatcher, mends damage and finds the end.
type walk struct {
	s    *Spool
	from int64 // records from here on are dispatched
	mark int64 // everything before was durable once
	// sealed is where records must carry a record CRC.
	sealed span
	pos    int64
	last   int64 // store time of the newest record, 0 before the first
	// before is the store time of the newest record before from, back where
	// store time last went back: 0 when not known.
	before, back int64
	exact        bool // a record began at from, or the log ended there
	used         int  // index of the last segment whose first bytes are not zero
	clean        bool // the spool was stopped properly at from

	holes int
}

// run walks from the start of segment i to the end of the log, which it leaves
// in w.pos, and returns the segment it is in.
func (w *walk) run(i int) (*segment.Segment, error) {
	w.pos = w.s.seq.Segments()[i].Base()
	for {
		seg := w.s.seq.Find(w.pos)
		if seg == nil { // the last segment is full to its end
			next, err := w.s.seq.Advance()
			if err != nil {
				return nil, err
			}
			return next, w.publish()
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
		if v, ok := goodRecord(rest, w.pos, w.sealed); ok {
			if err := w.record(&v); err != nil {
				return false, err
			}
			continue
		}
		if size, magic := readHead(rest); magic == message.MagicBlank && int(size) == len(rest) {
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
	w.last = v.StoreTimestamp()
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
	size, magic := readHead(rest)
	zero := size == 0 && magic == 0
	if w.clean && zero && w.pos == w.from {
		return 0, false, nil
	}
	next, found, err := w.later(seg, rest)
	if err != nil {
		return 0, false, err
	}
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
func (w *walk) later(seg *segment.Segment, rest []byte) (next int64, ok bool, err error) {
	if at, ok := findRecord(rest, w.pos, w.sealed); ok {
		return at, true, nil
	}
	segs := w.s.seq.Segments()
	for i := range segs[:w.used+1] {
		if segs[i].Base() <= seg.Base() {
			continue
		}
		if at, ok, err := firstGood(segs[i], w.sealed); ok || err != nil {
			return at, ok, err
		}
	}
	return 0, false, nil
}

// firstGood returns the offset of the first good record in a segment.
func firstGood(seg *segment.Segment, sealed span) (at int64, ok bool, err error) {
	if err := seg.Acquire(); err != nil {
		return 0, false, err
	}
	defer seg.Release()
	if _, ok := goodRecord(seg.Data(), seg.Base(), sealed); ok {
		return seg.Base(), true, nil
	}
	at, ok = findRecord(seg.Data(), seg.Base(), sealed)
	return at, ok, nil
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
	size, magic := readHead(seg.Data())
	return size == 0 && magic == 0, nil
}

// withFirst calls f with the first record of a segment, unverified; ok is false
// when there is none.
func withFirst(seg *segment.Segment, f func(v *message.View)) (ok bool, err error) {
	if err := seg.Acquire(); err != nil {
		return false, err
	}
	defer seg.Release()
	defer segment.PanicOnFault()()
	v, ok := placedView(seg.Data(), seg.Base())
	if ok {
		f(&v)
	}
	return ok, nil
}

// firstStoreTime is the store time of a segment's first record in ms, or 0.
func firstStoreTime(seg *segment.Segment) (ms int64) {
	_, _ = withFirst(seg, func(v *message.View) { ms = v.StoreTimestamp() })
	return ms
}
