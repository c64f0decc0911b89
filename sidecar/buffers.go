package sidecar

import "context"

const (
	// sendingAtOnce bounds the batches of one upstream under way, over all of its
	// lanes, and so the memory that they take.
	sendingAtOnce = 16
	// keepBuffer is the largest buffer that is kept for the next batch.
	keepBuffer = 4<<20 + 64<<10
)

// buffers lends the memory that batches are copied into: so many at once, in
// turn. A batch is copied because the mapped log must not be held while a slow
// upstream takes it, and because a disk that cannot be read shows while copying.
type buffers struct{ free chan []byte }

func newBuffers() *buffers {
	b := &buffers{free: make(chan []byte, sendingAtOnce)}
	for range sendingAtOnce {
		b.free <- nil
	}
	return b
}

// take waits for a buffer and says whether ctx still lives.
func (b *buffers) take(ctx context.Context) ([]byte, bool) {
	select {
	case buf := <-b.free:
		return buf[:0], true
	case <-ctx.Done():
		return nil, false
	}
}

// give takes a buffer back. All that were taken must be given.
func (b *buffers) give(buf []byte) {
	if cap(buf) > keepBuffer {
		buf = nil
	}
	b.free <- buf
}
