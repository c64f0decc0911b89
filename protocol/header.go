package protocol

import "strconv"

// A Header is the typed form of the ext fields of one kind of request or
// response. Each describes its fields once, in bind; encoding and decoding in
// both header codings come from that description.
//
// A text field of a Header that may be absent is empty then; a number or
// boolean whose absence matters is an Opt.
type Header interface{ bind(*binder) }

// An Opt is a value that may be absent. The zero Opt is absent.
type Opt[T any] struct {
	Value   T
	Present bool
}

// Some returns a present value.
func Some[T any](v T) Opt[T] { return Opt[T]{Value: v, Present: true} }

// Or returns the value, or otherwise when it is absent.
func (o Opt[T]) Or(otherwise T) T {
	if o.Present {
		return o.Value
	}
	return otherwise
}

// DecodeHeader fills h from the ext fields; every field of h is written, so a
// used one may be passed. Byte slices of h alias c. A field that is missing or
// malformed gives an *Error with InvalidParameter that names it. Unlike Apache,
// which answers SystemError to those, this keeps producers from repeating a
// request that cannot succeed.
func (c *Command) DecodeHeader(h Header) error {
	if d, ok := h.(interface{ decode(Fields) *Error }); ok {
		if err := d.decode(c.Fields); err != nil {
			return err
		}
		return nil
	}
	b := binder{from: c.Fields}
	h.bind(&b)
	if b.err != nil {
		return b.err
	}
	return nil
}

// SetHeader replaces the ext fields by those of h; a nil h removes them all.
func (c *Command) SetHeader(h Header) {
	c.Fields, c.scratch = nil, nil
	if h == nil {
		return
	}
	b := binder{to: c}
	h.bind(&b)
}

// A binder carries one header in one direction: from Fields, to a Command, or
// to a FrameWriter.
type binder struct {
	from Fields
	to   *Command
	w    *FrameWriter
	err  *Error
}

// need says whether a field must be present.
type need bool

const (
	required need = true
	optional need = false
)

func (b *binder) decoding() bool { return b.to == nil && b.w == nil }

// take returns the value of key for decoding and notes a missing one.
func (b *binder) take(key string, n need) ([]byte, bool) {
	v, ok := b.from.Get(key)
	if !ok && n == required {
		b.fail(missing(key))
	}
	return v, ok
}

// fail keeps the first error.
func (b *binder) fail(err *Error) {
	if b.err == nil {
		b.err = err
	}
}

func missing(key string) *Error {
	return Errorf(InvalidParameter, "the header field <%s> is missing", key)
}

func malformed(key string, v []byte, want string) *Error {
	return Errorf(InvalidParameter, "the header field <%s> is %.64q, not a %s", key, v, want)
}

// put writes one field when encoding.
func (b *binder) put(key, v string) {
	if b.w != nil {
		b.w.String(key, v)
		return
	}
	b.to.AddField(key, v)
}

func (b *binder) str(key string, p *string, n need) {
	if b.decoding() {
		v, _ := b.take(key, n)
		*p = string(v)
		return
	}
	if n == required || *p != "" {
		b.put(key, *p)
	}
}

func (b *binder) bytes(key string, p *[]byte, n need) {
	if b.decoding() {
		*p, _ = b.take(key, n)
		return
	}
	if n == required || len(*p) > 0 {
		b.put(key, string(*p))
	}
}

func (b *binder) i64(key string, p *int64, n need) {
	if b.decoding() {
		*p = 0
		b.number(key, n, 64, func(v int64) { *p = v })
		return
	}
	b.put(key, strconv.FormatInt(*p, 10))
}

func (b *binder) i32(key string, p *int32, n need) {
	if b.decoding() {
		*p = 0
		b.number(key, n, 32, func(v int64) { *p = int32(v) })
		return
	}
	b.put(key, strconv.FormatInt(int64(*p), 10))
}

func (b *binder) optI64(key string, p *Opt[int64]) {
	if b.decoding() {
		*p = Opt[int64]{}
		b.number(key, optional, 64, func(v int64) { *p = Some(v) })
		return
	}
	if p.Present {
		b.put(key, strconv.FormatInt(p.Value, 10))
	}
}

func (b *binder) optI32(key string, p *Opt[int32]) {
	if b.decoding() {
		*p = Opt[int32]{}
		b.number(key, optional, 32, func(v int64) { *p = Some(int32(v)) })
		return
	}
	if p.Present {
		b.put(key, strconv.FormatInt(int64(p.Value), 10))
	}
}

// number hands a present number to set. Empty text counts as absent where the
// field may be: some clients write an empty string for null.
func (b *binder) number(key string, n need, size int, set func(int64)) {
	v, ok := b.take(key, n)
	if !ok || len(v) == 0 && n == optional {
		return
	}
	i, ok := parseInt(v)
	if !ok || size == 32 && i != int64(int32(i)) {
		b.fail(malformed(key, v, strconv.Itoa(size)+"-bit number"))
		return
	}
	set(i)
}

// flag is a boolean; an optional one that is absent is false.
func (b *binder) flag(key string, p *bool, n need) {
	if !b.decoding() {
		b.put(key, strconv.FormatBool(*p))
		return
	}
	*p = false
	if v, ok := b.take(key, n); ok {
		*p = parseBool(v)
	}
}

func (b *binder) optFlag(key string, p *Opt[bool]) {
	if !b.decoding() {
		if p.Present {
			b.put(key, strconv.FormatBool(p.Value))
		}
		return
	}
	*p = Opt[bool]{}
	if v, ok := b.take(key, optional); ok && len(v) > 0 {
		*p = Some(parseBool(v))
	}
}

// parseBool is Java's: "true" in any case is true, everything else false.
func parseBool(v []byte) bool {
	return len(v) == 4 && v[0]|0x20 == 't' && v[1]|0x20 == 'r' && v[2]|0x20 == 'u' && v[3]|0x20 == 'e'
}

// flagIfSet is an optional boolean that is written only when true.
func (b *binder) flagIfSet(key string, p *bool) {
	if b.decoding() || *p {
		b.flag(key, p, optional)
	}
}
