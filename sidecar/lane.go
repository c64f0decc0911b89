package sidecar

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
	"github.com/sluicemq/sluice/upstream"
)

// A laneState says what a lane is doing.
type laneState int32

const (
	laneIdle     laneState = iota // everything is forwarded
	laneSending                   // a batch is under way, or about to be
	laneRetrying                  // the upstream does not take messages; waiting to try again
)

func (s laneState) String() string {
	switch s {
	case laneSending:
		return "sending"
	case laneRetrying:
		return "retrying"
	}
	return "idle"
}

// lane forwards one local queue to one upstream, in order. It has at most one
// batch under way, and its cursor moves by the prefix that the upstream
// accepted. So a clean stop sends again at most that batch, and a crash what was
// accepted since the cursors were last saved.
type lane struct {
	upstream string
	queue    *spool.Queue
	cursor   atomic.Pointer[spool.Cursor] // replaced when the topic is deleted
	sender   upstream.Sender
	spool    *spool.Spool
	limit    spool.Limit
	backoff  upstream.Backoff
	park     func(ctx context.Context, m *message.Message, reason string) error
	progress *progress
	pace     *pacer
	buffers  *buffers
	log      *slog.Logger

	state atomic.Int32

	// Scratch of run, reused from batch to batch.
	records spool.Records
	batch   []message.Message
}

// progress is what all lanes of an upstream have done, and where one tells the
// others that the upstream is back.
type progress struct {
	forwarded, parked, failures atomic.Int64
	lastAccepted                atomic.Int64 // Unix milliseconds, for show

	mu   sync.Mutex
	back chan struct{} // closed and replaced when a lane succeeds that had failed
}

func newProgress() *progress { return &progress{back: make(chan struct{})} }

// recovery is closed when the upstream takes messages again.
func (p *progress) recovery() <-chan struct{} {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.back
}

func (p *progress) recovered() {
	p.mu.Lock()
	defer p.mu.Unlock()
	close(p.back)
	p.back = make(chan struct{})
}

// backlog is how many messages wait to be forwarded.
func (l *lane) backlog() int64 { return max(l.queue.Max()-l.cursor.Load().Offset(), 0) }

// await returns nil when there may be a message to forward. A cursor beyond the
// queue's end is one of a topic that was deleted: nothing will ever be there.
func (l *lane) await(ctx context.Context) error {
	if at := l.cursor.Load().Offset(); at <= l.queue.Max() {
		if err := l.queue.Wait(ctx, at); err != nil {
			return err
		}
	}
	return ctx.Err()
}

// open takes the spool's cursor, which is another one since the topic was
// deleted: the queue's offsets have begun anew then.
func (l *lane) open() (*spool.Cursor, error) {
	cursor, err := l.spool.Cursor(l.upstream, l.queue, l.queue.Min())
	if err != nil {
		return nil, fmt.Errorf("open the cursor of upstream %s on %s/%d: %w", l.upstream, l.queue.Topic(), l.queue.ID(), err)
	}
	l.cursor.Store(cursor)
	return cursor, nil
}

// run forwards until ctx ends. It returns only then: an upstream that refuses or
// is away is tried again, with back-off, for as long as it takes. The first lane
// that gets through after an outage ends the back-off of the others.
func (l *lane) run(ctx context.Context) {
	failures := 0
	for {
		l.state.Store(int32(laneIdle))
		if l.await(ctx) != nil {
			return
		}
		l.state.Store(int32(laneSending))
		began := time.Now()
		accepted, err := l.forward(ctx)
		if accepted > 0 && failures > 0 {
			failures = 0
			l.progress.recovered()
			l.log.Info("upstream takes messages again", "upstream", l.upstream,
				"topic", l.queue.Topic(), "queue", l.queue.ID(), "backlog", l.backlog())
		}
		if err == nil && l.pace.rest(ctx, time.Since(began)) {
			continue
		}
		if ctx.Err() != nil {
			return
		}
		l.progress.failures.Add(1)
		l.state.Store(int32(laneRetrying))
		pause, recovery := l.backoff.Delay(failures), l.progress.recovery()
		failures++
		if failures == 1 {
			l.log.Warn("upstream does not take messages; trying again until it does",
				"upstream", l.upstream, "topic", l.queue.Topic(), "queue", l.queue.ID(), "backlog", l.backlog(), "err", err)
		}
		if !sleep(ctx, pause, recovery) {
			return
		}
	}
}

// forward sends the next batch and moves the cursor past what was accepted.
func (l *lane) forward(ctx context.Context) (accepted int, err error) {
	buf, ok := l.buffers.take(ctx)
	if !ok {
		return 0, ctx.Err()
	}
	defer func() { l.buffers.give(buf) }()
	cursor, err := l.open()
	if err != nil {
		return 0, err
	}
	from := cursor.Offset()
	defer l.records.Release()
	result := l.spool.Read(l.queue, from, l.limit, nil, &l.records)
	if result.Status != spool.Found {
		return 0, l.skip(cursor, from, result)
	}
	buf = l.records.AppendTo(buf)
	readErr := l.records.Err()
	l.records.Release()
	if err := l.decode(buf, readErr); err != nil {
		return 0, err
	}
	accepted, err = l.sender.Send(ctx, l.queue.Topic(), int(l.queue.ID()), l.batch)
	if accepted > 0 {
		cursor.Advance(l.batch[accepted-1].QueueOffset + 1)
		l.progress.forwarded.Add(int64(accepted))
		l.progress.lastAccepted.Store(time.Now().UnixMilli())
	}
	if rejected := (*upstream.RejectedError)(nil); errors.As(err, &rejected) && accepted < len(l.batch) {
		return accepted, l.parkMessage(ctx, cursor, &l.batch[accepted], rejected.Reason)
	}
	return accepted, err
}

// skip moves the cursor where a read found nothing: past records that retention
// took, or past ones that hold no message.
func (l *lane) skip(cursor *spool.Cursor, from int64, result spool.ReadResult) error {
	if result.Err != nil {
		return fmt.Errorf("read queue %s/%d at %d: %w", l.queue.Topic(), l.queue.ID(), from, result.Err)
	}
	if result.Next > from {
		l.log.Error("messages are gone from the spool before they were forwarded",
			"upstream", l.upstream, "topic", l.queue.Topic(), "queue", l.queue.ID(), "from", from, "to", result.Next)
		cursor.Advance(result.Next)
		return nil
	}
	return fmt.Errorf("read queue %s/%d at %d: %s", l.queue.Topic(), l.queue.ID(), from, result.Status)
}

// decode makes the batch of the records that were copied, which may be fewer than
// those read when readErr says so. What comes before a fault is sent.
func (l *lane) decode(records []byte, readErr error) error {
	l.batch = l.batch[:0]
	err := message.EachRecord(records, func(record []byte) bool {
		var m message.Message
		decodeErr := message.Decode(record, &m)
		if decodeErr == nil {
			l.batch = append(l.batch, m)
		} else {
			readErr = decodeErr
		}
		return decodeErr == nil
	})
	if len(l.batch) == 0 {
		return fmt.Errorf("read queue %s/%d from the spool: %w", l.queue.Topic(), l.queue.ID(), errors.Join(readErr, err))
	}
	return nil
}

// parkMessage puts a message that the upstream refuses for good aside, durably,
// and only then lets the lane go past it.
func (l *lane) parkMessage(ctx context.Context, cursor *spool.Cursor, m *message.Message, reason string) error {
	if err := l.park(ctx, m, reason); err != nil {
		return fmt.Errorf("park a message that %s refuses (%s): %w", l.upstream, reason, err)
	}
	l.progress.parked.Add(1)
	cursor.Advance(m.QueueOffset + 1)
	key, _ := message.Property(m.Properties, message.PropertyUniqueKey)
	l.log.Warn("the upstream refuses a message for good; it is parked", "upstream", l.upstream,
		"topic", l.queue.Topic(), "queue", l.queue.ID(), "offset", m.QueueOffset, "key", string(key), "reason", reason)
	return nil
}

// sleep waits for d, or until wake is closed, and says whether ctx still lives.
func sleep(ctx context.Context, d time.Duration, wake <-chan struct{}) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
	case <-wake:
	}
	return true
}
