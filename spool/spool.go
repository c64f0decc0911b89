package spool

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"log/slog"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/spool/segment"
)

// A Spool is an open store. Open recovers and starts nothing; Run does the
// work in the background; all other methods may be called concurrently, and
// before Run: messages are then taken, but not dispatched.
type Spool struct {
	o    Options
	fs   segment.FS
	log  *slog.Logger
	lock io.Closer

	seq     *segment.Sequence
	table   table
	files   *queueFiles
	check   checkpointFile
	tombs   tombstones
	clock   retentionClock
	plain   int64       // log offset from which on records carry a record CRC
	ballast atomic.Bool // the file that a full disk gives up is there

	appendMu sync.Mutex
	w        writer // guarded by appendMu

	gate    gate
	broken  atomic.Pointer[error]
	written atomic.Int64 // log end
	durable atomic.Int64 // log offset before which all is on disk
	checked atomic.Int64 // dispatched offset of the last checkpoint
	backAt  atomic.Int64 // log offset where store time last went back

	commit   committer
	dispatch dispatcher
	cursors  cursorSet

	retireMu sync.Mutex   // one change of the log's beginning at a time
	minsFor  atomic.Int64 // log offset of the beginning that the queues' minimums are of

	lazy, prepareWake, retainWake chan struct{}

	counters counters

	life     sync.RWMutex // held for reading by what changes files on behalf of a caller
	released bool         // guarded by life
}

// Open locks the directory, made if need be, recovers what is in it and
// returns a spool ready for appends and reads. It starts no goroutine. A
// directory in use fails with an error that wraps segment.ErrLocked.
func Open(o Options) (*Spool, error) {
	if err := o.setDefaults(); err != nil {
		return nil, err
	}
	s := &Spool{
		o: o, fs: o.FS, log: o.Logger,
		table:       table{topics: make(map[string]*topic)},
		files:       newQueueFiles(o.FS, filepath.Join(o.Dir, "consumequeue"), o.QueueFileEntries, o.MaxOpenFiles),
		dispatch:    dispatcher{wake: make(chan struct{}, 1), started: make(map[*Queue]bool)},
		cursors:     cursorSet{all: make(map[cursorKey]*Cursor), wake: make(chan struct{}, 1)},
		lazy:        make(chan struct{}, 1),
		prepareWake: make(chan struct{}, 1),
		retainWake:  make(chan struct{}, 1),
	}
	if err := s.open(); err != nil {
		return nil, fmt.Errorf("open spool %s: %w", o.Dir, errors.Join(err, s.release()))
	}
	return s, nil
}

func (s *Spool) open() error {
	if err := s.fs.MkdirAll(s.files.dir); err != nil {
		return err
	}
	lock, err := s.fs.Lock(s.path("lock"))
	if err != nil {
		if pid, perr := s.fs.ReadFile(s.path("abort")); perr == nil && errors.Is(err, segment.ErrLocked) {
			return fmt.Errorf("in use by process %s: %w", strings.TrimSpace(string(pid)), err)
		}
		return err
	}
	s.lock = lock
	if s.check.f, err = openCheckpoint(s.fs, s.path("checkpoint")); err != nil {
		return err
	}
	s.unloadForRecovery()
	if err := s.recover(); err != nil {
		return err
	}
	s.minsFor.Store(s.seq.Base())
	s.clock = newRetentionClock(s.o.Now(), s.w.last, s.o.MaxAge)
	return nil
}

// Run does everything that goes on behind appends and reads: flushing,
// dispatch, preparing segments, retention, saving cursors and checkpoint. It
// returns when ctx has ended and all of that has; everything appended is then
// on disk and dispatched, and the directory is free. Run is called once.
func (s *Spool) Run(ctx context.Context) error {
	g, ctx := errgroup.WithContext(ctx)
	for _, part := range []func(context.Context) error{
		s.runFlush, s.runDispatch, s.runPrepare, s.runRetain, s.runCursors, s.runCheckpoint,
	} {
		g.Go(func() error { return part(ctx) })
	}
	err := g.Wait()
	return errors.Join(err, s.stop())
}

// stop brings everything to disk and marks the store as properly stopped, line
// by line in an order in which a power cut only means another recovery.
func (s *Spool) stop() (err error) {
	defer func() { err = errors.Join(err, s.release()) }()
	s.gate.set(refuseClosed, ErrClosed)
	s.appendMu.Lock() // the append under way ends, no other begins
	s.appendMu.Unlock()
	if err := s.flushTo(context.Background(), s.written.Load()); err != nil {
		return err
	}
	if err := s.dispatchAll(); err != nil {
		return err
	}
	if err := s.saveCursors(); err != nil {
		return err
	}
	if err := s.saveCheckpoint(); err != nil {
		return err
	}
	if err := s.fs.Remove(s.path("abort")); err != nil && !errors.Is(err, fs.ErrNotExist) {
		return err
	}
	return s.fs.SyncDir(s.o.Dir)
}

// Close releases a spool that does not run, and leaves the store as a crash
// would: the next Open recovers.
func (s *Spool) Close() error { return s.release() }

var errClosed = ErrClosed // has an address

// release lets go of all files and, last, of the lock.
func (s *Spool) release() error {
	s.life.Lock()
	defer s.life.Unlock()
	if s.released {
		return nil
	}
	s.released = true
	s.gate.set(refuseClosed, ErrClosed)
	s.broken.CompareAndSwap(nil, &errClosed)
	s.appendMu.Lock()
	defer s.appendMu.Unlock()
	s.files.close()
	var errs []error
	if s.seq != nil {
		errs = append(errs, s.seq.Close())
	}
	if s.check.f != nil {
		errs = append(errs, s.check.f.Close())
	}
	if s.lock != nil {
		errs = append(errs, s.lock.Close())
	}
	return errors.Join(errs...)
}

// enter keeps the spool from being released until life.RUnlock: after that the
// directory may be another process's. It fails when it is released already.
func (s *Spool) enter() error {
	s.life.RLock()
	if s.released {
		s.life.RUnlock()
		return ErrClosed
	}
	return nil
}
