package sidecar

import (
	"errors"
	"io"
	"sync/atomic"
)

// minBodyRoom is the least that the bodies of all requests under way may take.
const minBodyRoom = 32 << 20

var errNoRoom = errors.New("too many large requests at once; send again later")

// A bodyRoom bounds what the bodies of all requests under way take together, so
// that clients that send slowly, or many at once, cannot exhaust a small host.
type bodyRoom struct {
	limit int64
	used  atomic.Int64
}

// An allowance is one request's part of a bodyRoom. It grows with the bytes
// received, not with a length that was promised. Nobody waits for room: of
// requests that hold a part and wait for the rest, none would ever end.
type allowance struct {
	room *bodyRoom
	in   io.Reader
	used int64
}

func (a *allowance) reader(in io.Reader) io.Reader {
	a.in = in
	return a
}

func (a *allowance) Read(p []byte) (int, error) {
	n, err := a.in.Read(p)
	a.used += int64(n)
	if a.room.used.Add(int64(n)) > a.room.limit {
		return n, errNoRoom
	}
	return n, err
}

func (a *allowance) giveBack() { a.room.used.Add(-a.used) }
