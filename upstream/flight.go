package upstream

import (
	"cmp"

	"github.com/nats-io/nats.go"
)

// A flight is the messages of one Send: which of them are under way, and what
// became of the others. All of it is guarded by its connection's mutex.
//
//	batch   0 ─────────── accepted ───────────── published ───────── len
//	         stored, all    some answered, some not   not published yet
type flight struct {
	stream string // that must store the messages; empty: any
	chunk  int    // answered messages leave the window so many at once

	acquired  int // room in the connection's window; the sender's own
	outcomes  []outcome
	published int
	answered  int
	released  int
	failedAt  int   // first message that failed …
	failure   error // … and why; nil: none
	ended     error // why there will be no more answers

	landed chan struct{} // has a token when nothing is under way any more
}

type outcome uint8

const (
	unanswered outcome = iota
	storedOnce
	storedBefore // the server recognised a double
	notStored
)

func newFlight(messages int, stream string, chunk int) *flight {
	return &flight{
		stream: stream, chunk: chunk,
		outcomes: make([]outcome, messages), landed: make(chan struct{}, 1),
	}
}

// answer notes the outcome of a message and returns how many leave the window.
func (f *flight) answer(index int, m *nats.Msg) (free int) {
	duplicate, err := readAnswer(m, f.stream)
	switch {
	case err != nil:
		f.outcomes[index] = notStored
		if f.failure == nil || index < f.failedAt {
			f.failedAt, f.failure = index, err
		}
	case duplicate:
		f.outcomes[index] = storedBefore
	default:
		f.outcomes[index] = storedOnce
	}
	f.answered++
	return f.progress()
}

// launched notes that so many more messages are published.
func (f *flight) launched(n int) (free int) {
	f.published += n
	return f.progress()
}

// progress says how many messages leave the window, and wakes the sender when it
// has nothing left to wait for. Answers can come before launched is called.
func (f *flight) progress() (free int) {
	done := f.answered >= f.published
	if done {
		select {
		case f.landed <- struct{}{}:
		default:
		}
	}
	if free = min(f.answered, f.published) - f.released; !done && free < f.chunk {
		return 0
	}
	f.released += free
	return free
}

// end stops the waiting for answers.
func (f *flight) end(err error) {
	if f.ended == nil {
		f.ended = err
	}
	select {
	case f.landed <- struct{}{}:
	default:
	}
}

// flying reports whether answers are still to come.
func (f *flight) flying() bool { return f.answered < f.published && f.ended == nil }

// accepted is the length of the prefix that is stored.
func (f *flight) accepted() int {
	for i, o := range f.outcomes {
		if o != storedOnce && o != storedBefore {
			return i
		}
	}
	return len(f.outcomes)
}

// reason is why the message behind the accepted ones is not known to be stored.
// refused is why no more were published, late why some have no outcome.
func (f *flight) reason(accepted int, refused, late error) error {
	switch {
	case f.failure != nil && f.failedAt == accepted:
		return f.failure
	case accepted == f.published && refused != nil:
		return refused
	}
	// Its own outcome is unknown, whatever became of those behind it.
	return cmp.Or(late, f.ended, nats.ErrConnectionClosed)
}
