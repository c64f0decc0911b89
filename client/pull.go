package client

import (
	"context"
	"fmt"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// A PullStatus is the outcome of a pull.
type PullStatus int8

// The statuses, from the answers 0, 19, 20 and 21 of a broker.
const (
	PullFound         PullStatus = iota
	PullNoNew                    // nothing at the offset yet
	PullNoMatched                // nothing that matches up to Next
	PullOffsetIllegal            // the offset is outside of the queue; Next is inside
)

// String is Apache's name of the status.
func (s PullStatus) String() string {
	switch s {
	case PullFound:
		return "FOUND"
	case PullNoNew:
		return "NO_NEW_MSG"
	case PullNoMatched:
		return "NO_MATCHED_MSG"
	case PullOffsetIllegal:
		return "OFFSET_ILLEGAL"
	}
	return fmt.Sprintf("PullStatus(%d)", int8(s))
}

// A PullRequest asks for messages of one queue.
type PullRequest struct {
	Queue  protocol.MessageQueue
	Group  string
	Offset int64
	Max    int // messages, 1 to 1024; default 32

	// Subscription is a tag expression like "a || b"; empty takes every message.
	// Version says which of several is newer.
	Subscription string
	Version      int64

	// Suspend is how long the broker may hold the request while there is nothing
	// at Offset; 0 answers at once.
	Suspend time.Duration

	BrokerID int64 // preferred member of the broker name: 0 master, else a slave
}

// A PullResult is what a broker answered to a pull.
type PullResult struct {
	Status   PullStatus
	Messages []*message.Message // in order of their offsets; bodies as stored
	Next     int64              // where to pull from next
	Min, Max int64              // of the queue
	BrokerID int64              // the member that the broker suggests for the next pull
}

// maxPullSpare is how much longer than the broker's hold a pull waits for its
// answer.
const maxPullSpare = 15 * time.Second

// Pull asks a broker for messages once. Without a deadline in ctx the time-out
// is the hold time and 15 s. Messages share the memory of the answer; what the
// tags' hashes let pass by mistake is not removed.
func (c *Client) Pull(ctx context.Context, r PullRequest) (PullResult, error) {
	route, err := c.Route(ctx, r.Queue.Topic)
	if err != nil {
		return PullResult{}, err
	}
	addr, _, ok := route.Broker(r.Queue.BrokerName, r.BrokerID)
	if !ok {
		return PullResult{}, fmt.Errorf("pull: %w: broker %s is not in the route of %s", ErrUnavailable, r.Queue.BrokerName, r.Queue.Topic)
	}
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, r.Suspend+maxPullSpare)
		defer cancel()
		ctx = limited
	}
	resp, err := c.Call(ctx, addr, protocol.NewRequest(protocol.PullMessage, r.header(), nil))
	if err != nil {
		return PullResult{}, err
	}
	return pullResult(resp)
}

// header always carries the subscription, so that a pull works before the
// broker has seen a heartbeat with it.
func (r *PullRequest) header() *protocol.PullMessageRequest {
	h := &protocol.PullMessageRequest{
		ConsumerGroup:        []byte(r.Group),
		Topic:                []byte(r.Queue.Topic),
		QueueID:              r.Queue.QueueID,
		QueueOffset:          r.Offset,
		MaxMsgNums:           int32(r.Max),
		SysFlag:              protocol.PullSubscription,
		SuspendTimeoutMillis: r.Suspend.Milliseconds(),
		Subscription:         []byte(r.Subscription),
		SubVersion:           r.Version,
		ExpressionType:       []byte(protocol.ExpressionTag),
		BrokerName:           []byte(r.Queue.BrokerName),
	}
	if h.MaxMsgNums == 0 {
		h.MaxMsgNums = 32
	}
	if r.Suspend > 0 {
		h.SysFlag |= protocol.PullSuspend
	}
	if r.Subscription == "" {
		h.Subscription = []byte(subscribeAll)
	}
	return h
}

func pullResult(resp *protocol.Command) (PullResult, error) {
	var r PullResult
	switch resp.ResponseCode() {
	case protocol.Success:
		r.Status = PullFound
	case protocol.PullNotFound:
		r.Status = PullNoNew
	case protocol.PullRetryImmediately:
		r.Status = PullNoMatched
	case protocol.PullOffsetMoved:
		r.Status = PullOffsetIllegal
	default:
		return r, fmt.Errorf("pull: %w", resp.Err())
	}
	var h protocol.PullMessageResponse
	if err := resp.DecodeHeader(&h); err != nil {
		return r, fmt.Errorf("pull: %w", err)
	}
	r.Next, r.Min, r.Max, r.BrokerID = h.NextBeginOffset, h.MinOffset, h.MaxOffset, h.SuggestWhichBrokerID
	if r.Status != PullFound {
		return r, nil
	}
	var decodeErr error
	err := message.EachRecord(resp.Body, func(record []byte) bool {
		m := new(message.Message)
		if decodeErr = message.Decode(record, m); decodeErr == nil {
			r.Messages = append(r.Messages, m)
		}
		return decodeErr == nil
	})
	if err == nil {
		err = decodeErr
	}
	if err != nil {
		return r, fmt.Errorf("pull: answer: %w", err)
	}
	return r, nil
}
