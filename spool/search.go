package spool

import (
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool/segment"
)

// OffsetByTime searches q by store time, ms since 1970. With upper false it
// returns the first offset whose message was stored at ms or later, Max if
// none was; with upper true the last offset whose message was stored at ms or
// before, Min if none was. Store times never fall within a log that this
// package wrote.
func (s *Spool) OffsetByTime(q *Queue, ms int64, upper bool) int64 {
	if q == nil {
		return 0
	}
	lo, hi := q.Min(), q.Max()
	at, err := s.searchUnits(q, lo, hi, func(u unit) bool {
		t, ok := s.storeTime(u)
		if !ok {
			return false // not there any more: older than what is
		}
		return t >= ms && !upper || t > ms
	})
	if err != nil {
		s.readError(q, at, err)
	}
	if upper && at > lo {
		at--
	}
	return at
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
	var err error
	defer segment.PanicOnFault()()
	defer segment.CatchFault(&err)
	v, verr := message.ViewOf(seg.Data()[u.phys-seg.Base():])
	if verr != nil || v.PhysicalOffset() != u.phys {
		return 0, false
	}
	return v.StoreTimestamp(), true
}
