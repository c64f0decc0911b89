package protocol

import (
	"encoding/binary"
	"fmt"
)

// The binary header of the RocketMQ remoting protocol, big-endian:
//
//	 0      2      3         5        9      13
//	+------+------+---------+--------+------+--------+--------+-----------+--------+
//	| code | lang | version | opaque | flag | length | remark | extLength | fields |
//	+------+------+---------+--------+------+--------+--------+-----------+--------+
//	  i16    i8     i16       i32      i32    i32               i32
//
// and a field is: i16 key length, key, i32 value length, value.
const binaryFixed = 21 // without remark and fields

func (c *Command) decodeBinary(h []byte) error {
	if len(h) < binaryFixed {
		return fmt.Errorf("decode binary header: %d bytes, needs %d", len(h), binaryFixed)
	}
	c.Code = int32(binary.BigEndian.Uint16(h))
	c.Language = Language(h[2])
	c.Version = int32(int16(binary.BigEndian.Uint16(h[3:])))
	c.Opaque = int32(binary.BigEndian.Uint32(h[5:]))
	c.Flag = int32(binary.BigEndian.Uint32(h[9:]))
	if !c.IsResponse() {
		c.Code = int32(Canonical(RequestCode(c.Code)))
	}
	remark, rest, err := takeBinary(h[13:], "remark")
	if err != nil {
		return err
	}
	c.Remark = remarkText(remark)
	fields, rest, err := takeBinary(rest, "ext fields")
	if err != nil {
		return err
	}
	if len(rest) > 0 {
		return fmt.Errorf("decode binary header: %d bytes after the ext fields", len(rest))
	}
	return c.decodeBinaryFields(fields)
}

func (c *Command) decodeBinaryFields(b []byte) error {
	for len(b) > 0 {
		if len(c.Fields) == MaxFields {
			return fmt.Errorf("decode binary header: more than %d ext fields", MaxFields)
		}
		if len(b) < 2 {
			return fmt.Errorf("decode binary header: 1 byte left where a key length was due")
		}
		n := int(int16(binary.BigEndian.Uint16(b)))
		if n < 0 || n > len(b)-2 {
			return fmt.Errorf("decode binary header: ext key of %d bytes with %d left", n, len(b)-2)
		}
		key := b[2 : 2+n : 2+n]
		value, rest, err := takeBinary(b[2+n:], "ext value")
		if err != nil {
			return err
		}
		c.Fields = append(c.Fields, Field{Key: key, Value: value})
		b = rest
	}
	return nil
}

// takeBinary splits off a part with a four-byte length before it.
func takeBinary(b []byte, what string) (part, rest []byte, err error) {
	if len(b) < 4 {
		return nil, nil, fmt.Errorf("decode binary header: %d bytes left where the %s length was due", len(b), what)
	}
	n := int(int32(binary.BigEndian.Uint32(b)))
	b = b[4:]
	if n < 0 || n > len(b) {
		return nil, nil, fmt.Errorf("decode binary header: %s of %d bytes with %d left", what, n, len(b))
	}
	return b[:n:n], b[n:], nil
}

// remarkText spares the allocation for the remarks that answers to pulls carry.
func remarkText(b []byte) string {
	switch string(b) {
	case "":
		return ""
	case "FOUND":
		return "FOUND"
	case "OFFSET_OVERFLOW_ONE":
		return "OFFSET_OVERFLOW_ONE"
	case "NO_MATCHED_MESSAGE":
		return "NO_MATCHED_MESSAGE"
	}
	return string(b)
}
