package spool

import (
	"errors"
	"slices"

	"github.com/sluicemq/sluice/spool/segment"
)

// OffsetByTime searches q by store time, ms since 1970. With upper false it
// returns the first offset whose message was stored at ms or later, Max if
// none was; with upper true the last offset whose message was stored at ms or
// before, Min if none was.
func (s *Spool) OffsetByTime(q *Queue, ms int64, upper bool) int64 {
	if q == nil {
		return 0
	}
	lo, hi := q.Min(), q.Max()
	if s.backAt.Load() <= s.seq.Base() {
		at, _ := s.searchTime(q, lo, hi, ms, upper)
		return at
	}
	// Store time went back somewhere, which it does only between segments.
	segs := slices.Clone(s.seq.Segments())
	if upper {
		slices.Reverse(segs)
	}
	for _, seg := range segs {
		from, err1 := s.searchUnits(q, lo, hi, func(_ int64, u unit) bool { return u.phys >= seg.Base() })
		to, err2 := s.searchUnits(q, from, hi, func(_ int64, u unit) bool { return u.phys >= seg.End() })
		if err := errors.Join(err1, err2); err != nil {
			s.readError(q, from, err)
			return lo
		}
		if at, ok := s.searchTime(q, from, to, ms, upper); ok {
			return at
		}
	}
	if upper {
		return lo
	}
	return hi
}

// searchTime does it within [lo, hi), where store time does not fall. ok is
// false when there is no such message.
func (s *Spool) searchTime(q *Queue, lo, hi, ms int64, upper bool) (at int64, ok bool) {
	at, err := s.searchUnits(q, lo, hi, func(at int64, u unit) bool {
		t, ok := s.storeTime(u)
		for !ok { // an offset without a message counts as the one behind it
			if at++; at >= hi {
				return true
			}
			u, err := s.files.unitAt(q, at)
			if err != nil {
				return true
			}
			t, ok = s.storeTime(u)
		}
		return t >= ms && !upper || t > ms
	})
	if err != nil {
		s.readError(q, at, err)
	}
	if !upper {
		return at, at < hi
	}
	return max(at-1, lo), at > lo
}

// EarliestStoreTime is the store time of q's first message that is kept, ms
// since 1970, or -1 when there is none.
func (s *Spool) EarliestStoreTime(q *Queue) int64 {
	if q == nil {
		return -1
	}
	for at, end := q.Min(), q.Max(); at < end; at++ {
		u, err := s.files.unitAt(q, at)
		if err != nil {
			s.readError(q, at, err)
			return -1
		}
		if t, ok := s.storeTime(u); ok {
			return t
		}
	}
	return -1
}

// storeTime reads the store time of a unit's record.
func (s *Spool) storeTime(u unit) (ms int64, ok bool) {
	seg := s.seq.Find(u.phys)
	if u.gap() || seg == nil || seg.Acquire() != nil {
		return 0, false
	}
	defer seg.Release()
	defer segment.PanicOnFault()()
	v, err := viewAt(seg.Data()[u.phys-seg.Base():], u.phys)
	if err != nil {
		return 0, false
	}
	return v.StoreTimestamp(), true
}
