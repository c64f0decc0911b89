package protocol

import (
	"encoding/binary"
	"fmt"
	"slices"
)

// A Coding is the form of a frame's header. A server answers in the coding of
// the request.
type Coding uint8

// The two codings, in the numbers of the header mark.
const (
	JSON   Coding = 0
	Binary Coding = 1
)

// String returns "JSON" or "ROCKETMQ", Apache's names.
func (c Coding) String() string {
	if c == Binary {
		return "ROCKETMQ"
	}
	return "JSON"
}

const (
	// MaxFields bounds the ext fields of one command. Apache's largest request
	// has 20; the bound keeps a small frame from growing into a large table.
	MaxFields = 4096
	// maxKey is what the 16-bit key length of the binary header can say.
	maxKey = 1<<15 - 1
	// keepScratch is how much decoding memory a reused Command may hold on to
	// after a rare large header.
	keepScratch = 64 << 10
)

// A Field is one ext field: text, in practice UTF-8.
type Field struct{ Key, Value []byte }

// Fields are the ext fields in the order of their arrival. A key may occur
// twice; the last one counts.
type Fields []Field

// Get returns the value of key, and whether there is one. The value aliases the
// command.
func (f Fields) Get(key string) ([]byte, bool) {
	for i := len(f) - 1; i >= 0; i-- {
		if string(f[i].Key) == key {
			return f[i].Value, true
		}
	}
	return nil, false
}

// A Command is one request or response. The zero value is an empty request in
// JSON; Decode may be called on one Command again and again. A Command must not
// be used by two goroutines at once.
type Command struct {
	Code     int32 // a RequestCode or a ResponseCode, see IsResponse
	Language Language
	Version  int32  // the sender's, see CurrentVersion
	Opaque   int32  // joins a response to its request, unique per connection and direction
	Flag     int32  // bit 0 response, bit 1 one-way
	Remark   string // for people
	Fields   Fields
	Body     []byte // nil when the frame has none
	Coding   Coding

	scratch []byte   // text of unescaped strings and of encoded headers; Fields point into it
	shape   [][]byte // of the JSON header decoded before, see jsonScanner.expectedKey
}

// NewRequest returns a request in JSON with the fields of h, which may be nil.
// It keeps body. Opaque is left to the connection that sends it.
func NewRequest(code RequestCode, h Header, body []byte) *Command {
	c := &Command{Code: int32(code), Language: LanguageGo, Version: CurrentVersion, Body: body}
	c.SetHeader(h)
	return c
}

// NewResponse returns a response in JSON with the fields of h, which may be nil.
// It keeps body. Opaque and Coding are to be copied from the request.
func NewResponse(code ResponseCode, remark string, h Header, body []byte) *Command {
	c := &Command{
		Code: int32(code), Language: LanguageGo, Version: CurrentVersion,
		Flag: FlagResponse, Remark: remark, Body: body,
	}
	c.SetHeader(h)
	return c
}

// NewJSONResponse returns a success with the fields of h, which may be nil, and v
// as its body, written by Marshal.
func NewJSONResponse(h Header, v any) (*Command, error) {
	body, err := Marshal(v)
	if err != nil {
		return nil, err
	}
	return NewResponse(Success, "", h, body), nil
}

// IsResponse reports whether Code is a ResponseCode.
func (c *Command) IsResponse() bool { return c.Flag&FlagResponse != 0 }

// IsOneWay reports whether the sender wants no response.
func (c *Command) IsOneWay() bool { return c.Flag&FlagOneWay != 0 }

// SetOneWay marks a request as one that gets no response.
func (c *Command) SetOneWay() { c.Flag |= FlagOneWay }

// RequestCode returns the code of a request.
func (c *Command) RequestCode() RequestCode { return RequestCode(c.Code) }

// ResponseCode returns the code of a response.
func (c *Command) ResponseCode() ResponseCode { return ResponseCode(c.Code) }

// Err returns the response's outcome as an error: nil for Success.
func (c *Command) Err() error {
	if c.ResponseCode() == Success {
		return nil
	}
	return &Error{Code: c.ResponseCode(), Remark: c.Remark}
}

// AddField appends an ext field; it copies the value.
func (c *Command) AddField(key, value string) {
	at := len(c.scratch)
	c.scratch = append(c.scratch, value...)
	c.Fields = append(c.Fields, Field{Key: []byte(key), Value: c.scratch[at:len(c.scratch):len(c.scratch)]})
}

// Decode reads one frame, without its length word, in one pass. Fields and Body
// alias frame and memory of c until the next Decode; a JSON or binary header of
// ordinary size costs no allocation once c has been used. The error says what
// arrived; c is then not to be used except for another Decode. A command that
// came in the binary coding has its code made whole, see Canonical.
func (c *Command) Decode(frame []byte) error {
	if len(frame) < 4 {
		return fmt.Errorf("decode frame: %d bytes, header mark needs 4", len(frame))
	}
	mark := binary.BigEndian.Uint32(frame)
	size := int(mark & 0xFFFFFF)
	if size > len(frame)-4 {
		return fmt.Errorf("decode frame: header of %d bytes in a frame of %d", size, len(frame))
	}
	c.reset(size)
	header := frame[4 : 4+size : 4+size]
	var err error
	switch kind := Coding(mark >> 24); kind {
	case JSON:
		err = c.decodeJSON(header)
	case Binary:
		c.Coding = Binary
		err = c.decodeBinary(header)
	default:
		return fmt.Errorf("decode frame: unknown header coding %d", kind)
	}
	if err != nil {
		return err
	}
	if body := frame[4+size:]; len(body) > 0 {
		c.Body = body
	}
	return nil
}

// reset empties c, keeping its memory unless a past header made it large.
func (c *Command) reset(header int) {
	fields, scratch := c.Fields[:0], c.scratch[:0]
	if header < keepScratch && cap(scratch) > keepScratch {
		scratch = nil
	}
	if cap(fields) > MaxFields/8 {
		fields = nil
	}
	*c = Command{Fields: fields, scratch: scratch, shape: c.shape}
}

// Clone returns a copy that shares no memory with c.
func (c *Command) Clone() *Command {
	n := *c
	n.shape = nil
	size := 0
	for _, f := range c.Fields {
		size += len(f.Key) + len(f.Value)
	}
	n.scratch = make([]byte, 0, size)
	n.Fields = make(Fields, len(c.Fields))
	keep := func(b []byte) []byte {
		at := len(n.scratch)
		n.scratch = append(n.scratch, b...)
		return n.scratch[at:len(n.scratch):len(n.scratch)]
	}
	for i, f := range c.Fields {
		n.Fields[i] = Field{Key: keep(f.Key), Value: keep(f.Value)}
	}
	n.Body = slices.Clone(c.Body)
	return &n
}

// AppendTo appends the whole frame, length word included, in the coding of c.
func (c *Command) AppendTo(dst []byte) []byte {
	w := beginFrame(dst, frameStart{
		coding: c.Coding, code: c.Code, flag: c.Flag, opaque: c.Opaque,
		language: c.Language, version: c.Version,
	}, c.Remark)
	for _, f := range c.Fields {
		w.field(f.Key, f.Value)
	}
	return w.End(append(w.BeginBody(), c.Body...))
}
