package spool

import (
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"github.com/sluicemq/sluice/spool/segment"
)

// A FlushMode says when a message counts as stored.
type FlushMode int

const (
	// FlushSync: when it is on disk. WaitDurable waits for it and nobody
	// reads it before.
	FlushSync FlushMode = iota
	// FlushAsync: when it is in the page cache. WaitDurable returns at once,
	// messages are readable at once, and reach the disk every FlushInterval.
	FlushAsync
)

// String is the name used in configuration: "sync" or "async".
func (m FlushMode) String() string {
	if m == FlushAsync {
		return "async"
	}
	return "sync"
}

// Options configure a Spool. The zero value of every field but Dir means its
// default.
type Options struct {
	// Dir is the store's root directory.
	Dir string
	// SegmentBytes is the size of a commit log file, a multiple of 4096 up to
	// 1 GiB, the default. A store that exists keeps the size it was made with.
	SegmentBytes int64
	// QueueFileEntries is the number of units in a consume queue file (300000).
	QueueFileEntries int
	// Flush says when a message counts as stored.
	Flush FlushMode
	// FlushInterval is the time between flushes under FlushAsync (500 ms).
	FlushInterval time.Duration
	// MaxBytes bounds the commit log's files together; 0 sets no bound.
	MaxBytes int64
	// MaxAge is the age from which messages may be deleted (72 h).
	MaxAge time.Duration
	// KeepUnread lets cursors hold back deletion: what a cursor has not passed
	// stays, and appends are refused when the store is full of it.
	KeepUnread bool
	// CursorInterval is the longest time a cursor's move stays undurable
	// (200 ms), for stores whose cursors are saved in less than a tenth of it.
	CursorInterval time.Duration
	// StoreHost is the address put into records that have none.
	StoreHost netip.AddrPort
	// MaxMessageBytes bounds a message's body (4 MiB). The whole record may be
	// 64 KiB longer.
	MaxMessageBytes int
	// MaxOpenFiles bounds the consume queue files held open (256).
	MaxOpenFiles int
	// FS is the file system; nil means the operating system's.
	FS segment.FS
	// Now is the wall clock, for store times; nil means time.Now.
	Now func() time.Time
	// Logger gets one line per event; nil discards them.
	Logger *slog.Logger
}

const (
	unitSize = 20 // bytes of a consume queue unit

	defaultSegmentBytes = 1 << 30
	minSegmentBytes     = 16 << 10
	maxSegmentBytes     = 1 << 30
	recordOverhead      = 64 << 10 // what a record may be longer than its body
	cutLen              = 8        // bytes of the cut marker, and of a blank record
	pageSize            = 4096     // what a file system reads and writes at least
)

func (o *Options) setDefaults() error {
	if o.Dir == "" {
		return errors.New("spool: no directory given")
	}
	if o.SegmentBytes == 0 {
		o.SegmentBytes = defaultSegmentBytes
	}
	if o.SegmentBytes%4096 != 0 || o.SegmentBytes < minSegmentBytes || o.SegmentBytes > maxSegmentBytes {
		return fmt.Errorf("spool: segment size %d: want a multiple of 4096 between %d and %d",
			o.SegmentBytes, minSegmentBytes, maxSegmentBytes)
	}
	if o.MaxBytes != 0 && o.MaxBytes < 2*minSegmentBytes {
		return fmt.Errorf("spool: limit of %d bytes: want at least %d", o.MaxBytes, 2*minSegmentBytes)
	}
	setDefault(&o.QueueFileEntries, 300000)
	setDefault(&o.FlushInterval, 500*time.Millisecond)
	setDefault(&o.MaxAge, 72*time.Hour)
	setDefault(&o.CursorInterval, 200*time.Millisecond)
	setDefault(&o.MaxMessageBytes, 4<<20)
	setDefault(&o.MaxOpenFiles, 256)
	if o.FS == nil {
		o.FS = segment.OS()
	}
	if o.Now == nil {
		o.Now = time.Now
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return nil
}

func setDefault[T int | int64 | time.Duration](v *T, def T) {
	if *v <= 0 {
		*v = def
	}
}
