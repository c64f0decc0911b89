package spool_test

import (
	"errors"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// Joined messages of several queues go to one segment, whole, though the first
// of them would still have had room in the one before.
func TestJoinedMessagesShareASegment(t *testing.T) {
	const segment = 64 << 10
	s, err := spool.Open(spool.Options{Dir: t.TempDir(), SegmentBytes: segment})
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	var batch spool.Batch
	add := func(queue int32, size int) {
		t.Helper()
		if _, err := batch.Add(s.Queue("orders", queue), &message.Message{Body: make([]byte, size)}); err != nil {
			t.Fatal(err)
		}
	}
	add(0, segment/2)
	if err := s.Append(&batch); err != nil {
		t.Fatal(err)
	}
	batch.Reset()
	for queue := range int32(4) {
		add(queue, segment/5)
	}
	if err := batch.Join(); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&batch); err != nil {
		t.Fatal(err)
	}
	for i := range batch.Len() {
		if at := batch.Result(i).PhysicalOffset; at/segment != 1 {
			t.Errorf("message %d is at %d, in segment %d", i, at, at/segment)
		}
	}
	for queue := range int32(4) {
		add(queue, segment/5)
	}
	if err := batch.Join(); !errors.Is(err, spool.ErrTooLarge) {
		t.Errorf("joining more than a segment holds gives %v", err)
	}
}
