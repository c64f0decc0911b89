package spool

import (
	"errors"
	"sync"
	"sync/atomic"
)

// Why a spool refuses messages. Errors of Append and Writable wrap one of them
// and say more.
var (
	// ErrFull: a limit is reached or the disk is full. It goes away by itself
	// when space is freed.
	ErrFull = errors.New("spool full")
	// ErrBroken: a flush failed, so what the disk holds is not known any more.
	// Reads go on; only a restart, which recovers, takes messages again.
	ErrBroken = errors.New("spool broken")
	// ErrClosed: the spool is stopping or has stopped.
	ErrClosed = errors.New("spool closed")
)

// Kinds of reasons to refuse messages, the gravest first.
const (
	refuseClosed = iota
	refuseBroken
	refuseDisk
	refuseLimit
	refusals
)

// A gate holds the reasons to refuse messages. Asking it costs one load.
type gate struct {
	first atomic.Pointer[error]

	mu      sync.Mutex
	reasons [refusals]error
}

// err is the gravest reason to refuse messages, or nil.
func (g *gate) err() error {
	if p := g.first.Load(); p != nil {
		return *p
	}
	return nil
}

// set gives a reason, or takes it away with nil, and returns the one before.
func (g *gate) set(kind int, err error) (before error) {
	g.mu.Lock()
	defer g.mu.Unlock()
	before = g.reasons[kind]
	g.reasons[kind] = err
	var first *error
	for _, r := range g.reasons {
		if r != nil {
			first = &r
			break
		}
	}
	g.first.Store(first)
	return before
}

// reason is the reason of one kind, or nil.
func (g *gate) reason(kind int) error {
	g.mu.Lock()
	defer g.mu.Unlock()
	return g.reasons[kind]
}
