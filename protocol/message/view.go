package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"net/netip"
)

// What can be wrong with the bytes of a record.
var (
	// ErrTruncated: fewer bytes are there than the record claims or needs.
	ErrTruncated = errors.New("record truncated")
	// ErrBlank: not a message, the rest of this file is unused.
	ErrBlank = errors.New("blank record")
	// ErrBadMagic: no record begins here. Zeros after the last record are so.
	ErrBadMagic = errors.New("bad magic number")
	// ErrMalformed: the lengths inside do not add up to the record's size.
	ErrMalformed = errors.New("malformed record")
	// ErrBodyCRC and ErrRecordCRC: the bytes changed since they were written.
	ErrBodyCRC   = errors.New("body CRC differs")
	ErrRecordCRC = errors.New("record CRC differs")
)

// Head reads the size and the magic number that every record begins with, and
// checks nothing; false when buf has less than 8 bytes.
func Head(buf []byte) (size int32, magic uint32, ok bool) {
	if len(buf) < BlankLen {
		return 0, 0, false
	}
	return int32(binary.BigEndian.Uint32(buf)), binary.BigEndian.Uint32(buf[offMagic:]), true
}

// A View reads fields of a record in place. All it returns aliases the record.
// The zero View is not usable.
type View struct {
	rec []byte
	// Where the variable parts begin and how long they are.
	body, bodyLen   int32
	topic, topicLen int32
	props, propsLen int32 // up to the record's end
	crc             bool
}

// ViewOf checks the size, the magic number and all lengths of the record that
// buf begins with (more may follow it), but no CRC.
func ViewOf(buf []byte) (View, error) {
	var v View
	err := v.parse(buf)
	return v, err
}

func (v *View) parse(buf []byte) error {
	be := binary.BigEndian
	size, magic, ok := Head(buf)
	if !ok {
		return ErrTruncated
	}
	topicLenSize := 1
	switch magic {
	case MagicV1:
	case MagicV2:
		topicLenSize = 2
	case MagicBlank:
		return ErrBlank
	default:
		return ErrBadMagic
	}
	if size < fixedV4 {
		return ErrMalformed
	}
	if int(size) > len(buf) {
		return ErrTruncated
	}
	rec := buf[:size:size]
	flag := SysFlag(be.Uint32(rec[offSysFlag:]))
	// Every step below first makes sure that the bytes it reads are there.
	p := offBornHost + hostLen(flag, BornHostV6) + 8 + hostLen(flag, StoreHostV6) + 12
	if p+4 > len(rec) {
		return ErrMalformed
	}
	bodyLen := int(int32(be.Uint32(rec[p:])))
	p += 4
	if bodyLen < 0 || bodyLen > len(rec)-p-topicLenSize {
		return ErrMalformed
	}
	body := p
	p += bodyLen
	topicLen := int(rec[p])
	if topicLenSize == 2 {
		topicLen = int(be.Uint16(rec[p:]))
	}
	p += topicLenSize
	topic := p
	p += topicLen
	if p+2 > len(rec) {
		return ErrMalformed
	}
	propsLen := int(be.Uint16(rec[p:]))
	p += 2
	if propsLen > MaxPropertiesLen || p+propsLen != len(rec) {
		return ErrMalformed
	}
	*v = View{
		rec:  rec,
		body: int32(body), bodyLen: int32(bodyLen),
		topic: int32(topic), topicLen: int32(topicLen),
		props: int32(p), propsLen: int32(propsLen),
		crc: endsWithCRC(rec[p:]),
	}
	return nil
}

func hostLen(flag, bit SysFlag) int {
	if flag&bit != 0 {
		return hostV6
	}
	return hostV4
}

func (v *View) u32(at int) uint32 { return binary.BigEndian.Uint32(v.rec[at:]) }
func (v *View) u64(at int) int64  { return int64(binary.BigEndian.Uint64(v.rec[at:])) }

// Bytes is the whole record.
func (v *View) Bytes() []byte { return v.rec }

// Size is the record's length in bytes.
func (v *View) Size() int { return len(v.rec) }

// Magic is MagicV1 or MagicV2.
func (v *View) Magic() uint32 { return v.u32(offMagic) }

// BodyCRC is the CRC-32 of the body as the record states it.
func (v *View) BodyCRC() uint32 { return v.u32(offBodyCRC) }

// QueueID is the number of the queue within the topic.
func (v *View) QueueID() int32 { return int32(v.u32(offQueueID)) }

// Flag is the application's flag.
func (v *View) Flag() int32 { return int32(v.u32(offFlag)) }

// QueueOffset is the position in the queue.
func (v *View) QueueOffset() int64 { return v.u64(offQueueOffset) }

// PhysicalOffset is the position in the commit log, in bytes.
func (v *View) PhysicalOffset() int64 { return v.u64(offPhysicalOffset) }

// SysFlag is the system flag.
func (v *View) SysFlag() SysFlag { return SysFlag(v.u32(offSysFlag)) }

// BornTimestamp is the producer's time in ms since 1970.
func (v *View) BornTimestamp() int64 { return v.u64(offBornTimestamp) }

// BornHost is the producer's address.
func (v *View) BornHost() netip.AddrPort {
	return host(v.rec[offBornHost : offBornHost+hostLen(v.SysFlag(), BornHostV6)])
}

// StoreTimestamp is the store's time in ms since 1970.
func (v *View) StoreTimestamp() int64 {
	return v.u64(offBornHost + hostLen(v.SysFlag(), BornHostV6))
}

// StoreHost is the store's address.
func (v *View) StoreHost() netip.AddrPort {
	end := int(v.body) - 16
	return host(v.rec[end-hostLen(v.SysFlag(), StoreHostV6) : end])
}

// ReconsumeTimes counts earlier deliveries that failed.
func (v *View) ReconsumeTimes() int32 { return int32(v.u32(int(v.body) - 16)) }

// PreparedTransactionOffset is the physical offset of the half message.
func (v *View) PreparedTransactionOffset() int64 { return v.u64(int(v.body) - 12) }

// Body is the body as stored, compressed or not.
func (v *View) Body() []byte { return v.rec[v.body : v.body+v.bodyLen : v.body+v.bodyLen] }

// Topic is the topic's name.
func (v *View) Topic() []byte { return v.rec[v.topic : v.topic+v.topicLen : v.topic+v.topicLen] }

// Properties is the properties text without the record CRC.
func (v *View) Properties() []byte {
	end := v.props + v.propsLen
	if v.crc {
		end -= int32(CRCSuffixLen)
	}
	return v.rec[v.props:end:end]
}

// HasCRC tells whether the record carries a record CRC.
func (v *View) HasCRC() bool { return v.crc }

// Verify compares the body CRC and, when there is one, the record CRC.
func (v *View) Verify() error {
	if body := v.Body(); len(body) > 0 && checksum(body) != v.BodyCRC() {
		return ErrBodyCRC
	}
	if !v.crc {
		return nil
	}
	end := len(v.rec) - CRCSuffixLen
	if want, ok := readCRC(v.rec[end:]); !ok || checksum(v.rec[:end]) != want {
		return ErrRecordCRC
	}
	return nil
}

// Verify checks form and CRCs of the record that record begins with: what
// recovery asks before it believes one.
func Verify(record []byte) error {
	var v View
	if err := v.parse(record); err != nil {
		return err
	}
	return v.Verify()
}

// Decode reads the record that record begins with into m. Body and Properties
// alias it. No CRC is compared. A topic equal to the one in m is not copied
// again, so decoding a run of records into one Message is cheap.
func Decode(record []byte, m *Message) error {
	var v View
	if err := v.parse(record); err != nil {
		return err
	}
	topic := m.Topic
	if topic != string(v.Topic()) {
		topic = string(v.Topic())
	}
	*m = Message{
		Topic:                     topic,
		QueueID:                   v.QueueID(),
		Flag:                      v.Flag(),
		SysFlag:                   v.SysFlag(),
		BornTimestamp:             v.BornTimestamp(),
		BornHost:                  v.BornHost(),
		StoreTimestamp:            v.StoreTimestamp(),
		StoreHost:                 v.StoreHost(),
		ReconsumeTimes:            v.ReconsumeTimes(),
		PreparedTransactionOffset: v.PreparedTransactionOffset(),
		Body:                      v.Body(),
		Properties:                v.Properties(),
		QueueOffset:               v.QueueOffset(),
		PhysicalOffset:            v.PhysicalOffset(),
		BodyCRC:                   v.BodyCRC(),
		StoreSize:                 int32(v.Size()),
	}
	return nil
}

// EachRecord calls f with each of the records that follow one another in body,
// the body of a pull answer, until f answers false. A part that is no record
// ends it with an error that says where.
func EachRecord(body []byte, f func(record []byte) bool) error {
	for at := 0; at < len(body); {
		v, err := ViewOf(body[at:])
		if err != nil {
			return fmt.Errorf("record at byte %d of %d: %w", at, len(body), err)
		}
		if !f(v.Bytes()) {
			return nil
		}
		at += v.Size()
	}
	return nil
}
