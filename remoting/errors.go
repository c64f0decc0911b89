package remoting

import (
	"errors"
	"fmt"
	"net"
)

var (
	// ErrTooManyCalls refuses a call or one-way request because as many as allowed
	// are under way. Nothing was sent.
	ErrTooManyCalls = errors.New("too many calls under way")
	// ErrTooLarge refuses a frame that no peer would take. Nothing was sent.
	ErrTooLarge = errors.New("frame exceeds the limit")
	// ErrTimeout is the cause when no answer came in time.
	ErrTimeout = errors.New("no answer in time")
	// ErrClosed is the cause when the connection, client or server was closed on
	// this side.
	ErrClosed = errors.New("connection closed")
	// ErrNotSent matches, by errors.Is, a failed call of which no byte has been
	// given to the network: the peer cannot have handled it.
	ErrNotSent = errors.New("request not sent")
	// ErrUnknown matches, by errors.Is, a failed call that may have been sent: the
	// peer may have handled it, or may still.
	ErrUnknown = errors.New("request sent, outcome unknown")

	errIdle       = errors.New("idle for too long")
	errStopping   = errors.New("stopping")
	errHandshake  = errors.New("TLS handshake failed")
	errWriteStuck = errors.New("peer takes no data")
)

// A CallError is why a call has no answer. It matches either ErrNotSent or
// ErrUnknown, and its cause.
type CallError struct {
	Addr string // the peer
	Sent bool   // whether bytes of the request may have left
	Err  error  // ErrTimeout, ErrTooManyCalls, a context's error, or what ended the connection
}

// Error names the peer, what is known of the request, and the cause.
func (e *CallError) Error() string {
	state := ErrNotSent
	if e.Sent {
		state = ErrUnknown
	}
	return fmt.Sprintf("call %s: %v: %v", e.Addr, state, e.Err)
}

// Unwrap returns the cause.
func (e *CallError) Unwrap() error { return e.Err }

// Is matches ErrNotSent and ErrUnknown.
func (e *CallError) Is(target error) bool {
	return target == ErrNotSent && !e.Sent || target == ErrUnknown && e.Sent
}

// A frameError is input that is no frame; it closes the connection.
type frameError struct{ reason string }

func (e *frameError) Error() string { return e.reason }

func isTimeout(err error) bool {
	var ne net.Error
	return errors.As(err, &ne) && ne.Timeout()
}
