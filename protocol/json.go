package protocol

import (
	"encoding/binary"
	"fmt"
	"math"
	"math/bits"
	"unicode/utf16"
	"unicode/utf8"
)

// maxSkipDepth bounds how deep a value under an unknown key may nest.
const maxSkipDepth = 32

// A jsonScanner walks one JSON header. Strings without an escape are slices of
// b; the others are written to scratch, which never moves: text only shrinks
// when it is unescaped, so room for len(b) is enough for all of them.
type jsonScanner struct {
	b       []byte
	i       int
	scratch []byte
}

// decodeJSON reads the header object of the RocketMQ remoting protocol. Keys
// may come in any order, unknown ones are passed over.
func (c *Command) decodeJSON(h []byte) error {
	s := jsonScanner{b: h, scratch: c.scratch}
	err := s.command(c)
	c.scratch = s.scratch
	if err != nil {
		return fmt.Errorf("decode JSON header: %w", err)
	}
	return nil
}

func (s *jsonScanner) command(c *Command) error {
	if s.peek() != '{' {
		return s.expected("an object")
	}
	s.i++
	code := false
	for first := true; ; first = false {
		key, more, err := s.key(first)
		if err != nil {
			return err
		}
		if !more {
			break
		}
		switch string(key) {
		case "code":
			code = true
			c.Code, err = s.int32("code", false)
		case "extFields":
			err = s.extFields(c)
		default:
			err = s.member(c, key)
		}
		if err != nil {
			return err
		}
	}
	if s.peek() != 0 || s.i < len(s.b) {
		return s.expected("the end")
	}
	if !code {
		return fmt.Errorf("no code in a header of %d bytes", len(s.b))
	}
	if c.Code < 0 {
		return fmt.Errorf("code %d is negative", c.Code)
	}
	return nil
}

// member reads the value of any key of the header but code and extFields.
func (s *jsonScanner) member(c *Command, key []byte) (err error) {
	switch string(key) {
	case "flag":
		c.Flag, err = s.int32("flag", true)
	case "opaque":
		c.Opaque, err = s.int32("opaque", true)
	case "version":
		c.Version, err = s.int32("version", true)
	case "language":
		var name []byte
		if name, _, err = s.scalar(); err == nil {
			c.Language = parseLanguage(name)
		}
	case "remark":
		var text []byte
		if text, _, err = s.scalar(); err == nil {
			c.Remark = remarkText(text)
		}
	default:
		err = s.skip()
	}
	if err != nil {
		return fmt.Errorf("value of %.40q: %w", key, err)
	}
	return nil
}

// extFields reads the object of ext fields; a second one replaces the first. A
// null value leaves its key out, numbers and booleans are kept as their text.
func (s *jsonScanner) extFields(c *Command) error {
	c.Fields = c.Fields[:0]
	switch s.peek() {
	case '{':
		s.i++
	case 'n':
		return s.skip()
	default:
		return s.expected("an object or null as extFields")
	}
	for n := 0; ; n++ {
		if key, ok := s.expectedKey(c.shape, n); ok {
			value, err := s.str()
			if err != nil {
				return fmt.Errorf("ext field %.40q: %w", key, err)
			}
			c.Fields = append(c.Fields, Field{Key: key, Value: value})
			continue
		}
		from := s.i
		key, more, err := s.key(n == 0)
		if err != nil {
			return fmt.Errorf("extFields: %w", err)
		}
		if !more {
			return nil
		}
		if s.peek() == '"' {
			c.learnKey(n, s.b[from:s.i+1], len(key))
		}
		value, present, err := s.scalar()
		if err != nil {
			return fmt.Errorf("ext field %.40q: %w", key, err)
		}
		if !present {
			continue
		}
		if len(c.Fields) == MaxFields {
			return fmt.Errorf("more than %d ext fields", MaxFields)
		}
		if len(key) > maxKey {
			return fmt.Errorf("ext field with a key of %d bytes", len(key))
		}
		c.Fields = append(c.Fields, Field{Key: key, Value: value})
	}
}

// The shape of a command's ext fields is what stood before each value in the
// header before, such as `,"topic":"`. A peer sends the same names in the same
// order again and again: one comparison then stands for reading the name.
const (
	maxShape    = 32 // fields that are remembered
	maxShapeKey = 64 // bytes of one
)

// expectedKey passes over what stood before value n in the header before, if it
// stands here again, and leaves s at the value's opening quote.
func (s *jsonScanner) expectedKey(shape [][]byte, n int) (key []byte, ok bool) {
	if n >= len(shape) {
		return nil, false
	}
	end := s.i + len(shape[n])
	if end > len(s.b) || string(s.b[s.i:end]) != string(shape[n]) {
		return nil, false
	}
	from := s.i + 1
	if n > 0 {
		from++ // the comma
	}
	s.i = end - 1
	return s.b[from : end-3 : end-3], true
}

// learnKey remembers what stands before value n, unless there is white space or
// an escape in it.
func (c *Command) learnKey(n int, text []byte, key int) {
	plain := key + len(`"":"`)
	if n > 0 {
		plain++ // the comma
	}
	if len(text) != plain || len(text) > maxShapeKey || n >= maxShape || n > len(c.shape) {
		return
	}
	if n == len(c.shape) {
		c.shape = append(c.shape, nil)
	}
	c.shape[n] = append(c.shape[n][:0], text...)
}

// key reads up to the value of the next member: the comma, the key, the colon.
// more is false behind the closing brace.
func (s *jsonScanner) key(first bool) (key []byte, more bool, err error) {
	c := s.peek()
	if c == '}' {
		s.i++
		return nil, false, nil
	}
	if !first {
		if c != ',' {
			return nil, false, s.expected("',' or '}'")
		}
		s.i++
		c = s.peek()
	}
	if c != '"' {
		return nil, false, s.expected("a key")
	}
	if key, err = s.str(); err != nil {
		return nil, false, err
	}
	if s.peek() != ':' {
		return nil, false, s.expected("':'")
	}
	s.i++
	return key, true, nil
}

// peek passes over white space and returns the byte there, 0 at the end.
func (s *jsonScanner) peek() byte {
	for s.i < len(s.b) {
		c := s.b[s.i]
		if c > ' ' {
			return c
		}
		if c != ' ' && c != '\n' && c != '\t' && c != '\r' {
			return c
		}
		s.i++
	}
	return 0
}

// scalar reads a string, number, boolean or null as text; present is false for
// null.
func (s *jsonScanner) scalar() (text []byte, present bool, err error) {
	if s.peek() == '"' {
		text, err = s.str()
		return text, true, err
	}
	from := s.i
	for s.i < len(s.b) && isWord(s.b[s.i]) {
		s.i++
	}
	text = s.b[from:s.i:s.i]
	switch {
	case len(text) == 0:
		return nil, false, s.expected("a string, number, boolean or null")
	case string(text) == "null":
		return nil, false, nil
	case text[0] == '-' || text[0] >= '0' && text[0] <= '9', string(text) == "true", string(text) == "false":
		return text, true, nil
	}
	s.i = from
	return nil, false, s.expected("a string, number, boolean or null")
}

func isWord(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c >= 'A' && c <= 'Z' || c == '-' || c == '+' || c == '.'
}

// int32 reads a whole number, also one in quotes. Null counts as 0 where the
// key may be missing.
func (s *jsonScanner) int32(key string, nullable bool) (int32, error) {
	text, present, err := s.scalar()
	if err != nil {
		return 0, fmt.Errorf("value of %q: %w", key, err)
	}
	if !present && nullable {
		return 0, nil
	}
	v, ok := parseInt(text)
	if !ok || v < math.MinInt32 || v > math.MaxInt32 {
		return 0, fmt.Errorf("%s is %.40q, not a 32-bit number", key, text)
	}
	return int32(v), nil
}

// str reads the string whose opening quote is at s.i.
func (s *jsonScanner) str() ([]byte, error) {
	from := s.i + 1
	at := indexSpecial(s.b, from)
	if at < len(s.b) && s.b[at] == '"' {
		s.i = at + 1
		return s.b[from:at:at], nil
	}
	if len(s.scratch) == 0 && cap(s.scratch) < len(s.b) {
		s.scratch = make([]byte, 0, len(s.b))
	}
	text := len(s.scratch)
	for at < len(s.b) {
		s.scratch = append(s.scratch, s.b[from:at]...)
		if s.b[at] == '"' {
			s.i = at + 1
			return s.scratch[text:len(s.scratch):len(s.scratch)], nil
		}
		s.i = at
		if err := s.escape(); err != nil {
			return nil, err
		}
		from = s.i
		at = indexSpecial(s.b, from)
	}
	return nil, fmt.Errorf("string without an end")
}

// escape decodes the escape sequence at s.i into scratch.
func (s *jsonScanner) escape() error {
	if s.i+1 >= len(s.b) {
		return fmt.Errorf("string without an end")
	}
	c := s.b[s.i+1]
	if c == 'u' {
		return s.unicodeEscape()
	}
	out := unescaped[c]
	if out == 0 {
		return s.expected("an escape sequence")
	}
	s.scratch = append(s.scratch, out)
	s.i += 2
	return nil
}

// unescaped is what the letter after a backslash stands for, 0 for none. \v and
// \' are fastjson's.
var unescaped = [256]byte{
	'"': '"', '\\': '\\', '/': '/', '\'': '\'',
	'b': '\b', 'f': '\f', 'n': '\n', 'r': '\r', 't': '\t', 'v': '\v',
}

func (s *jsonScanner) unicodeEscape() error {
	r := s.hex4(s.i + 2)
	if r < 0 {
		return s.expected("four hexadecimal digits")
	}
	s.i += 6
	if r < utf8.RuneSelf {
		s.scratch = append(s.scratch, byte(r))
		return nil
	}
	if utf16.IsSurrogate(r) {
		second := rune(-1)
		if s.i+1 < len(s.b) && s.b[s.i] == '\\' && s.b[s.i+1] == 'u' {
			second = s.hex4(s.i + 2)
		}
		// Half a pair becomes U+FFFD, and what follows it is read by itself.
		if r = utf16.DecodeRune(r, second); r != utf8.RuneError {
			s.i += 6
		}
	}
	s.scratch = utf8.AppendRune(s.scratch, r)
	return nil
}

// hex4 returns the number of four hexadecimal digits at b[at:], or -1.
func (s *jsonScanner) hex4(at int) rune {
	if at+4 > len(s.b) {
		return -1
	}
	var r rune
	for _, c := range s.b[at : at+4] {
		switch {
		case c >= '0' && c <= '9':
			c -= '0'
		case c >= 'a' && c <= 'f':
			c -= 'a' - 10
		case c >= 'A' && c <= 'F':
			c -= 'A' - 10
		default:
			return -1
		}
		r = r<<4 | rune(c)
	}
	return r
}

// skip passes over a value of any kind.
func (s *jsonScanner) skip() error {
	depth := 0
	for {
		switch s.peek() {
		case '{', '[':
			if depth++; depth > maxSkipDepth {
				return fmt.Errorf("nested deeper than %d at byte %d", maxSkipDepth, s.i)
			}
			s.i++
			continue
		case '}', ']':
			s.i++
			depth--
		case ',', ':':
			if depth == 0 {
				return s.expected("a value")
			}
			s.i++
			continue
		default:
			if _, _, err := s.scalar(); err != nil {
				return err
			}
		}
		// What is passed over need not be well-formed, only balanced.
		if depth <= 0 {
			if depth < 0 {
				return s.expected("a value")
			}
			return nil
		}
	}
}

// expected says what arrived instead.
func (s *jsonScanner) expected(what string) error {
	if s.i >= len(s.b) {
		return fmt.Errorf("expected %s, the header ends at byte %d", what, len(s.b))
	}
	return fmt.Errorf("expected %s at byte %d, got %q", what, s.i, s.b[s.i:min(s.i+24, len(s.b))])
}

// indexSpecial returns the place of the first quote or backslash at or after i,
// len(b) when there is none. It looks at eight bytes at a time: a byte of x is
// zero where the wanted byte is, and subtracting 1 from it sets its top bit.
func indexSpecial(b []byte, i int) int {
	const ones, tops = 0x0101010101010101, 0x8080808080808080
	for ; i+8 <= len(b); i += 8 {
		x := binary.LittleEndian.Uint64(b[i:])
		quote, slash := x^('"'*ones), x^('\\'*ones)
		if m := ((quote-ones)&^quote | (slash-ones)&^slash) & tops; m != 0 {
			return i + bits.TrailingZeros64(m)>>3
		}
	}
	for ; i < len(b); i++ {
		if b[i] == '"' || b[i] == '\\' {
			break
		}
	}
	return i
}

// parseInt reads decimal text of a 64-bit number, with a sign at most.
func parseInt(b []byte) (int64, bool) {
	digits := b
	negative := len(b) > 0 && b[0] == '-'
	if negative {
		digits = b[1:]
	}
	if len(digits) == 0 || len(digits) > 19 {
		return 0, false
	}
	var v uint64
	for _, c := range digits {
		if c -= '0'; c > 9 {
			return 0, false
		}
		v = v*10 + uint64(c)
	}
	if negative {
		return -int64(v), v <= 1<<63
	}
	return int64(v), v <= math.MaxInt64
}

// parseInt32 is parseInt for a 32-bit number.
func parseInt32(b []byte) (int32, bool) {
	v, ok := parseInt(b)
	return int32(v), ok && v == int64(int32(v))
}
