package remoting

import (
	"context"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"golang.org/x/time/rate"
)

// maxMaxFrame keeps the first byte of a frame below that of a TLS record (0x16)
// and of every text protocol, so that sniffing can tell them apart.
const maxMaxFrame = 0x10 << 24

// An endpoint is what the connections of one Server or Client have in common.
type endpoint struct {
	ctx    context.Context // of the requests; ends when stopping begins
	routes *routes
	log    *slog.Logger
	warn   *throttledLog // for what a peer can cause at will

	maxFrame     int
	maxCalls     int64
	maxWaiting   int64
	room         *bulkRoom // of large read buffers; nil for a client
	idleTimeout  time.Duration
	writeTimeout time.Duration
	onClose      func(*Conn)

	stopping atomic.Bool  // requests are turned away
	calls    atomic.Int64 // under way in handlers with their own goroutine
	held     atomic.Int64 // bytes of their requests
	waiting  atomic.Int64

	epoch  time.Time
	ids    atomic.Uint64
	idBase uint64
}

// now is monotonic time since the endpoint was made.
func (ep *endpoint) now() time.Duration { return time.Since(ep.epoch) }

// nextID is unique in the process without shared state: a random upper half for
// each endpoint, a counter below it.
func (ep *endpoint) nextID() uint64 { return ep.idBase | ep.ids.Add(1) }

type limits struct {
	maxFrame, maxCalls, maxWaiting int
	idleTimeout, writeTimeout      time.Duration
}

func newEndpoint(t Table, l limits, onClose func(*Conn), log *slog.Logger) (*endpoint, error) {
	rs, err := newRoutes(t)
	if err != nil {
		return nil, err
	}
	if log == nil {
		log = slog.New(slog.DiscardHandler)
	}
	if l.maxFrame < 0 || l.maxFrame > maxMaxFrame {
		return nil, fmt.Errorf("frame limit of %d bytes: allowed are 1 to %d", l.maxFrame, maxMaxFrame)
	}
	return &endpoint{
		routes: rs, log: log, onClose: onClose,
		warn:         &throttledLog{log: log, limit: rate.NewLimiter(rate.Every(time.Second), 10)},
		maxFrame:     orDefault(l.maxFrame, DefaultMaxFrame),
		maxCalls:     int64(orDefault(l.maxCalls, DefaultMaxCalls)),
		maxWaiting:   int64(orDefault(l.maxWaiting, DefaultMaxWaiting)),
		idleTimeout:  orDefault(l.idleTimeout, DefaultIdleTimeout),
		writeTimeout: orDefault(l.writeTimeout, DefaultWriteTimeout),
		epoch:        time.Now(),
		idBase:       uint64(rand.Uint32()) << 32,
	}, nil
}

func orDefault[T comparable](v, def T) T {
	var zero T
	if v == zero {
		return def
	}
	return v
}

// A throttledLog lets through about one line a second, after a first few, and
// tells with the next one how many it held back.
type throttledLog struct {
	log   *slog.Logger
	limit *rate.Limiter
	held  atomic.Int64
}

func (t *throttledLog) Warn(msg string, args ...any) {
	if !t.limit.Allow() {
		t.held.Add(1)
		return
	}
	if n := t.held.Swap(0); n > 0 {
		args = append(args, "held_back", n)
	}
	t.log.Warn(msg, args...)
}
