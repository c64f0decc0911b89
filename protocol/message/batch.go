package message

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
)

// The body of a batch is entries one after the other (RocketMQ message model,
// "Batch body"):
//
//	size 4 (of the entry), magic 4 and body CRC 4 (both 0), flag 4,
//	bodyLength 4, body, propertiesLength 2, properties
const (
	batchHead  = 20 // up to the body
	batchFixed = batchHead + 2
)

// ErrBadBatch means that a batch body's lengths do not add up.
var ErrBadBatch = errors.New("malformed batch")

// AppendBatchEntry appends the flag, body and properties of m as one entry.
// On error dst is returned as it was.
func AppendBatchEntry(dst []byte, m *Message) ([]byte, error) {
	if len(m.Properties) > MaxPropertiesLen {
		return dst, fmt.Errorf("%w: %d bytes, at most %d", ErrPropertiesTooLong, len(m.Properties), MaxPropertiesLen)
	}
	size := batchFixed + len(m.Body) + len(m.Properties)
	if size < 0 || size > math.MaxInt32 {
		return dst, fmt.Errorf("%w: body of %d bytes", ErrRecordTooLong, len(m.Body))
	}
	be := binary.BigEndian
	dst = be.AppendUint32(dst, uint32(size))
	dst = be.AppendUint64(dst, 0)
	dst = be.AppendUint32(dst, uint32(m.Flag))
	dst = be.AppendUint32(dst, uint32(len(m.Body)))
	dst = append(dst, m.Body...)
	dst = be.AppendUint16(dst, uint16(len(m.Properties)))
	return append(dst, m.Properties...), nil
}

// NextBatchEntry reads the first entry of body into the Flag, Body and
// Properties of m, which then alias body, and returns what follows it.
// Nothing else in m changes. It does not allocate.
func NextBatchEntry(body []byte, m *Message) (rest []byte, err error) {
	be := binary.BigEndian
	if len(body) < batchFixed {
		return nil, fmt.Errorf("%w: %d bytes left, an entry has at least %d", ErrBadBatch, len(body), batchFixed)
	}
	size := int(int32(be.Uint32(body)))
	if size < batchFixed || size > len(body) {
		return nil, fmt.Errorf("%w: entry of %d bytes, %d are left", ErrBadBatch, size, len(body))
	}
	entry := body[:size:size]
	bodyLen := int(int32(be.Uint32(entry[16:])))
	if bodyLen < 0 || bodyLen > size-batchFixed {
		return nil, fmt.Errorf("%w: body of %d bytes in an entry of %d", ErrBadBatch, bodyLen, size)
	}
	p := batchHead + bodyLen
	propsLen := int(be.Uint16(entry[p:]))
	if propsLen > MaxPropertiesLen || p+2+propsLen != size {
		return nil, fmt.Errorf("%w: %d bytes of properties in an entry of %d, %d are left for them",
			ErrBadBatch, propsLen, size, size-p-2)
	}
	m.Flag = int32(be.Uint32(entry[12:]))
	m.Body = entry[batchHead:p:p]
	m.Properties = entry[p+2:]
	return body[size:], nil
}

// EachBatchEntry calls f with every entry of body: Flag, Body and Properties
// of one Message that is used again and aliases body. It ends with the first
// error of f or of the body. An empty body has no entries.
func EachBatchEntry(body []byte, f func(*Message) error) error {
	var m Message
	for len(body) > 0 {
		rest, err := NextBatchEntry(body, &m)
		if err != nil {
			return err
		}
		if err := f(&m); err != nil {
			return err
		}
		body = rest
	}
	return nil
}
