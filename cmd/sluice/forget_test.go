package main

import (
	"context"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// TestForgottenUpstreamHoldsNothingBack drops one of two upstreams' positions
// and leaves the other's.
func TestForgottenUpstreamHoldsNothingBack(t *testing.T) {
	dir := t.TempDir()
	inStore(t, dir, func(s *spool.Spool) {
		queue := s.Queue("orders", 0)
		var batch spool.Batch
		for range 3 {
			if _, err := batch.Add(queue, &message.Message{Body: []byte("x")}); err != nil {
				t.Fatal(err)
			}
		}
		if err := s.Append(&batch); err != nil {
			t.Fatal(err)
		}
		for name, at := range map[string]int64{"old": 1, "kept": 2} {
			cursor, err := s.Cursor(name, queue, 0)
			if err != nil {
				t.Fatal(err)
			}
			cursor.Advance(at)
		}
	})
	r := call(t, nil, "spool", "forget", dir, "old")
	if r.code != 0 || !strings.Contains(r.out, "forgot 1 positions of old; 2 messages") {
		t.Fatalf("%+v", r)
	}
	if r := call(t, nil, "spool", "forget", dir, "old"); r.code != 1 || !strings.Contains(r.err, `no position of upstream "old"`) {
		t.Fatalf("%+v", r)
	}
	inStore(t, dir, func(s *spool.Spool) {
		if c := s.Cursors(); len(c) != 1 || c[0].Name != "kept" || c[0].Offset != 2 {
			t.Fatalf("cursors are %+v", c)
		}
	})
}

// inStore runs f on an open store and stops the store cleanly.
func inStore(t *testing.T, dir string, f func(*spool.Spool)) {
	t.Helper()
	s, err := spool.Open(spool.Options{Dir: dir, SegmentBytes: 1 << 20, KeepUnread: true})
	if err != nil {
		t.Fatal(err)
	}
	f(s)
	ctx, cancel := context.WithCancel(context.Background())
	cancel()
	if err := s.Run(ctx); err != nil {
		t.Fatal(err)
	}
}
