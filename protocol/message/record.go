package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math"
	"net/netip"
	"slices"
)

// The record (RocketMQ storage format, "Commit log record"; big endian):
//
//	 0 totalSize 4      16 flag 4            40 bornTimestamp 8
//	 4 magic 4          20 queueOffset 8     48 bornHost 8 | 20
//	 8 bodyCRC 4        28 physicalOffset 8  56 storeTimestamp 8   (+12 after
//	12 queueId 4        36 sysFlag 4         64 storeHost 8 | 20    a v6 host)
//	                                         72 reconsumeTimes 4
//	                                         76 preparedTransactionOffset 8
//	84 bodyLength 4, body
//	   topicLength 1 | 2, topic              (2 with MagicV2)
//	   propertiesLength 2, properties
const (
	offSize           = 0
	offMagic          = 4
	offBodyCRC        = 8
	offQueueID        = 12
	offFlag           = 16
	offQueueOffset    = 20
	offPhysicalOffset = 28
	offSysFlag        = 36
	offBornTimestamp  = 40
	offBornHost       = 48

	hostV4 = 8 // address and a port of 4 bytes
	hostV6 = 20

	// fixedV4 is a V1 record without body, topic and properties, both hosts v4.
	fixedV4 = 91
)

// Magic numbers of records. MagicV2 has a topic length of two bytes;
// MagicBlank marks the unused end of a commit log file.
const (
	MagicV1    uint32 = 0xDAA320A7
	MagicV2    uint32 = 0xDAA320AB
	MagicBlank uint32 = 0xCBD43194
)

// Limits of a record.
const (
	MaxPropertiesLen = math.MaxInt16 // the field is a signed 16-bit number
	MaxTopicLen      = 255           // as stored; see ValidateTopic
	BlankLen         = 8             // bytes of a blank record that are written
	maxTopicV1       = 127
)

// Errors of AppendRecord and AppendBatchEntry.
var (
	ErrPropertiesTooLong = errors.New("properties too long")
	ErrTopicTooLong      = errors.New("topic too long")
	ErrNoTopic           = errors.New("no topic")
	ErrRecordTooLong     = errors.New("record too long")
)

// shape is what the size of a record depends on.
type shape struct {
	size      int
	props     []byte // without a CRC that a client sent
	propsLen  int    // in the record: separator and CRC included
	v6Born    bool
	v6Store   bool
	v2        bool
	crc       bool
	separator bool // the text's last separator is missing and must be added
}

// shapeOf computes the record's shape. A client's own trailing CRC property is
// dropped, it would be taken for the record's. Properties so long that the CRC
// does not fit beside them are stored without it: the format's limit is then
// still the client's limit, and the body's CRC remains.
func shapeOf(m *Message, withCRC bool) shape {
	s := shape{
		props:   trimCRC(m.Properties),
		v6Born:  isV6(m.BornHost),
		v6Store: isV6(m.StoreHost),
		v2:      len(m.Topic) > maxTopicV1,
	}
	s.propsLen = len(s.props)
	if withCRC {
		add := CRCSuffixLen
		separator := s.propsLen > 0 && s.props[s.propsLen-1] != pairSeparator
		if separator {
			add++
		}
		if s.propsLen+add <= MaxPropertiesLen {
			s.crc, s.separator = true, separator
			s.propsLen += add
		}
	}
	s.size = fixedV4 + len(m.Body) + len(m.Topic) + s.propsLen
	if s.v6Born {
		s.size += hostV6 - hostV4
	}
	if s.v6Store {
		s.size += hostV6 - hostV4
	}
	if s.v2 {
		s.size++
	}
	return s
}

// RecordSize is the number of bytes AppendRecord appends for m.
func RecordSize(m *Message, withCRC bool) int { return shapeOf(m, withCRC).size }

// AppendRecord appends m's record with the offsets and the store time in m,
// and returns the longer slice. The address family bits of the system flag
// come from the hosts. With withCRC the properties end with room for the
// record CRC, which Seal fills: without Seal the record does not verify. It
// allocates only when dst is too short. On error dst is returned as it was.
func AppendRecord(dst []byte, m *Message, withCRC bool) ([]byte, error) {
	s := shapeOf(m, withCRC)
	if err := s.check(m); err != nil {
		return dst, err
	}
	start := len(dst)
	dst = slices.Grow(dst, s.size)[:start+s.size]
	b := dst[start:]

	magic := MagicV1
	if s.v2 {
		magic = MagicV2
	}
	flag := m.SysFlag &^ (BornHostV6 | StoreHostV6)
	if s.v6Born {
		flag |= BornHostV6
	}
	if s.v6Store {
		flag |= StoreHostV6
	}
	be := binary.BigEndian
	be.PutUint32(b[offSize:], uint32(s.size))
	be.PutUint32(b[offMagic:], magic)
	be.PutUint32(b[offBodyCRC:], checksum(m.Body))
	be.PutUint32(b[offQueueID:], uint32(m.QueueID))
	be.PutUint32(b[offFlag:], uint32(m.Flag))
	be.PutUint64(b[offQueueOffset:], uint64(m.QueueOffset))
	be.PutUint64(b[offPhysicalOffset:], uint64(m.PhysicalOffset))
	be.PutUint32(b[offSysFlag:], uint32(flag))
	be.PutUint64(b[offBornTimestamp:], uint64(m.BornTimestamp))
	p := offBornHost + putHost(b[offBornHost:], m.BornHost, s.v6Born)
	be.PutUint64(b[p:], uint64(m.StoreTimestamp))
	p += 8
	p += putHost(b[p:], m.StoreHost, s.v6Store)
	be.PutUint32(b[p:], uint32(m.ReconsumeTimes))
	be.PutUint64(b[p+4:], uint64(m.PreparedTransactionOffset))
	be.PutUint32(b[p+12:], uint32(len(m.Body)))
	p += 16
	p += copy(b[p:], m.Body)
	if s.v2 {
		be.PutUint16(b[p:], uint16(len(m.Topic)))
		p += 2
	} else {
		b[p] = byte(len(m.Topic))
		p++
	}
	p += copy(b[p:], m.Topic)
	be.PutUint16(b[p:], uint16(s.propsLen))
	p += 2
	p += copy(b[p:], s.props)
	if s.separator {
		b[p] = pairSeparator
		p++
	}
	if s.crc {
		putCRC(b[p:], 0)
	}
	return dst, nil
}

func (s *shape) check(m *Message) error {
	switch {
	case len(m.Topic) == 0:
		return ErrNoTopic
	case len(m.Topic) > MaxTopicLen:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrTopicTooLong, len(m.Topic), MaxTopicLen)
	case s.propsLen > MaxPropertiesLen:
		return fmt.Errorf("%w: %d bytes, at most %d", ErrPropertiesTooLong, len(m.Properties), MaxPropertiesLen)
	case s.size < 0 || s.size > math.MaxInt32:
		return fmt.Errorf("%w: body of %d bytes", ErrRecordTooLong, len(m.Body))
	}
	return nil
}

// Seal writes the three fields of an encoded record that depend on its place
// in the log, and then the record CRC when the record has room for one.
// record must be exactly one record made by AppendRecord.
func Seal(record []byte, queueOffset, physicalOffset, storeTimestamp int64) {
	be := binary.BigEndian
	at := offBornHost + hostV4
	if SysFlag(be.Uint32(record[offSysFlag:]))&BornHostV6 != 0 {
		at = offBornHost + hostV6
	}
	be.PutUint64(record[offQueueOffset:], uint64(queueOffset))
	be.PutUint64(record[offPhysicalOffset:], uint64(physicalOffset))
	be.PutUint64(record[at:], uint64(storeTimestamp))
	// A topic never holds the CRC name (names are validated where they enter),
	// so looking at the tail is enough.
	if endsWithCRC(record) {
		end := len(record) - CRCSuffixLen
		putCRC(record[end:], checksum(record[:end]))
	}
}

// BlankRecord appends the 8 bytes that mark the rest of a commit log file as
// unused: remaining counts from the first of them to the end of the file.
func BlankRecord(dst []byte, remaining int32) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(remaining))
	return binary.BigEndian.AppendUint32(dst, MagicBlank)
}

// AppendStripped appends a copy of record without its record CRC property;
// size and properties length of the copy are corrected. A record without one
// is copied as it is, and so is anything that is not a whole record.
func AppendStripped(dst, record []byte) []byte {
	var v View
	if v.parse(record) != nil || !v.HasCRC() {
		return append(dst, record...)
	}
	start := len(dst)
	size := len(v.rec) - CRCSuffixLen
	dst = append(dst, v.rec[:size]...)
	copied := dst[start:]
	binary.BigEndian.PutUint32(copied[offSize:], uint32(size))
	binary.BigEndian.PutUint16(copied[v.props-2:], uint16(size-int(v.props)))
	return dst
}

// checksum is Java's crc32() & 0x7FFFFFFF: the sign bit is never set.
func checksum(b []byte) uint32 { return crc32.ChecksumIEEE(b) & 0x7FFFFFFF }

// isV6 tells whether a host needs 16 bytes: IPv4 in IPv6 form does not.
func isV6(a netip.AddrPort) bool { return a.Addr().Is6() && !a.Addr().Is4In6() }

// putHost writes an address and its port, and returns the bytes it took. An
// address that is not set becomes 0.0.0.0.
func putHost(b []byte, a netip.AddrPort, v6 bool) int {
	if v6 {
		ip := a.Addr().As16()
		copy(b, ip[:])
		binary.BigEndian.PutUint32(b[16:], uint32(a.Port()))
		return hostV6
	}
	var ip [4]byte
	if a.Addr().IsValid() {
		ip = a.Addr().Unmap().As4()
	}
	copy(b, ip[:])
	binary.BigEndian.PutUint32(b[4:], uint32(a.Port()))
	return hostV4
}

// host reads what putHost wrote. A port beyond 65535 is cut to 16 bits.
func host(b []byte) netip.AddrPort {
	if len(b) == hostV6 {
		port := uint16(binary.BigEndian.Uint32(b[16:]))
		return netip.AddrPortFrom(netip.AddrFrom16([16]byte(b[:16])), port)
	}
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte(b[:4])), uint16(binary.BigEndian.Uint32(b[4:])))
}
