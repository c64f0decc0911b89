package message

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"net/netip"
)

// The offset id is the store host and the physical offset in upper-case hex:
// ip 4 | 16, port 4, offset 8, so 32 or 56 characters (RocketMQ message
// model, "Offset message id").
const (
	offsetIDV4 = hostV4 + 8
	offsetIDV6 = hostV6 + 8
)

const upperHex = "0123456789ABCDEF"

// ErrBadOffsetID means that a text is no offset id.
var ErrBadOffsetID = errors.New("bad offset message id")

// AppendOffsetID appends the id of the message at physicalOffset of the broker
// whose advertised address is store.
func AppendOffsetID(dst []byte, store netip.AddrPort, physicalOffset int64) []byte {
	var raw [offsetIDV6]byte
	n := putHost(raw[:], store, isV6(store))
	binary.BigEndian.PutUint64(raw[n:], uint64(physicalOffset))
	return appendHex(dst, raw[:n+8])
}

// OffsetID is AppendOffsetID as a string.
func OffsetID(store netip.AddrPort, physicalOffset int64) string {
	return string(AppendOffsetID(make([]byte, 0, 2*offsetIDV6), store, physicalOffset))
}

// ParseOffsetID reads an offset id of either length, in upper or lower case.
func ParseOffsetID(id string) (store netip.AddrPort, physicalOffset int64, err error) {
	n := len(id) / 2
	if len(id) != 2*offsetIDV4 && len(id) != 2*offsetIDV6 {
		return store, 0, fmt.Errorf("%w: %d characters, not %d or %d", ErrBadOffsetID, len(id), 2*offsetIDV4, 2*offsetIDV6)
	}
	raw, err := hex.DecodeString(id)
	if err != nil {
		return store, 0, fmt.Errorf("%w: %s: %w", ErrBadOffsetID, quote(id), err)
	}
	if port := binary.BigEndian.Uint32(raw[n-12:]); port > 0xFFFF {
		return store, 0, fmt.Errorf("%w: %s: port %d", ErrBadOffsetID, quote(id), port)
	}
	return host(raw[:n-8]), int64(binary.BigEndian.Uint64(raw[n-8:])), nil
}

func appendHex(dst, raw []byte) []byte {
	for _, b := range raw {
		dst = append(dst, upperHex[b>>4], upperHex[b&0xF])
	}
	return dst
}
