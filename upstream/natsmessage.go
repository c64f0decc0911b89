package upstream

import (
	"net/url"
	"slices"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluicemq/sluice/protocol/message"
)

// Headers of a message in NATS, beside Nats-Msg-Id, which is its unique key, and
// Nats-Expected-Stream. They are few and short, as the server reads through all
// of them several times for each message.
const (
	// HeaderOrigin is where the message comes from: the local queue, its offset
	// there, which is the order of that queue's messages, and when it was born,
	// in milliseconds since 1970, as decimal numbers: "3/100200/1700000000007".
	HeaderOrigin = "Sluice-Origin"

	HeaderTopic    = "Sluice-Topic" // only where the subject does not name it
	HeaderKeys     = "Sluice-Keys"  // separated by one space
	HeaderTags     = "Sluice-Tags"
	HeaderFlag     = "Sluice-Flag" // the application's flag when it is not 0
	HeaderEncoding = "Sluice-Content-Encoding"

	// HeaderProperty begins the header of a property that is none of the above.
	HeaderProperty = "Sluice-Property-"
	// HeaderProperties holds those whose name or value no header can hold, in
	// the form of a URL query.
	HeaderProperties = "Sluice-Properties"
)

// subject fills in the template.
func (s *NATS) subject(topic string, queue int) string {
	return strings.NewReplacer("{topic}", subjectToken(topic), "{queue}", strconv.Itoa(queue)).Replace(s.o.Subject)
}

// subjectToken makes one token of a name. Topic names have no character that a
// token could not hold, '%' and '|' included; this guards against others.
func subjectToken(name string) string {
	return strings.Map(func(r rune) rune {
		switch {
		case r <= ' ', r == '.', r == '*', r == '>', r == 0x7F:
			return '_'
		}
		return r
	}, name)
}

// An encoder makes the messages of one Send, one after the other, in the same
// place: the client library copies what it publishes. Values of headers lie one
// behind the other in text and are pieces of one string in the end.
type encoder struct {
	stream string // expected; empty: any
	named  bool   // the subject's template names the topic

	// Of the present Send.
	topic string // for its header; empty: the subject names it
	queue int
	msg   nats.Msg

	// Of the present message.
	keyed  bool
	text   []byte
	fields []field
	values []string
	rest   url.Values

	property func(name, value []byte) bool
	names    map[string]string // headers of properties
}

// A field is a header whose value ends there in the text.
type field struct {
	name string
	end  int
}

// maxNames limits how many names of properties an encoder remembers.
const maxNames = 256

func (s *NATS) newEncoder() *encoder {
	e := &encoder{
		stream: s.o.Stream, named: strings.Contains(s.o.Subject, "{topic}"),
		names: make(map[string]string), msg: nats.Msg{Header: make(nats.Header)},
	}
	e.property = e.addProperty
	return e
}

// begin prepares for the messages of one queue.
func (e *encoder) begin(subject, topic string, queue int) {
	e.msg.Subject, e.queue, e.topic = subject, queue, ""
	if !e.named || subjectToken(topic) != topic {
		e.topic = topic
	}
}

// encode makes the message for NATS, which is valid until the next call.
// Compressed bodies travel plain, as readers there know nothing of RocketMQ's
// flags.
func (e *encoder) encode(m *message.Message) *nats.Msg {
	e.text, e.fields, e.values, e.rest, e.keyed = e.text[:0], e.fields[:0], e.values[:0], nil, false
	message.EachProperty(m.Properties, e.property)
	if !e.keyed {
		e.add(jetstream.MsgIDHeader, fallbackKey(m))
	}
	if e.stream != "" {
		e.add(jetstream.ExpectedStreamHeader, e.stream)
	}
	if e.topic != "" {
		e.add(HeaderTopic, e.topic)
	}
	e.text = strconv.AppendInt(e.text, int64(e.queue), 10)
	e.text = strconv.AppendInt(append(e.text, '/'), m.QueueOffset, 10)
	e.text = strconv.AppendInt(append(e.text, '/'), m.BornTimestamp, 10)
	e.end(HeaderOrigin)
	if m.Flag != 0 {
		e.text = strconv.AppendInt(e.text, int64(m.Flag), 10)
		e.end(HeaderFlag)
	}
	if e.rest != nil {
		e.add(HeaderProperties, e.rest.Encode())
	}
	e.msg.Data = e.body(m)
	e.finish()
	return &e.msg
}

// add appends a header.
func (e *encoder) add(name, value string) {
	e.text = append(e.text, value...)
	e.end(name)
}

// end makes a header of what was appended to the text.
func (e *encoder) end(name string) {
	e.fields = append(e.fields, field{name, len(e.text)})
}

// finish fills the library's form of a header.
func (e *encoder) finish() {
	clear(e.msg.Header)
	text, begin := string(e.text), 0
	e.values = slices.Grow(e.values, len(e.fields)) // what points there must not move
	for i, f := range e.fields {
		e.values = append(e.values, text[begin:f.end])
		e.msg.Header[f.name] = e.values[i : i+1 : i+1]
		begin = f.end
	}
}

// addProperty makes the header of a property that not only the local broker and
// its clients know about.
func (e *encoder) addProperty(name, value []byte) bool {
	var header string
	switch string(name) {
	case message.PropertyWait, message.PropertyMessageRegion,
		message.PropertyTraceOn, message.PropertyCluster, message.PropertyCRC32:
		return true
	case message.PropertyUniqueKey:
		if e.keyed {
			return true
		}
		e.keyed = true
		e.text = append(e.text, value...)
		e.end(jetstream.MsgIDHeader)
		return true
	case message.PropertyKeys:
		header = HeaderKeys
	case message.PropertyTags:
		header = HeaderTags
	default:
		header = e.propertyHeader(name)
	}
	if header != "" && headerValue(value) {
		e.text = append(e.text, value...)
		e.end(header)
		return true
	}
	if e.rest == nil {
		e.rest = make(url.Values)
	}
	e.rest.Set(string(name), string(value))
	return true
}

// propertyHeader is the header of a property; empty: none can be.
func (e *encoder) propertyHeader(name []byte) string {
	if header, ok := e.names[string(name)]; ok {
		return header
	}
	if !headerName(name) {
		return ""
	}
	header := HeaderProperty + string(name)
	if len(e.names) < maxNames {
		e.names[string(name)] = header
	}
	return header
}

// maxPlainBody guards against bodies that grow without bounds.
const maxPlainBody = 64 << 20

// body is the plain body. One that cannot be decompressed goes as it is.
func (e *encoder) body(m *message.Message) []byte {
	if m.SysFlag&message.Compressed == 0 {
		return m.Body
	}
	if plain, err := message.Decompress(m.SysFlag, m.Body, maxPlainBody); err == nil {
		return plain
	}
	e.add(HeaderEncoding, encodingName(m.SysFlag))
	return m.Body
}

func encodingName(flag message.SysFlag) string {
	switch flag & message.CompressionMask {
	case message.CompressionLZ4:
		return "lz4"
	case message.CompressionZstd:
		return "zstd"
	}
	return "zlib"
}

// headerName reports whether a name is one that NATS headers may have.
func headerName(name []byte) bool {
	for _, c := range name {
		if c <= ' ' || c >= 0x7F || strings.IndexByte(`"()/,:;<=>?@[\]{}`, c) >= 0 {
			return false
		}
	}
	return len(name) > 0
}

// headerValue reports whether a value arrives as it is: headers are lines and
// lose blanks at their ends.
func headerValue(value []byte) bool {
	for i, c := range value {
		if c == '\r' || c == '\n' || (c == ' ' || c == '\t') && (i == 0 || i == len(value)-1) {
			return false
		}
	}
	return true
}
