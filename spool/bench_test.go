package spool

import (
	"context"
	"fmt"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
)

// benchSpool is a running spool of big segments, its first one filled ahead.
func benchSpool(b *testing.B, mode FlushMode) *Spool {
	o := Options{Dir: b.TempDir(), Flush: mode, SegmentBytes: 256 << 20, MaxBytes: 2 << 30}
	s := mustOpen(b, o)
	start(b, s)
	deadline := time.Now().Add(20 * time.Second)
	for time.Now().Before(deadline) {
		if did, err := s.seq.Last().FillStep(1 << 40); err != nil {
			b.Fatal(err)
		} else if !did {
			break
		}
	}
	return s
}

func benchBatch(b *testing.B, s *Spool, batch *Batch, queues []*Queue, n int, m *message.Message) {
	batch.Reset()
	for i := range n {
		if _, err := batch.Add(queues[i%len(queues)], m); err != nil {
			b.Fatal(err)
		}
	}
	if err := s.Append(batch); err != nil {
		b.Fatal(err)
	}
}

func benchQueues(s *Spool, n int) []*Queue {
	var qs []*Queue
	for i := range n {
		qs = append(qs, s.Queue("BenchmarkTopic", int32(i)))
	}
	return qs
}

// BenchmarkAppend appends 1 KiB messages in bursts and waits for each burst,
// with dispatch running; ns/op is per message.
func BenchmarkAppend(b *testing.B) {
	for _, mode := range []FlushMode{FlushAsync, FlushSync} {
		for _, burst := range []int{1, 256} {
			b.Run(fmt.Sprintf("%v/burst=%d", mode, burst), func(b *testing.B) {
				s := benchSpool(b, mode)
				queues := benchQueues(s, 8)
				m := msg(string(make([]byte, 1024)))
				var batch Batch
				b.ReportAllocs()
				b.ResetTimer()
				for i := 0; i < b.N; i += burst {
					benchBatch(b, s, &batch, queues, burst, m)
					if err := s.WaitDurable(context.Background(), batch.End()); err != nil {
						b.Fatal(err)
					}
				}
				b.StopTimer()
			})
		}
	}
}

// BenchmarkAppendLocked is the part of an append that excludes others: sealing
// and writing 256 messages of 1 KiB, without dispatch.
func BenchmarkAppendLocked(b *testing.B) {
	o := Options{Dir: b.TempDir(), Flush: FlushAsync, SegmentBytes: 64 << 20, MaxBytes: 1 << 30}
	s := mustOpen(b, o)
	defer s.Close()
	queues := benchQueues(s, 8)
	m := msg(string(make([]byte, 1024)))
	var batch Batch
	for i := range 256 {
		if _, err := batch.Add(queues[i%8], m); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += 256 {
		if s.w.seg.End()-s.w.end < 1<<20 { // stay in one segment
			s.w.end = s.w.seg.Base()
		}
		if err := s.Append(&batch); err != nil {
			b.Fatal(err)
		}
	}
	b.StopTimer()
}

// BenchmarkDispatch dispatches a log of 1 KiB messages for 8 queues; ns/op is
// per message.
func BenchmarkDispatch(b *testing.B) {
	const n = 100 << 10
	s := mustOpen(b, Options{Dir: b.TempDir(), Flush: FlushAsync, SegmentBytes: 256 << 20})
	defer s.Close()
	queues := benchQueues(s, 8)
	m := msg(string(make([]byte, 1024)))
	var batch Batch
	for range n / 256 {
		benchBatch(b, s, &batch, queues, 256, m)
	}
	b.ReportAllocs()
	b.ResetTimer()
	for i := 0; i < b.N; i += n {
		s.dispatch.pos.Store(0)
		for _, q := range queues {
			q.max.Store(0)
		}
		for s.dispatchRound() == nil {
		}
	}
	b.StopTimer()
}

// BenchmarkRead reads 32 messages of 1 KiB at a time and copies them out;
// ns/op is per message.
func BenchmarkRead(b *testing.B) {
	const n = 64 << 10
	s := mustOpen(b, Options{Dir: b.TempDir(), Flush: FlushAsync, SegmentBytes: 256 << 20})
	defer s.Close()
	queues := benchQueues(s, 8)
	m := msg(string(make([]byte, 1024)))
	var batch Batch
	for range n / 256 {
		benchBatch(b, s, &batch, queues, 256, m)
	}
	for s.dispatchRound() == nil {
	}
	var recs Records
	var out []byte
	b.ReportAllocs()
	b.ResetTimer()
	at, q := int64(0), 0
	for i := 0; i < b.N; {
		r := s.Read(queues[q], at, Limit{Messages: 32, Bytes: 256 << 10}, nil, &recs)
		out = recs.AppendTo(out[:0])
		i += recs.Len()
		recs.Release()
		if at = r.Next; at >= r.Max {
			at, q = 0, (q+1)%len(queues)
		}
	}
}
