package remoting

import (
	"encoding/binary"
	"fmt"
)

// A frameBuffer holds what one connection has received and not yet handled.
//
//	0 ──────── r ─────────────────── w ──────── len(buf)
//	 handled   │ frames, maybe half   │ room for the next read
//
// Its memory follows bytes received: it doubles only when it is full, whatever
// length a frame declares.
type frameBuffer struct {
	buf   []byte
	r, w  int
	max   int   // largest frame, the length word included
	total int64 // bytes ever received

	room    *bulkRoom // nil: without a limit
	charged int64     // what this buffer takes of room

	filled bool // the last read left no room: there may be more to get at once
	calm   int  // bursts in a row that needed no buffer above readMax
}

// prepare makes room for a read. It returns false when the buffer would have to
// grow and may not.
func (b *frameBuffer) prepare() bool {
	n := copy(b.buf, b.buf[b.r:b.w])
	b.r, b.w = 0, n
	switch {
	case len(b.buf) == 0:
		b.buf = make([]byte, readStart)
	case b.w == len(b.buf):
		if !b.resize(min(2*len(b.buf), b.max)) {
			return false
		}
	case b.filled && len(b.buf) < readMax:
		b.resize(2 * len(b.buf))
	case len(b.buf) > readMax && b.w <= readMax/2:
		// A large frame has passed. Keep its memory while such frames are usual.
		if b.calm++; b.calm > 64 || b.crowded() {
			b.resize(readMax)
		}
	}
	if b.w > readMax/2 {
		b.calm = 0
	}
	return true
}

func (b *frameBuffer) resize(size int) bool {
	if !b.charge(size) {
		return false
	}
	buf := make([]byte, size)
	copy(buf, b.buf[:b.w])
	b.buf = buf
	return true
}

// received counts n bytes that were read behind w.
func (b *frameBuffer) received(n int) {
	b.w += n
	b.total += int64(n)
	b.filled = b.w == len(b.buf)
}

// shrink gives an idle connection a small buffer. A frame that has begun to
// arrive keeps what it has.
func (b *frameBuffer) shrink() {
	if b.r == b.w {
		b.charge(readStart)
		b.buf, b.r, b.w, b.filled = make([]byte, readStart), 0, 0, false
	}
}

// next returns the next whole frame without its length word, nil when more bytes
// are needed. The frame is valid until prepare. What can be judged from the first
// eight bytes is judged as soon as they are there.
func (b *frameBuffer) next() ([]byte, error) {
	have := b.buf[b.r:b.w]
	if len(have) < 4 {
		return nil, nil
	}
	length := int(int32(binary.BigEndian.Uint32(have)))
	if length < 0 || length > b.max-4 {
		return nil, b.misfit(have, length)
	}
	if length < 4 {
		return nil, &frameError{fmt.Sprintf("frame length %d, needs 4 at least", length)}
	}
	if len(have) < 8 {
		return nil, nil
	}
	mark := binary.BigEndian.Uint32(have[4:])
	if kind := mark >> 24; kind > 1 {
		return nil, &frameError{fmt.Sprintf("unknown header coding %d", kind)}
	}
	if header := int(mark & 0xFFFFFF); header > length-4 {
		return nil, &frameError{fmt.Sprintf("header of %d bytes in a frame of %d", header, length)}
	}
	if len(have) < 4+length {
		return nil, nil
	}
	b.r += 4 + length
	return have[4 : 4+length : 4+length], nil
}

// misfit names what arrived instead of a frame length.
func (b *frameBuffer) misfit(have []byte, length int) error {
	if int64(b.w) == b.total && b.r == 0 { // the peer's first words
		if what := sniff(have); what != "" {
			return &frameError{what}
		}
	}
	return &frameError{fmt.Sprintf("frame length %d, limit %d", length, b.max-4)}
}
