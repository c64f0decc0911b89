// Package message decides the bytes of a RocketMQ message: the record in the
// commit log, which is also the body of a pull answer and the replication
// stream; properties; batch bodies; message ids; tag hashes; names.
//
// It is pure data: no input or output, no clocks, no state.
package message

import "net/netip"

// SysFlag is the bit set of a record's sysFlag field (RocketMQ message model,
// "sysFlag bits").
type SysFlag int32

// Bits of SysFlag. The transaction type and the compression are small numbers
// inside the flag: compare them after masking.
const (
	Compressed          SysFlag = 0x1
	MultiTags           SysFlag = 0x2
	TransactionPrepared SysFlag = 0x4
	TransactionCommit   SysFlag = 0x8
	TransactionRollback SysFlag = 0xC
	TransactionMask     SysFlag = 0xC
	BornHostV6          SysFlag = 0x10
	StoreHostV6         SysFlag = 0x20
	NeedUnwrap          SysFlag = 0x40
	InnerBatch          SysFlag = 0x80
	CompressionLZ4      SysFlag = 0x100
	CompressionZstd     SysFlag = 0x200
	CompressionZlib     SysFlag = 0x300
	CompressionMask     SysFlag = 0x700
)

// Transaction is the transaction type: 0, TransactionPrepared,
// TransactionCommit or TransactionRollback.
func (f SysFlag) Transaction() SysFlag { return f & TransactionMask }

// A Message is one message. Body and Properties may alias a buffer of the
// caller or, after Decode, the record.
type Message struct {
	Topic                     string
	QueueID                   int32
	Flag                      int32 // free for the application
	SysFlag                   SysFlag
	BornTimestamp             int64 // ms since 1970, the producer's clock
	BornHost                  netip.AddrPort
	StoreTimestamp            int64 // ms since 1970, the store's clock
	StoreHost                 netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	Body                      []byte // as sent: compressed when SysFlag says so
	// Properties is the encoded text name\x01value\x02…, without the record
	// CRC that may end it in a record.
	Properties []byte

	// The position in its queue and in the commit log. AppendRecord encodes
	// them, Decode sets them.
	QueueOffset    int64
	PhysicalOffset int64
	// BodyCRC and StoreSize are set by Decode only.
	BodyCRC   uint32
	StoreSize int32 // bytes of the whole record
}

// Property returns the value of one property and whether it is there.
func (m *Message) Property(name string) (string, bool) {
	v, ok := Property(m.Properties, name)
	return string(v), ok
}

// SetProperty adds one property. A value that was there before loses to the
// new one when the text is parsed. The text is copied when it has no room.
func (m *Message) SetProperty(name, value string) {
	m.Properties = AppendProperty(m.Properties[:len(m.Properties):len(m.Properties)], name, value)
}

// Clone returns a deep copy: nothing in it aliases a buffer of m.
func (m *Message) Clone() *Message {
	c := *m
	c.Body = append([]byte(nil), m.Body...)
	c.Properties = append([]byte(nil), m.Properties...)
	return &c
}
