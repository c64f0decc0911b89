// Package upstream forwards messages to where a sidecar's lanes lead: a RocketMQ
// cluster or NATS JetStream.
//
// A Sender delivers at least once and in order. Whatever it cannot prove to be
// stored it reports as not accepted, and the caller sends it again, later, with
// the same unique key, by which readers recognise doubles. Which failures pass
// and which are for good is the sender's knowledge: for good is a RejectedError,
// everything else passes.
package upstream

import (
	"context"
	"errors"

	"github.com/sluicemq/sluice/protocol/message"
)

// A Sender delivers the messages of local queues, each queue in order. Send may
// be called for different queues at once, never twice at once for one queue.
type Sender interface {
	// Send delivers a batch of one local queue and returns how many messages of
	// its beginning are stored upstream. With accepted < len(batch) err says why
	// the message at index accepted is not known to be stored; a *RejectedError
	// means that it never will be. Messages after that index may be stored as
	// well: the caller sends them again, in order. It neither changes nor keeps
	// the messages.
	Send(ctx context.Context, topic string, queue int, batch []message.Message) (accepted int, err error)

	// Queues is the number of queues that the topic has upstream for writing;
	// 0 when the upstream has no such notion or does not know the topic.
	Queues(ctx context.Context, topic string) (int, error)

	// Run keeps the connections until ctx ends. Send and Queues fail with
	// ErrUnavailable while it does not run.
	Run(ctx context.Context) error

	// Stats counts what was sent since the sender was made.
	Stats() Stats
}

// Stats counts the messages of a sender since it was made.
type Stats struct {
	Stored     uint64 // acknowledged as stored, doubles among them
	Resent     uint64 // sent again because the first outcome was unknown
	Duplicates uint64 // recognised as doubles by the upstream itself
	Rejected   uint64 // refused for good
}

// ErrUnavailable is wrapped by errors that pass when the upstream comes back:
// no connection, a time-out, a busy or restarting server.
var ErrUnavailable = errors.New("upstream unavailable")

// A RejectedError says that the upstream refuses a message for good: sending it
// again would fail again.
type RejectedError struct {
	Reason string
}

func (e *RejectedError) Error() string {
	return "upstream rejects the message: " + e.Reason
}
