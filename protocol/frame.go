package protocol

import (
	"encoding/binary"
	"strconv"
	"unicode/utf8"
)

// A FrameWriter appends one frame to a byte slice, field after field, and
// allocates nothing but the room that the slice needs. Use it in this order:
// BeginFrame, any number of fields, BeginBody, End. A frame must stay below
// 16 MiB; the writer does not check it.
type FrameWriter struct {
	buf    []byte
	start  int // where the frame's length word lies
	ext    int // binary: where the length of the ext fields lies
	coding Coding
	fields bool // JSON: a field has been written
}

// frameStart is what a frame says before its fields.
type frameStart struct {
	coding             Coding
	code, flag, opaque int32
	language           Language
	version            int32
}

// BeginFrame starts a frame at the end of dst as a peer of language GO and
// CurrentVersion. Flag is 1 for a response.
func BeginFrame(dst []byte, coding Coding, code, flag, opaque int32, remark string) FrameWriter {
	return beginFrame(dst, frameStart{coding, code, flag, opaque, LanguageGo, CurrentVersion}, remark)
}

func beginFrame(dst []byte, s frameStart, remark string) FrameWriter {
	w := FrameWriter{start: len(dst), coding: s.coding}
	b := append(dst, 0, 0, 0, 0, byte(s.coding), 0, 0, 0)
	if s.coding == Binary {
		b = binary.BigEndian.AppendUint16(b, uint16(s.code))
		b = append(b, byte(s.language))
		b = binary.BigEndian.AppendUint16(b, uint16(s.version))
		b = binary.BigEndian.AppendUint32(b, uint32(s.opaque))
		b = binary.BigEndian.AppendUint32(b, uint32(s.flag))
		b = binary.BigEndian.AppendUint32(b, uint32(len(remark)))
		b = append(b, remark...)
		w.ext = len(b)
		w.buf = append(b, 0, 0, 0, 0)
		return w
	}
	b = append(b, `{"code":`...)
	b = strconv.AppendInt(b, int64(s.code), 10)
	b = append(b, `,"flag":`...)
	b = strconv.AppendInt(b, int64(s.flag), 10)
	b = append(b, `,"language":"`...)
	b = append(b, s.language.String()...)
	b = append(b, `","opaque":`...)
	b = strconv.AppendInt(b, int64(s.opaque), 10)
	if remark != "" {
		b = append(b, `,"remark":"`...)
		b = appendEscaped(b, remark)
		b = append(b, '"')
	}
	b = append(b, `,"serializeTypeCurrentRPC":"JSON","version":`...)
	w.buf = strconv.AppendInt(b, int64(s.version), 10)
	return w
}

// Keys of Int, Bool, String, Bytes and Plain are names of the protocol: they need
// no escape.

// Int writes a number.
func (w *FrameWriter) Int(key string, v int64) {
	if w.coding == JSON {
		b := strconv.AppendInt(append(w.openJSON(key), '"'), v, 10)
		w.buf = append(b, '"')
		return
	}
	at := w.openBinary(key)
	w.buf = strconv.AppendInt(w.buf, v, 10)
	w.closeBinary(at)
}

// Bool writes "true" or "false".
func (w *FrameWriter) Bool(key string, v bool) {
	if v {
		w.String(key, "true")
	} else {
		w.String(key, "false")
	}
}

// String writes a text. Invalid UTF-8 is replaced in JSON and kept in binary.
func (w *FrameWriter) String(key, v string) {
	if w.coding == JSON {
		b := appendEscaped(append(w.openJSON(key), '"'), v)
		w.buf = append(b, '"')
		return
	}
	at := w.openBinary(key)
	w.buf = append(w.buf, v...)
	w.closeBinary(at)
}

// Bytes writes a text that is at hand as bytes.
func (w *FrameWriter) Bytes(key string, v []byte) {
	if w.coding == JSON {
		b := appendEscaped(append(w.openJSON(key), '"'), v)
		w.buf = append(b, '"')
		return
	}
	at := w.openBinary(key)
	w.buf = append(w.buf, v...)
	w.closeBinary(at)
}

// Plain writes a text of which the caller knows that it needs no escape, such as
// hexadecimal digits.
func (w *FrameWriter) Plain(key string, v []byte) {
	if w.coding == JSON {
		w.buf = append(append(append(w.openJSON(key), '"'), v...), '"')
		return
	}
	w.Bytes(key, v)
}

// Header writes all fields of a typed header.
func (w *FrameWriter) Header(h Header) {
	b := binder{w: w}
	h.bind(&b)
}

// field writes an ext field of a Command. The binary header has no room for a
// key longer than 32767 bytes; Decode lets none in, so that one is dropped.
func (w *FrameWriter) field(key, v []byte) {
	if len(key) > maxKey {
		return
	}
	if w.coding == JSON {
		b := appendEscaped(append(w.openField(), '"'), key)
		b = appendEscaped(append(b, '"', ':', '"'), v)
		w.buf = append(b, '"')
		return
	}
	b := binary.BigEndian.AppendUint16(w.buf, uint16(len(key)))
	b = append(b, key...)
	b = binary.BigEndian.AppendUint32(b, uint32(len(v)))
	w.buf = append(b, v...)
}

// BeginBody ends the header and returns the slice to append the body to.
func (w *FrameWriter) BeginBody() []byte {
	b := w.buf
	if w.coding == Binary {
		binary.BigEndian.PutUint32(b[w.ext:], uint32(len(b)-w.ext-4))
	} else {
		if w.fields {
			b = append(b, '}')
		}
		b = append(b, '}')
	}
	mark := uint32(w.coding)<<24 | uint32(len(b)-w.start-8)&0xFFFFFF
	binary.BigEndian.PutUint32(b[w.start+4:], mark)
	w.buf = nil
	return b
}

// End takes back what BeginBody gave, with the body appended, and returns it as
// a complete frame behind whatever dst held before.
func (w *FrameWriter) End(buf []byte) []byte {
	binary.BigEndian.PutUint32(buf[w.start:], uint32(len(buf)-w.start-4))
	return buf
}

func (w *FrameWriter) openField() []byte {
	if w.fields {
		return append(w.buf, ',')
	}
	w.fields = true
	return append(w.buf, `,"extFields":{`...)
}

func (w *FrameWriter) openJSON(key string) []byte {
	return append(append(append(w.openField(), '"'), key...), '"', ':')
}

func (w *FrameWriter) openBinary(key string) (at int) {
	b := binary.BigEndian.AppendUint16(w.buf, uint16(len(key)))
	b = append(b, key...)
	w.buf = append(b, 0, 0, 0, 0)
	return len(w.buf)
}

func (w *FrameWriter) closeBinary(at int) {
	binary.BigEndian.PutUint32(w.buf[at-4:], uint32(len(w.buf)-at))
}

const hexDigits = "0123456789abcdef"

// appendEscaped appends s as the inside of a JSON string. Runs of bytes that
// need no escape are copied at once.
func appendEscaped[T string | []byte](dst []byte, s T) []byte {
	from := 0
	for i := 0; i < len(s); {
		c := s[i]
		if c >= ' ' && c != '"' && c != '\\' && c < utf8.RuneSelf {
			i++
			continue
		}
		if c >= utf8.RuneSelf {
			if n := validRune(s[i:]); n > 0 {
				i += n
				continue
			}
			dst = append(append(dst, s[from:i]...), "\uFFFD"...)
		} else {
			dst = appendEscape(append(dst, s[from:i]...), c)
		}
		i++
		from = i
	}
	return append(dst, s[from:]...)
}

// validRune returns the length of the UTF-8 sequence at the start of s, 0 when
// there is none.
func validRune[T string | []byte](s T) int {
	var head [utf8.UTFMax]byte
	n := copy(head[:], s)
	r, size := utf8.DecodeRune(head[:n])
	if r == utf8.RuneError && size <= 1 {
		return 0
	}
	return size
}

func appendEscape(dst []byte, c byte) []byte {
	switch c {
	case '"', '\\':
		return append(dst, '\\', c)
	case '\n':
		return append(dst, '\\', 'n')
	case '\r':
		return append(dst, '\\', 'r')
	case '\t':
		return append(dst, '\\', 't')
	}
	return append(dst, '\\', 'u', '0', '0', hexDigits[c>>4], hexDigits[c&15])
}
