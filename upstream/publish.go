package upstream

import (
	"context"
	"errors"
	"fmt"

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

// Send publishes the batch window by window, see Sender and NATS. After a failure
// it waits for the outcome of everything published before it returns, so that
// what comes again comes after it.
func (s *NATS) Send(ctx context.Context, topic string, queue int, batch []message.Message) (accepted int, err error) {
	for accepted < len(batch) && err == nil {
		n := min(len(batch)-accepted, s.o.MaxPending)
		var stored int
		stored, err = s.sendWindow(ctx, topic, queue, batch[accepted:accepted+n])
		accepted += stored
	}
	return accepted, err
}

// sendWindow publishes all messages and waits for all acknowledgements.
func (s *NATS) sendWindow(ctx context.Context, topic string, queue int, ms []message.Message) (accepted int, err error) {
	c, err := s.connected()
	if err != nil {
		return 0, err
	}
	// All at once: two senders with half of what they need would wait for ever.
	if err := s.window.Acquire(ctx, int64(len(ms))); err != nil {
		return 0, fmt.Errorf("%w: %w", ErrUnavailable, err)
	}
	defer s.window.Release(int64(len(ms)))

	futures := make([]jetstream.PubAckFuture, 0, len(ms))
	subject := s.subject(topic, queue)
	var refused error // why publishing ended early
	for i := range ms {
		// The library's own retries would overtake what was published behind.
		future, err := c.js.PublishMsgAsync(s.encode(subject, topic, queue, &ms[i]), jetstream.WithRetryAttempts(0))
		if err != nil {
			refused = err
			break
		}
		futures = append(futures, future)
	}
	accepted, failed := s.acknowledged(ctx, topic, queue, ms, futures)
	s.count(laneKey{topic, queue}, len(futures), accepted)
	if failed == nil {
		failed = refused
	}
	if failed != nil {
		return accepted, s.verdict(c, subject, failed)
	}
	return accepted, nil
}

// connected returns the connection to publish on.
func (s *NATS) connected() (*natsConn, error) {
	c := s.conn.Load()
	if c == nil {
		return nil, fmt.Errorf("%w: not running", ErrUnavailable)
	}
	if !c.nc.IsConnected() {
		if err := c.nc.LastError(); err != nil {
			return nil, fmt.Errorf("%w: not connected to %s: %w", ErrUnavailable, s.o.URL, err)
		}
		return nil, fmt.Errorf("%w: not connected to %s", ErrUnavailable, s.o.URL)
	}
	if missing := c.missing.Load(); missing != nil {
		return nil, fmt.Errorf("%w: stream %s is not created: %w", ErrUnavailable, s.o.Stream, *missing)
	}
	return c, nil
}

// acknowledged waits for the outcome of each message and returns how many of the
// first were stored and what became of the next.
func (s *NATS) acknowledged(ctx context.Context, topic string, queue int, ms []message.Message, futures []jetstream.PubAckFuture) (accepted int, failed error) {
	for i, future := range futures {
		var ack *jetstream.PubAck
		var err error
		select {
		case ack = <-future.Ok():
		case err = <-future.Err():
		case <-ctx.Done():
			if failed == nil {
				failed = ctx.Err()
			}
			return accepted, failed
		}
		switch {
		case failed != nil: // stored or not, it comes again
		case err != nil:
			failed = err
		default:
			accepted++
			if ack.Duplicate {
				s.duplicates.Add(1)
				if s.o.OnDuplicate != nil {
					s.o.OnDuplicate(topic, queue, &ms[i])
				}
			}
		}
	}
	return accepted, failed
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
