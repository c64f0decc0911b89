package message

import (
	"crypto/rand"
	"encoding/binary"
	"net/netip"
	"sync"
	"time"
)

// UniqueKeys makes the keys by which producers name their messages. A key is
// upper-case hex of (RocketMQ message model, "Unique key"):
//
//	ip 4 | 16, process id 2, origin 4, ms since the month began 4, counter 2
//
// Keys of one UniqueKeys never repeat within a month and grow in the order of
// the calls, also when the clock is set back; the origin is random, so that
// processes with the same address and id do not collide.
type UniqueKeys struct {
	now   func() time.Time
	fixed []byte // ip, process id, origin

	mu         sync.Mutex
	last       uint64 // ms since 1970 << 16 | counter
	monthStart int64  // ms since 1970, local time
	monthEnd   int64
}

// NewUniqueKeys makes a generator for a process. Without a valid ip four bytes
// of the clock take its place. now is the wall clock in the wanted location.
func NewUniqueKeys(ip netip.Addr, pid int, now func() time.Time) *UniqueKeys {
	fixed := make([]byte, 0, 22)
	if ip.IsValid() {
		fixed = append(fixed, ip.Unmap().AsSlice()...)
	} else {
		fixed = binary.BigEndian.AppendUint32(fixed, uint32(now().UnixMilli()))
	}
	fixed = binary.BigEndian.AppendUint16(fixed, uint16(pid))
	var origin [4]byte
	rand.Read(origin[:]) // never fails
	return &UniqueKeys{now: now, fixed: append(fixed, origin[:]...)}
}

// Next returns a new key. It is safe for concurrent use.
func (u *UniqueKeys) Next() string {
	return string(u.AppendNext(make([]byte, 0, 2*(cap(u.fixed)+6))))
}

// AppendNext appends a new key to dst. It is safe for concurrent use.
func (u *UniqueKeys) AppendNext(dst []byte) []byte {
	var tail [6]byte
	u.mu.Lock()
	now := u.now()
	// The time part never goes back: while the clock is behind, the counter
	// goes on and carries into the milliseconds.
	next := u.last + 1
	if ms := uint64(max(now.UnixMilli(), 0)); ms > u.last>>16 {
		next = ms<<16 | next&0xFFFF
	}
	u.last = next
	ms := int64(next >> 16)
	if ms < u.monthStart || ms >= u.monthEnd {
		u.enterMonth(ms, now.Location())
	}
	// Late in a month the milliseconds exceed 31 bits; as in Java, the sign
	// bit is then simply set.
	binary.BigEndian.PutUint32(tail[:], uint32(ms-u.monthStart))
	u.mu.Unlock()
	binary.BigEndian.PutUint16(tail[4:], uint16(next))
	return appendHex(appendHex(dst, u.fixed), tail[:])
}

func (u *UniqueKeys) enterMonth(ms int64, loc *time.Location) {
	t := time.UnixMilli(ms).In(loc)
	u.monthStart = time.Date(t.Year(), t.Month(), 1, 0, 0, 0, 0, loc).UnixMilli()
	u.monthEnd = time.Date(t.Year(), t.Month()+1, 1, 0, 0, 0, 0, loc).UnixMilli()
}
