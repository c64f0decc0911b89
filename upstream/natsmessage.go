package upstream

import (
	"net/url"
	"strconv"
	"strings"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluicemq/sluice/protocol/message"
)

// Headers of a message in NATS, beside Nats-Msg-Id, which is its unique key.
const (
	HeaderTopic         = "Sluice-Topic" // only where the subject does not name it
	HeaderKeys          = "Sluice-Keys"  // separated by one space
	HeaderTags          = "Sluice-Tags"
	HeaderQueueID       = "Sluice-Queue-Id"       // local queue
	HeaderQueueOffset   = "Sluice-Queue-Offset"   // in the local queue: the order of its messages
	HeaderBornTimestamp = "Sluice-Born-Timestamp" // ms
	HeaderFlag          = "Sluice-Flag"           // the application's flag when it is not 0
	HeaderEncoding      = "Sluice-Content-Encoding"

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

// encode makes the message for NATS. Compressed bodies travel plain, as readers
// there know nothing of RocketMQ's flags.
func (s *NATS) encode(subject, topic string, queue int, m *message.Message) *nats.Msg {
	h := headers{header: make(nats.Header, 8), values: make([]string, 0, 8)}
	h.set(jetstream.MsgIDHeader, uniqueKey(m))
	if s.o.Stream != "" {
		h.set(jetstream.ExpectedStreamHeader, s.o.Stream)
	}
	if !strings.Contains(s.o.Subject, "{topic}") || subjectToken(topic) != topic {
		h.set(HeaderTopic, topic)
	}
	h.set(HeaderQueueID, strconv.Itoa(queue))
	h.set(HeaderQueueOffset, strconv.FormatInt(m.QueueOffset, 10))
	h.set(HeaderBornTimestamp, strconv.FormatInt(m.BornTimestamp, 10))
	if m.Flag != 0 {
		h.set(HeaderFlag, strconv.Itoa(int(m.Flag)))
	}
	h.properties(m.Properties)
	return &nats.Msg{Subject: subject, Header: h.header, Data: h.body(m)}
}

// headers builds a header whose one-element lists share an array.
type headers struct {
	header nats.Header
	values []string
	rest   url.Values
}

func (h *headers) set(name, value string) {
	h.values = append(h.values, value)
	n := len(h.values)
	h.header[name] = h.values[n-1 : n : n]
}

// properties sets the headers of all properties but those that only the local
// broker and its clients know about.
func (h *headers) properties(props []byte) {
	message.EachProperty(props, func(name, value []byte) bool {
		var header string
		switch string(name) {
		case message.PropertyUniqueKey, message.PropertyWait, message.PropertyMessageRegion,
			message.PropertyTraceOn, message.PropertyCluster, message.PropertyCRC32:
			return true
		case message.PropertyKeys:
			header = HeaderKeys
		case message.PropertyTags:
			header = HeaderTags
		default:
			header = HeaderProperty + string(name)
		}
		if headerName(name) && headerValue(value) {
			h.set(header, string(value))
			return true
		}
		if h.rest == nil {
			h.rest = make(url.Values)
		}
		h.rest.Set(string(name), string(value))
		return true
	})
	if h.rest != nil {
		h.set(HeaderProperties, h.rest.Encode())
	}
}

// maxPlainBody guards against bodies that grow without bounds.
const maxPlainBody = 64 << 20

// body is the plain body. One that cannot be decompressed goes as it is.
func (h *headers) body(m *message.Message) []byte {
	if m.SysFlag&message.Compressed == 0 {
		return m.Body
	}
	if plain, err := message.Decompress(m.SysFlag, m.Body, maxPlainBody); err == nil {
		return plain
	}
	h.set(HeaderEncoding, encodingName(m.SysFlag))
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
