package crash

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// ask sends one request on a connection of its own, and returns the answer
// whatever its code.
func ask(ctx context.Context, addr string, code protocol.RequestCode, h protocol.Header) (*protocol.Command, error) {
	var answer *protocol.Command
	err := connected(ctx, func(client *remoting.Client) (err error) {
		answer, err = client.Call(ctx, addr, protocol.NewRequest(code, h, nil))
		return err
	})
	return answer, err
}

func connected(ctx context.Context, f func(client *remoting.Client) error) error {
	client := remoting.NewClient(remoting.ClientOptions{})
	running, stop := context.WithCancel(ctx)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.Run(running)
	}()
	defer func() { stop(); <-ended }()
	return f(client)
}

// brokerAnswers tells whether a broker answers requests.
func brokerAnswers(addr string) func(ctx context.Context) error {
	return func(ctx context.Context) error {
		answer, err := ask(ctx, addr, protocol.GetBrokerRuntimeInfo, nil)
		if err != nil {
			return err
		}
		return answer.Err()
	}
}

// readAll reads every queue of the topic from its beginning to its end, and
// fails the test when a message is not whole. A message becomes readable shortly
// after its acknowledgement, so it waits a while for the ends that are due; what
// is lost for good is the ledger's to tell.
func readAll(t *testing.T, who, addr string, ends map[int32]int64) contents {
	t.Helper()
	all := contents{}
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	defer cancel()
	err := connected(ctx, func(client *remoting.Client) error {
		for queue := range int32(queues) {
			var records []record
			var err error
			_ = eventually(func(context.Context) error {
				records, err = readQueue(ctx, client, addr, queue, records)
				if err == nil && int64(len(records)) < ends[queue] {
					return errShort
				}
				return nil
			})
			if err != nil {
				return fmt.Errorf("queue %d after %d messages: %w", queue, len(records), err)
			}
			all[queue] = records
		}
		return nil
	})
	if err != nil {
		t.Fatalf("%s: read back: %v", who, err)
	}
	return all
}

var errShort = errors.New("short queue")

// readQueue reads on behind records that were read before.
func readQueue(ctx context.Context, client *remoting.Client, addr string, queue int32, records []record) ([]record, error) {
	header := &protocol.PullMessageRequest{
		ConsumerGroup: []byte("crash"), Topic: []byte(topic), QueueID: queue, MaxMsgNums: 32, QueueOffset: int64(len(records)),
		SysFlag: protocol.PullSubscription, Subscription: []byte("*"), ExpressionType: []byte("TAG"),
	}
	for {
		answer, err := client.Call(ctx, addr, protocol.NewRequest(protocol.PullMessage, header, nil))
		if err != nil {
			return records, err
		}
		var h protocol.PullMessageResponse
		switch answer.ResponseCode() {
		case protocol.TopicNotExist: // nothing was ever sent
			return records, nil
		case protocol.Success, protocol.PullNotFound, protocol.PullRetryImmediately, protocol.PullOffsetMoved:
			if err := answer.DecodeHeader(&h); err != nil {
				return records, err
			}
		default:
			return records, answer.Err()
		}
		if h.MinOffset != 0 {
			return records, fmt.Errorf("the queue begins at %d", h.MinOffset)
		}
		if answer.ResponseCode() != protocol.Success {
			if h.MaxOffset != int64(len(records)) {
				return records, fmt.Errorf("offset %d: code %d %q, but the queue ends at %d", header.QueueOffset, answer.Code, answer.Remark, h.MaxOffset)
			}
			return records, nil
		}
		if records, err = appendRecords(records, answer.Body); err != nil {
			return records, err
		}
		header.QueueOffset = h.NextBeginOffset
	}
}

func appendRecords(records []record, body []byte) ([]record, error) {
	var failed error
	err := message.EachRecord(body, func(data []byte) bool {
		var m message.Message
		if failed = message.Decode(data, &m); failed != nil {
			return false
		}
		key, _ := m.Property(message.PropertyUniqueKey)
		failed = checkBody(key, m.Body)
		records = append(records, record{key, m.QueueOffset})
		return failed == nil
	})
	if failed != nil {
		return records, failed
	}
	return records, err
}
