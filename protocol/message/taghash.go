package message

import (
	"unicode/utf8"
)

// TagHash is Java's String.hashCode of a tag given in UTF-8, sign-extended:
// the tags code of a consume queue entry. No tag has code 0.
func TagHash(tag []byte) int64 {
	var h int32
	for i := 0; i < len(tag); i++ {
		if tag[i] >= utf8.RuneSelf {
			return tagHashUTF16(h, tag[i:])
		}
		h = 31*h + int32(tag[i])
	}
	return int64(h)
}

// tagHashUTF16 goes on in UTF-16 units: characters beyond the basic plane are
// two of them.
func tagHashUTF16(h int32, tag []byte) int64 {
	for len(tag) > 0 {
		r, n := utf8.DecodeRune(tag)
		tag = tag[n:]
		if r > 0xFFFF {
			r -= 0x10000
			h = 31*h + (0xD800 + r>>10)
			r = 0xDC00 + r&0x3FF
		}
		h = 31*h + r
	}
	return int64(h)
}
