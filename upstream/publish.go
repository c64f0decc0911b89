package upstream

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluicemq/sluice/protocol/message"
)

// ErrNoStream is wrapped, beside ErrUnavailable, when no stream takes a subject:
// somebody has to create or change one.
var ErrNoStream = errors.New("no stream takes the subject")

// Codes of JetStream's API errors, beyond those that the client library names.
const (
	apiHeaderTooLarge  jetstream.ErrorCode = 10097
	apiMessageTooLarge jetstream.ErrorCode = 10054
	apiWrongStream     jetstream.ErrorCode = 10060
)

// Send publishes the batch, see Sender and NATS: up to the window ahead of the
// acknowledgements. After a failure it publishes no more and waits for the outcome of
// everything published before it returns, so that what comes again comes after it.
func (s *NATS) Send(ctx context.Context, topic string, queue int, batch []message.Message) (accepted int, err error) {
	if len(batch) == 0 {
		return 0, nil
	}
	c, err := s.connected()
	if err != nil {
		return 0, err
	}
	f := newFlight(len(batch), s.o.Stream, c.chunk)
	subject := s.subject(topic, queue)
	refused := s.publish(ctx, c, f, subject, topic, queue, batch)
	late := s.land(ctx, c, f)

	c.mu.Lock()
	if f.answered < f.published {
		c.drop(f)
	}
	c.window.Release(int64(f.acquired - f.released))
	accepted = f.accepted()
	failed := f.reason(accepted, refused, late)
	c.mu.Unlock()

	s.tell(topic, queue, batch, f.outcomes[:accepted])
	s.count(laneKey{topic, queue}, f.published, accepted)
	if accepted == len(batch) {
		return accepted, nil
	}
	return accepted, s.verdict(c, subject, failed)
}

// publish publishes the batch in pieces until one message fails. The error says
// why no more than f.published were.
func (s *NATS) publish(ctx context.Context, c *natsConn, f *flight, subject, topic string, queue int, batch []message.Message) error {
	e := s.encoders.Get().(*encoder)
	defer s.encoders.Put(e)
	e.begin(subject, topic, queue)
	slots := make([]*slot, 0, c.chunk)
	for first := 0; first < len(batch); {
		n := min(len(batch)-first, c.chunk)
		if err := s.acquire(ctx, c, f, n); err != nil {
			return err
		}
		f.acquired += n
		c.mu.Lock()
		if f.failure != nil || f.ended != nil || c.ended != nil {
			defer c.mu.Unlock()
			return cmp.Or(f.failure, f.ended, c.ended)
		}
		slots = c.take(f, first, n, slots[:0])
		c.mu.Unlock()

		sent, err := s.publishPiece(c, e, slots, batch[first:first+n])

		c.mu.Lock()
		c.giveBack(slots[sent:])
		free := f.launched(sent)
		c.mu.Unlock()
		if free > 0 {
			c.window.Release(int64(free))
		}
		if err != nil {
			return err
		}
		first += n
	}
	return nil
}

// publishPiece publishes messages one behind the other and returns how many it
// has handed to the connection.
func (s *NATS) publishPiece(c *natsConn, e *encoder, slots []*slot, ms []message.Message) (sent int, err error) {
	for i := range ms {
		m := e.encode(&ms[i])
		m.Reply = slots[i].reply
		if err := c.nc.PublishMsg(m); err != nil {
			return i, err
		}
	}
	e.msg.Data = nil // it is the spool's memory
	return len(ms), nil
}

// acquire waits until n more messages may be under way. It gives up when what the
// flight has under way itself is overdue, as nobody else would make room then.
func (s *NATS) acquire(ctx context.Context, c *natsConn, f *flight, n int) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	if c.window.TryAcquire(int64(n)) {
		return nil
	}
	for {
		c.mu.Lock()
		flying, answered := f.flying(), f.answered
		c.mu.Unlock()
		if err := s.acquireWithin(ctx, c, n); !errors.Is(err, errOverdue) {
			return err
		}
		c.mu.Lock()
		stuck := flying && f.answered == answered
		c.mu.Unlock()
		if stuck {
			return s.overdue()
		}
	}
}

// acquireWithin waits for room no longer than an acknowledgement may take.
func (s *NATS) acquireWithin(ctx context.Context, c *natsConn, n int) error {
	limited, cancel := context.WithTimeoutCause(ctx, s.o.AckTimeout, errOverdue)
	defer cancel()
	defer context.AfterFunc(c.alive, cancel)()
	if c.window.Acquire(limited, int64(n)) != nil {
		return cmp.Or(context.Cause(c.alive), context.Cause(limited))
	}
	return nil
}

var errOverdue = errors.New("no acknowledgement")

func (s *NATS) overdue() error {
	return fmt.Errorf("%w within %s", errOverdue, s.o.AckTimeout)
}

// land waits for the outcome of all that was published. The error says why some
// of them stay unknown.
func (s *NATS) land(ctx context.Context, c *natsConn, f *flight) error {
	timer := time.NewTimer(s.o.AckTimeout)
	defer timer.Stop()
	answered := -1
	for {
		c.mu.Lock()
		flying, now := f.flying() && c.ended == nil, f.answered
		c.mu.Unlock()
		if !flying {
			return nil
		}
		select {
		case <-f.landed:
		case <-ctx.Done():
			return ctx.Err()
		case <-timer.C:
			if now == answered {
				return s.overdue()
			}
			answered = now
			timer.Reset(s.o.AckTimeout)
		}
	}
}

// connected returns the connection to publish on.
func (s *NATS) connected() (*natsConn, error) {
	c := s.conn.Load()
	if c == nil {
		return nil, fmt.Errorf("%w: %w", ErrUnavailable, *s.down.Load())
	}
	if !c.nc.IsConnected() {
		return nil, fmt.Errorf("%w: not connected to %s: %w", ErrUnavailable, s.o.URL, c.broken())
	}
	if missing := c.missing.Load(); missing != nil {
		return nil, fmt.Errorf("%w: stream %s is not created: %w", ErrUnavailable, s.o.Stream, *missing)
	}
	return c, nil
}

// tell counts the messages that the server had already.
func (s *NATS) tell(topic string, queue int, batch []message.Message, outcomes []outcome) {
	for i, o := range outcomes {
		if o != storedBefore {
			continue
		}
		s.duplicates.Add(1)
		if s.o.OnDuplicate != nil {
			s.o.OnDuplicate(topic, queue, &batch[i])
		}
	}
}

// count keeps the figures of one window.
func (s *NATS) count(key laneKey, published, accepted int) {
	s.stored.Add(uint64(accepted))
	s.mu.Lock()
	defer s.mu.Unlock()
	before := s.uncertain[key]
	s.resent.Add(uint64(min(before, published)))
	if left := max(before, published) - accepted; left > 0 {
		s.uncertain[key] = left
	} else {
		delete(s.uncertain, key)
	}
}

// verdict turns the reason of a failure into what the caller may do about it.
func (s *NATS) verdict(c *natsConn, subject string, err error) error {
	var api *jetstream.APIError
	switch {
	case errors.Is(err, nats.ErrMaxPayload):
		return s.reject(fmt.Sprintf("larger than the server's max_payload of %d bytes", c.nc.MaxPayload()))
	case errors.Is(err, jetstream.ErrNoStreamResponse), errors.Is(err, nats.ErrNoResponders):
		return fmt.Errorf("%w: %w: subject %q%s", ErrUnavailable, ErrNoStream, subject, s.hint())
	case !errors.As(err, &api):
		return fmt.Errorf("%w: %w", ErrUnavailable, err)
	case api.ErrorCode == apiMessageTooLarge, api.ErrorCode == apiHeaderTooLarge:
		return s.reject(api.Description)
	case api.ErrorCode == apiWrongStream:
		return fmt.Errorf("%w: %w: subject %q leads to another stream than %s: %w", ErrUnavailable, ErrNoStream, subject, s.o.Stream, err)
	}
	return fmt.Errorf("%w: %w", ErrUnavailable, err)
}

func (s *NATS) reject(reason string) error {
	s.rejected.Add(1)
	return &RejectedError{Reason: reason}
}

func (s *NATS) hint() string {
	if s.o.Stream == "" {
		return ""
	}
	return fmt.Sprintf(" (expected stream %s)", s.o.Stream)
}
