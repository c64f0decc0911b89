package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// RocketMQOptions configure a RocketMQ sender. Only NameServers is required.
type RocketMQOptions struct {
	NameServers []string // host:port
	TLS         *tls.Config

	// Group is the producer group; default SLUICE_SIDECAR.
	Group string

	// MaxBatchBytes bounds the body of one request: default 1 MiB, at most 4 MiB,
	// which is what brokers take by default.
	MaxBatchBytes int

	Timeout       time.Duration // of one request; default 10 s
	RouteInterval time.Duration // how often routes are refreshed; default 30 s

	Logger *slog.Logger // nil: discard
}

const (
	defaultGroup      = "SLUICE_SIDECAR"
	defaultBatchBytes = 1 << 20
	maxBatchBytes     = 4 << 20
	// Frames start small and double with each success, so that a slow link is
	// found out without a time-out; they halve after one.
	firstBatchBytes = 64 << 10
	leastBatchBytes = 4 << 10
	// maxMessageBytes is only a guard: what is too large is the broker's to say.
	maxMessageBytes = 64 << 20
)

// RocketMQ sends to a RocketMQ cluster. Topics that do not exist there are
// created by their first message if a broker allows it.
//
// Each local queue leads to one upstream queue, by its number modulo their
// count: the mapping stays as long as the topic's upstream queues do, and a change
// counts from the next request on. One request is under way per upstream queue,
// so what is stored there is in order.
//
// The messages of one batch request share its born time, that of the first; all
// else of them is kept.
type RocketMQ struct {
	o        RocketMQOptions
	logger   *slog.Logger
	client   *client.Client
	producer *client.Producer
	frames   sync.Pool // of *frame: large buffers, as many as requests under way

	// ceiling is the largest body that the brokers seem to take, in bytes.
	ceiling atomic.Int64

	mu      sync.Mutex
	lanes   map[laneKey]*lane
	targets map[protocol.MessageQueue]chan struct{} // one token each: the right to send

	stored, resent, rejected atomic.Uint64
}

var _ Sender = (*RocketMQ)(nil)

type laneKey struct {
	topic string
	queue int
}

// A lane is what is remembered of one local queue between requests. It belongs
// to the Send under way.
type lane struct {
	limit     int // bytes of the next request
	uncertain int // messages at the front that may be stored already
	suspect   int // messages at the front of which one is illegal; 0: none known
	suspected int // bytes of the request that was found illegal as a whole
}

// NewRocketMQ checks o; it opens no connection.
func NewRocketMQ(o RocketMQOptions) (*RocketMQ, error) {
	if o.Group == "" {
		o.Group = defaultGroup
	}
	if o.MaxBatchBytes == 0 {
		o.MaxBatchBytes = defaultBatchBytes
	}
	if o.MaxBatchBytes < leastBatchBytes || o.MaxBatchBytes > maxBatchBytes {
		return nil, fmt.Errorf("rocketmq upstream: batch of %d bytes: must be %d to %d", o.MaxBatchBytes, leastBatchBytes, maxBatchBytes)
	}
	if o.Timeout == 0 {
		o.Timeout = 10 * time.Second
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	c, err := client.New(client.Options{
		NameServers: o.NameServers, TLS: o.TLS, RouteInterval: o.RouteInterval, Logger: o.Logger,
	})
	if err != nil {
		return nil, fmt.Errorf("rocketmq upstream: %w", err)
	}
	p, err := client.NewProducer(c, client.ProducerOptions{Group: o.Group, MaxMessageBytes: maxMessageBytes, CompressOver: -1})
	if err != nil {
		return nil, fmt.Errorf("rocketmq upstream: %w", err)
	}
	s := &RocketMQ{
		o: o, logger: o.Logger, client: c, producer: p,
		frames:  sync.Pool{New: func() any { return new(frame) }},
		lanes:   make(map[laneKey]*lane),
		targets: make(map[protocol.MessageQueue]chan struct{}),
	}
	s.ceiling.Store(int64(o.MaxBatchBytes))
	return s, nil
}

// Run keeps connections, routes and heartbeats until ctx ends.
func (s *RocketMQ) Run(ctx context.Context) error { return s.client.Run(ctx) }

// Queues is the number of queues that can be written upstream, 0 when no name
// server knows the topic.
func (s *RocketMQ) Queues(ctx context.Context, topic string) (int, error) {
	route, err := s.client.Route(ctx, topic)
	if errors.Is(err, client.ErrTopicNotFound) {
		return 0, nil
	}
	if err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	return len(route.Write), nil
}

// Stats counts what was sent. Duplicates stays 0: RocketMQ stores doubles, at
// most Resent of them.
func (s *RocketMQ) Stats() Stats {
	return Stats{Stored: s.stored.Load(), Resent: s.resent.Load(), Rejected: s.rejected.Load()}
}

// Send stores the batch request by request, see Sender.
func (s *RocketMQ) Send(ctx context.Context, topic string, queue int, batch []message.Message) (accepted int, err error) {
	l := s.lane(topic, queue)
	f := s.frames.Get().(*frame)
	defer s.frames.Put(f)
	for accepted < len(batch) && err == nil {
		var n int
		n, err = s.advance(ctx, l, f, topic, queue, batch[accepted:])
		accepted += n
	}
	return accepted, err
}

func (s *RocketMQ) lane(topic string, queue int) *lane {
	s.mu.Lock()
	defer s.mu.Unlock()
	key := laneKey{topic, queue}
	l := s.lanes[key]
	if l == nil {
		l = &lane{limit: firstBatchBytes}
		s.lanes[key] = l
	}
	return l
}

// advance stores a beginning of the messages: as many as one request takes,
// fewer when that is what it needs to find an illegal one.
func (s *RocketMQ) advance(ctx context.Context, l *lane, f *frame, topic string, queue int, ms []message.Message) (int, error) {
	refreshed := false
	for {
		if err := f.pack(ms, min(l.limit, int(s.ceiling.Load())), l.suspect); err != nil {
			return 0, s.reject(l, err.Error())
		}
		err := s.request(ctx, l, f, topic, queue)
		var answer *protocol.Error
		answered := errors.As(err, &answer)
		switch {
		case err == nil:
			s.storedFrame(l, f)
			return f.count, nil
		case answered && answer.Code == protocol.MessageIllegal && f.count == 1:
			return 0, s.reject(l, answer.Error())
		case answered && answer.Code == protocol.MessageIllegal:
			if l.suspect == 0 {
				l.suspected = len(f.batch.Body)
			}
			l.suspect = f.count
		case answered && stale(answer.Code) && !refreshed:
			refreshed = true
			s.producer.RouteFailed(ctx, topic, err)
		default:
			if errors.Is(err, remoting.ErrTimeout) {
				l.limit = max(len(f.batch.Body)/2, leastBatchBytes)
			}
			if !refreshed && ctx.Err() == nil {
				s.producer.RouteFailed(ctx, topic, err)
			}
			return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
		}
	}
}

// stale says which answers may go away with a fresh route: the broker does not
// have the topic or the queue, may not be written to, or is out of order.
func stale(code protocol.ResponseCode) bool {
	switch code {
	case protocol.TopicNotExist, protocol.NoPermission, protocol.SystemError, protocol.InvalidParameter,
		protocol.NoBuyerID, protocol.NotInCurrentUnit, protocol.NotLeaderForQueue, protocol.GoAway:
		return true
	}
	return false
}

// request sends one frame, the only one under way to its upstream queue.
func (s *RocketMQ) request(ctx context.Context, l *lane, f *frame, topic string, queue int) error {
	route, err := s.producer.Route(ctx, topic)
	if err != nil {
		return err
	}
	if len(route.Write) == 0 {
		return fmt.Errorf("topic %s has no queue that can be written", topic)
	}
	target := route.Write[queue%len(route.Write)]
	release, err := s.acquire(ctx, target)
	if err != nil {
		return err
	}
	defer release()
	ctx, cancel := context.WithTimeout(ctx, s.o.Timeout)
	defer cancel()
	_, err = s.producer.SendBatch(ctx, route, target, &f.batch)
	if !errors.Is(err, remoting.ErrNotSent) {
		s.resent.Add(uint64(min(f.count, l.uncertain)))
	}
	if unknown(err) {
		l.uncertain = max(l.uncertain, f.count)
	}
	return err
}

// unknown says whether a failed request may have been stored all the same.
func unknown(err error) bool {
	var answer *protocol.Error
	if errors.As(err, &answer) {
		switch answer.Code {
		case protocol.SystemError, protocol.SystemBusy, protocol.ServiceNotAvailable:
			return true
		}
		return false
	}
	return errors.Is(err, remoting.ErrUnknown)
}

// acquire waits for the right to send to an upstream queue.
func (s *RocketMQ) acquire(ctx context.Context, target protocol.MessageQueue) (release func(), err error) {
	s.mu.Lock()
	token := s.targets[target]
	if token == nil {
		token = make(chan struct{}, 1)
		s.targets[target] = token
	}
	s.mu.Unlock()
	select {
	case token <- struct{}{}:
		return func() { <-token }, nil
	case <-ctx.Done():
		return nil, ctx.Err()
	}
}

// storedFrame notes a success and what it says about sizes.
func (s *RocketMQ) storedFrame(l *lane, f *frame) {
	s.stored.Add(uint64(f.count))
	l.uncertain = max(l.uncertain-f.count, 0)
	if l.limit < s.o.MaxBatchBytes {
		l.limit = min(l.limit*2, s.o.MaxBatchBytes)
	}
	if l.suspect == 0 {
		return
	}
	if l.suspect = max(l.suspect-f.count, 0); l.suspect > 0 {
		return
	}
	// Every message was stored by itself, so none is illegal: together they were
	// too large.
	lower := int64(max(l.suspected/2, leastBatchBytes))
	if old := s.ceiling.Load(); lower < old && s.ceiling.CompareAndSwap(old, lower) {
		s.logger.Warn("broker takes smaller requests only", "bytes", lower)
	}
}

func (s *RocketMQ) reject(l *lane, reason string) error {
	s.rejected.Add(1)
	l.suspect = 0
	l.uncertain = max(l.uncertain-1, 0)
	return &RejectedError{Reason: reason}
}
