package client

import (
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// MaxOffset is the offset that the queue's next message will take.
func (c *Client) MaxOffset(ctx context.Context, mq protocol.MessageQueue) (int64, error) {
	return c.offset(ctx, mq, protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: mq.Topic, QueueID: mq.QueueID})
}

// MinOffset is the offset of the queue's oldest message.
func (c *Client) MinOffset(ctx context.Context, mq protocol.MessageQueue) (int64, error) {
	return c.offset(ctx, mq, protocol.GetMinOffset, &protocol.GetMinOffsetRequest{Topic: mq.Topic, QueueID: mq.QueueID})
}

// OffsetByTime is the offset of the first message that was stored at t or later,
// the offset after the last one when all are older.
func (c *Client) OffsetByTime(ctx context.Context, mq protocol.MessageQueue, t time.Time) (int64, error) {
	return c.offset(ctx, mq, protocol.SearchOffsetByTimestamp, &protocol.SearchOffsetRequest{
		Topic: mq.Topic, QueueID: mq.QueueID, Timestamp: t.UnixMilli(),
	})
}

// CommittedOffset is how far a group has consumed a queue, as its broker knows;
// known is false when the group has never committed. A broker says 0 for such a
// group while the queue's first message is still in its memory.
func (c *Client) CommittedOffset(ctx context.Context, group string, mq protocol.MessageQueue) (offset int64, known bool, err error) {
	offset, err = c.offset(ctx, mq, protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{
		ConsumerGroup: group, Topic: mq.Topic, QueueID: mq.QueueID,
	})
	var answer *protocol.Error
	if errors.As(err, &answer) && answer.Code == protocol.QueryNotFound {
		return 0, false, nil
	}
	return offset, err == nil, err
}

// CommitOffset records at the broker that a group has consumed a queue up to,
// not including, offset.
func (c *Client) CommitOffset(ctx context.Context, group string, mq protocol.MessageQueue, offset int64) error {
	_, err := c.callMaster(ctx, mq, protocol.NewRequest(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{
		ConsumerGroup: group, Topic: mq.Topic, QueueID: mq.QueueID, CommitOffset: offset,
	}, nil))
	return err
}

func (c *Client) offset(ctx context.Context, mq protocol.MessageQueue, code protocol.RequestCode, h protocol.Header) (int64, error) {
	resp, err := c.callMaster(ctx, mq, protocol.NewRequest(code, h, nil))
	if err != nil {
		return 0, err
	}
	var header protocol.OffsetResponse
	if err := resp.DecodeHeader(&header); err != nil {
		return 0, fmt.Errorf("%s: %w", code, err)
	}
	return header.Offset, nil
}

// callMaster sends a request to the broker that holds the queue: to its master,
// or, when it has none now, to a slave, which also keeps offsets.
func (c *Client) callMaster(ctx context.Context, mq protocol.MessageQueue, cmd *protocol.Command) (*protocol.Command, error) {
	route, err := c.Route(ctx, mq.Topic)
	if err != nil {
		return nil, err
	}
	addr, _, ok := route.Broker(mq.BrokerName, masterID)
	if !ok {
		return nil, fmt.Errorf("%s: %w: broker %s is not in the route of %s", cmd.RequestCode(), ErrUnavailable, mq.BrokerName, mq.Topic)
	}
	return c.CallOK(ctx, addr, cmd)
}
