package spool

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// holeTopic is the topic of records that stand in for damaged bytes. They are
// of the rollback type, so no queue gets them, ours or RocketMQ's.
const holeTopic = "_"

// holeMax is the length of the longest hole record; longer damage gets several.
const holeMax = 16 << 20

// isHole tells whether a record stands in for damaged bytes.
func isHole(v *message.View) bool {
	return v.SysFlag().Transaction() == message.TransactionRollback && string(v.Topic()) == holeTopic
}

// hole makes the log walkable again between w.pos, where damage begins, and
// next, where the next good record is: the damaged bytes are copied to the
// quarantine and then overwritten.
//
//	damage within a segment      | hole record(s), zeros as body | good record
//	damage to a segment's end    | blank record | ...            ‖ next segment
func (w *walk) hole(seg *segment.Segment, next int64) error {
	segs := w.s.seq.Segments()
	for i := range segs {
		s := segs[i]
		from, to := max(w.pos, s.Base()), min(next, s.End())
		if from >= to {
			continue
		}
		if err := w.quarantine(s, from, to); err != nil {
			return err
		}
		if err := w.fillHole(s, from, to); err != nil {
			return fmt.Errorf("hole at %d: %w", from, err)
		}
	}
	return nil
}

func (w *walk) fillHole(seg *segment.Segment, from, to int64) error {
	if err := seg.Reopen(); err != nil {
		return err
	}
	overhead := int64(message.RecordSize(&message.Message{Topic: holeTopic}, false))
	var b []byte
	for at := from; at < to; at += int64(len(b)) {
		if to == seg.End() || to-at < overhead {
			b = message.BlankRecord(b[:0], int32(seg.End()-at))
			if _, err := seg.WriteAt(b, at); err != nil {
				return err
			}
			break
		}
		n := to - at
		if n > holeMax {
			n = holeMax - overhead // what is left is then long enough for another
		}
		m := message.Message{
			Topic: holeTopic, SysFlag: message.TransactionRollback,
			PhysicalOffset: at, StoreTimestamp: w.last, Body: make([]byte, n-overhead),
		}
		var err error
		if b, err = message.AppendRecord(b[:0], &m, false); err != nil {
			return err
		}
		if _, err := seg.WriteAt(b, at); err != nil {
			return err
		}
	}
	return seg.Sync()
}

// quarantine copies bytes [from, to) of the log to a file of their own, named
// after them, and reports it. Zeros at the end are left out, and zeros stand
// for what the device cannot read.
func (w *walk) quarantine(seg *segment.Segment, from, to int64) error {
	if err := seg.Acquire(); err != nil {
		return err
	}
	defer seg.Release()
	w.s.counters.damaged.Add(to - from)
	dir := filepath.Join(w.s.o.Dir, "quarantine")
	path := filepath.Join(dir, fmt.Sprintf("%s-%d", segment.FileName(from), to-from))
	made, err := copyOut(w.s.fs, dir, path, seg.Data()[from-seg.Base():to-seg.Base()], int(from%pageSize))
	if err != nil {
		return fmt.Errorf("quarantine: %w", err)
	}
	if !made {
		w.s.log.Error("log damaged: zeros where records were", "offset", from, "bytes", to-from)
		return nil
	}
	w.s.counters.quarantined.Add(1)
	w.s.log.Error("log damaged, bytes moved to quarantine", "offset", from, "bytes", to-from, "file", path)
	return nil
}

// copyOut writes what is not zero of mapped data, which begins at byte inPage of
// a page, to a file, durably; made is false when there is nothing.
func copyOut(fsys segment.FS, dir, path string, data []byte, inPage int) (made bool, err error) {
	var f segment.File
	buf := make([]byte, pageSize)
	for at, next := 0, pageSize-inPage; at < len(data); at, next = next, next+pageSize {
		page := data[at:min(next, len(data))]
		n := len(bytes.TrimRight(buf[:copyPage(buf, page)], "\x00"))
		if n == 0 {
			continue
		}
		if f == nil {
			if f, err = createOver(fsys, dir, path); err != nil {
				return false, err
			}
		}
		if _, err = f.WriteAt(buf[:n], int64(at)); err != nil {
			return false, errors.Join(err, f.Close())
		}
	}
	if f == nil {
		return false, nil
	}
	return true, errors.Join(f.Sync(), f.Close(), fsys.SyncDir(dir), fsys.SyncDir(filepath.Dir(dir)))
}

// copyPage copies up to a page; nothing when the device cannot read it.
func copyPage(dst, src []byte) (n int) {
	var err error
	defer segment.CatchFault(&err)
	return copy(dst, src)
}

// createOver creates a file. One that is there is of an earlier recovery that
// came to the same point.
func createOver(fsys segment.FS, dir, path string) (segment.File, error) {
	if err := fsys.MkdirAll(dir); err != nil {
		return nil, err
	}
	f, err := fsys.Create(path)
	if errors.Is(err, fs.ErrExist) {
		if f, err = fsys.Open(path); err == nil {
			err = f.Truncate(0)
		}
	}
	return f, err
}

// quarantineTail copies what is cut off at w.pos: up to the last good record
// behind it in this segment and in later ones, and in any case everything up
// to the offset that was durable once.
func (w *walk) quarantineTail(seg *segment.Segment) error {
	segs := w.s.seq.Segments()
	for _, s := range segs[:max(w.used+1, 1)] {
		if s.End() <= w.pos || s.Base() < seg.Base() {
			continue
		}
		from := max(w.pos, s.Base())
		to, err := lastGood(s, from, w.sealed)
		if err != nil {
			return err
		}
		to = max(to, min(w.mark, s.End()))
		if to <= from {
			continue
		}
		err = w.quarantine(s, from, to)
		if err != nil && w.pos >= w.mark {
			// A disk too full for the copy must not keep the spool from
			// starting over messages that nobody was told are stored.
			w.s.log.Warn("torn writes dropped without a copy", "offset", from, "bytes", to-from, "err", err)
			err = nil
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// lastGood returns the end of the last good record in a segment at or behind
// the log offset from, or from.
func lastGood(seg *segment.Segment, from int64, sealed span) (end int64, err error) {
	if err := seg.Acquire(); err != nil {
		return 0, err
	}
	defer seg.Release()
	end = from
	// One byte earlier, so that a record at from is seen too.
	start := max(from-1, seg.Base())
	data := seg.Data()[start-seg.Base():]
	if v, ok := goodRecord(data, start, sealed); ok {
		end = start + int64(v.Size())
	}
	eachClaim(data, start, func(at int64, rest []byte) bool {
		if v, ok := goodRecord(rest, at, sealed); ok {
			end = max(end, at+int64(v.Size()))
		}
		return true
	})
	return end, nil
}
