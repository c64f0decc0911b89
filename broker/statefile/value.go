package statefile

import (
	"sync"
	"sync/atomic"
)

// A Value is an immutable T that is read without a lock and changed by copies.
// A change is visible, and is confirmed to whoever made it, only once it is
// saved. Changes made while a save is under way share the next one.
//
// All methods may be called at any time from any goroutine.
type Value[T any] struct {
	options   ValueOptions[T]
	published atomic.Pointer[T]

	mu     sync.Mutex
	staged *T     // published plus the changes not yet saved; never handed out
	latest *batch // the batch of the newest change

	saving sync.Mutex // held over a save; taken before mu
}

// ValueOptions are what a Value does not know about its T.
type ValueOptions[T any] struct {
	// Clone returns a copy that shares nothing mutable with its argument.
	Clone func(*T) *T
	// Save makes a state durable. It is never called twice at once.
	Save func(*T) error
	// Saved (may be nil) is called after a save, in the order of saves. It
	// must not wait and must not change the Value.
	Saved func(before, after *T)
}

// batch is a set of changes that one save makes durable.
type batch struct {
	taken bool // a save has begun; later changes go into the next batch (mu)
	done  bool // (saving)
	err   error
}

func emptyBatch() *batch { return &batch{taken: true, done: true} }

// NewValue returns a Value that starts as state, which the caller must not
// change any more.
func NewValue[T any](state *T, o ValueOptions[T]) *Value[T] {
	v := &Value[T]{options: o, staged: o.Clone(state), latest: emptyBatch()}
	v.published.Store(state)
	return v
}

// Load returns the newest saved state. It must not be changed.
func (v *Value[T]) Load() *T { return v.published.Load() }

// Change lets edit change a private copy of the state and returns when the
// change is saved. Edit tells whether it changed anything; with an error it must
// not have. When nothing was changed, Change still waits for the changes that
// edit saw, so that nobody acts on a state that a crash would take back.
//
// When a save fails, all changes that are not yet saved are undone and get its
// error.
func (v *Value[T]) Change(edit func(next *T) (changed bool, err error)) error {
	b, err := v.stage(edit)
	if err != nil {
		return err
	}
	v.saving.Lock()
	defer v.saving.Unlock()
	if !b.done {
		v.saveLocked(b)
	}
	return b.err
}

// stage applies edit and returns the batch that its caller must see through.
func (v *Value[T]) stage(edit func(next *T) (bool, error)) (*batch, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	changed, err := edit(v.staged)
	if err != nil {
		return nil, err
	}
	if changed && v.latest.taken {
		v.latest = &batch{}
	}
	return v.latest, nil
}

// saveLocked saves and publishes everything staged. The caller holds saving and
// has found b undone, so b is the latest batch and nobody has taken it.
func (v *Value[T]) saveLocked(b *batch) {
	v.mu.Lock()
	b.taken = true
	next := v.options.Clone(v.staged)
	v.mu.Unlock()

	b.err = v.options.Save(next)
	b.done = true
	if b.err != nil {
		v.undoLocked(b)
		return
	}
	before := v.published.Swap(next)
	if v.options.Saved != nil {
		v.options.Saved(before, next)
	}
}

// undoLocked takes back what is staged after the save of b failed, and with it
// what was staged on top of b meanwhile.
func (v *Value[T]) undoLocked(b *batch) {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.staged = v.options.Clone(v.published.Load())
	if v.latest != b {
		v.latest.taken, v.latest.done, v.latest.err = true, true, b.err
	}
	v.latest = emptyBatch()
}
