package spool

import (
	"fmt"
	"testing"
)

// BenchmarkOpen opens stores: an empty one, one with 10000 queues, and one of
// 1 GiB segments, half full, after a proper stop and after a crash.
func BenchmarkOpen(b *testing.B) {
	fill := func(b *testing.B, dir string, queues, messages int, crash bool) Options {
		o := Options{Dir: dir, SegmentBytes: 1 << 30, Flush: FlushAsync}
		if messages == 0 {
			return o
		}
		s := mustOpen(b, o)
		stop := func() { s.Close() }
		if !crash {
			stop = start(b, s)
		}
		var batch Batch
		m := msg(string(make([]byte, 1024)))
		for i := range messages {
			q := s.Queue(fmt.Sprintf("Topic%d", i%queues/4), int32(i%4))
			if _, err := batch.Add(q, m); err != nil {
				b.Fatal(err)
			}
			if batch.Len() == 512 || i == messages-1 {
				if err := s.Append(&batch); err != nil {
					b.Fatal(err)
				}
				batch.Reset()
			}
		}
		stop()
		return o
	}
	for _, tt := range []struct {
		name             string
		queues, messages int
		crash            bool
	}{{"empty", 0, 0, false}, {"queues=10000", 10000, 10000, false}, {"half/stopped", 4, 400000, false}, {"half/crashed", 4, 400000, true}} {
		b.Run(tt.name, func(b *testing.B) {
			for i := range b.N {
				b.StopTimer()
				o := fill(b, b.TempDir(), tt.queues, tt.messages, tt.crash)
				b.StartTimer()
				s := mustOpen(b, o)
				b.StopTimer()
				_ = i
				s.Close()
				b.StartTimer()
			}
		})
	}
}
