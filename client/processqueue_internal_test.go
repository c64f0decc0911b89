package client

import (
	"context"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

func messagesAt(offsets ...int64) (ms []*message.Message) {
	for _, o := range offsets {
		ms = append(ms, &message.Message{QueueOffset: o, Body: []byte("1234")})
	}
	return ms
}

// expectUncommitted checks what would be committed now.
func expectUncommitted(t *testing.T, q *processQueue, what string, want int64) {
	t.Helper()
	if offset, pending := q.uncommitted(); offset != want || !pending {
		t.Errorf("%s: %d, %v, want %d", what, offset, pending, want)
	}
}

func TestProcessQueueCommitsOnlyWhatIsConsumed(t *testing.T) {
	q := newProcessQueue(protocol.MessageQueue{}, 10, func() {})
	if _, pending := q.uncommitted(); pending {
		t.Error("a start that no broker has confirmed would be committed")
	}
	q.put(messagesAt(10, 12), 15) // 11, 13 and 14 were filtered out
	expectUncommitted(t, q, "nothing consumed", 10)
	batch, err := q.take(t.Context(), 1)
	if err != nil || len(batch) != 1 || batch[0].QueueOffset != 10 {
		t.Fatalf("%v, %v", batch, err)
	}
	expectUncommitted(t, q, "being consumed", 10)
	q.done(1)
	expectUncommitted(t, q, "first consumed", 11)
	if batch, _ := q.take(t.Context(), 5); len(batch) != 1 {
		t.Fatalf("took %d", len(batch))
	}
	q.put(nil, 20) // a pull that found nothing, meanwhile
	expectUncommitted(t, q, "second being consumed", 11)
	q.done(1)
	expectUncommitted(t, q, "all consumed", 20)
	q.markCommitted(20)
	if _, pending := q.uncommitted(); pending {
		t.Error("committed twice")
	}
	q.reset(3)
	expectUncommitted(t, q, "after a reset", 3)
	if q.position() != 3 || q.bytes != 0 {
		t.Errorf("position %d, bytes %d", q.position(), q.bytes)
	}
}

func TestProcessQueueRoom(t *testing.T) {
	q := newProcessQueue(protocol.MessageQueue{}, 0, func() {})
	ended, cancel := context.WithCancel(t.Context())
	cancel()
	q.put(messagesAt(0, 1, 2), 3)
	if err := q.waitRoom(ended, 3, 1000); err == nil {
		t.Error("room beside the most messages")
	}
	if err := q.waitRoom(ended, 4, 12); err == nil {
		t.Error("room beside the most bytes")
	}
	if err := q.waitRoom(ended, 4, 13); err != nil {
		t.Errorf("no room: %v", err)
	}
	waited := make(chan error)
	go func() { waited <- q.waitIdle(t.Context()) }()
	for range 3 {
		if _, err := q.take(t.Context(), 1); err != nil {
			t.Fatal(err)
		}
		q.done(1)
	}
	if err := <-waited; err != nil {
		t.Errorf("not idle: %v", err)
	}
	if _, err := q.take(ended, 1); err == nil {
		t.Error("took from an empty queue")
	}
}
