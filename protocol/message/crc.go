package message

// The record CRC is the last property of a record:
//
//	_ _ C R C 3 2 # 0x01 d0 d1 d2 d3 d4 d5 d6 d7 d8 d9 0x02
//
// d0 is the least significant decimal digit. It is the CRC-32 (IEEE, sign bit
// cleared) of all bytes of the record before it, offsets and lengths in their
// final form (RocketMQ storage format, enabledAppendPropCRC).
const (
	PropertyCRC32 = "__CRC32#"

	// CRCSuffixLen is the length of the record CRC property.
	CRCSuffixLen = len(PropertyCRC32) + 1 + crcDigits + 1

	crcDigits = 10
	crcName   = PropertyCRC32 + "\x01"
)

// endsWithCRC tells whether b ends with something in the form of a CRC property.
func endsWithCRC(b []byte) bool {
	n := len(b) - CRCSuffixLen
	return n >= 0 && b[len(b)-1] == pairSeparator && string(b[n:n+len(crcName)]) == crcName
}

// trimCRC cuts every CRC property from the end of a properties text.
func trimCRC(props []byte) []byte {
	for endsWithCRC(props) {
		props = props[:len(props)-CRCSuffixLen]
	}
	return props
}

// putCRC writes the CRC property into the first CRCSuffixLen bytes of b.
func putCRC(b []byte, sum uint32) {
	b = b[:CRCSuffixLen]
	copy(b, crcName)
	for i := len(crcName); i < len(crcName)+crcDigits; i++ {
		b[i] = '0' + byte(sum%10)
		sum /= 10
	}
	b[CRCSuffixLen-1] = pairSeparator
}

// readCRC reads the digits of a CRC property; false when they are no digits or
// make no 31-bit number.
func readCRC(b []byte) (uint32, bool) {
	digits := b[len(crcName) : len(crcName)+crcDigits]
	var sum uint64
	for i := crcDigits - 1; i >= 0; i-- {
		d := digits[i] - '0'
		if d > 9 {
			return 0, false
		}
		sum = sum*10 + uint64(d)
	}
	return uint32(sum), sum <= 0x7FFFFFFF
}
