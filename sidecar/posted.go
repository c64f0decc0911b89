package sidecar

import (
	"bytes"
	"encoding/base64"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"net/url"
	"strconv"
	"strings"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
)

// postedMessage is a message as the HTTP door took it.
type postedMessage struct {
	message     message.Message
	OrderingKey string
}

// attributes are what a producer says of a message beside its body: in headers,
// in the query, or in a line of NDJSON.
type attributes struct {
	ID          string            `json:"id"`           // unique key; made when absent
	Key         string            `json:"key"`          // business key (KEYS)
	Tag         string            `json:"tag"`          // TAGS
	OrderingKey string            `json:"ordering_key"` // messages of one key stay in order
	Delay       string            `json:"delay"`        // a duration, or an RFC 3339 time
	Properties  map[string]string `json:"properties"`
}

// line is one line of an NDJSON batch: attributes, and the body as text, as
// base64 or as any JSON value.
type line struct {
	attributes
	Body       json.RawMessage `json:"body"`
	BodyBase64 *string         `json:"body_base64"`
}

const maxBatchLines = 10_000

// attributeNames are the attributes of a single message by their name in the query;
// the header is X-Sluice- and the same name with - for _.
var attributeNames = [...]string{"id", "key", "tag", "ordering_key", "delay"}

const attributePrefix = "X-Sluice-"

func attributeHeader(name string) string {
	return http.CanonicalHeaderKey(attributePrefix + strings.ReplaceAll(name, "_", "-"))
}

// checkAttributes refuses what is spelt like an attribute and is none: a message
// without the ordering key that its producer gave it would lose its order in silence.
// A batch has its attributes in its lines.
func checkAttributes(r *http.Request, query url.Values, batch bool) error {
	known := map[string]bool{}
	for _, name := range attributeNames {
		known[name], known[attributeHeader(name)] = !batch, !batch
	}
	where := "known are " + strings.Join(attributeNames[:], ", ")
	if batch {
		where = "attributes of a batch are in its lines"
	}
	for name := range query {
		if !known[name] {
			return fmt.Errorf("query parameter %q: %s", name, where)
		}
	}
	for name := range r.Header {
		if strings.HasPrefix(name, attributePrefix) && !known[name] {
			return fmt.Errorf("header %s: %s", name, where)
		}
	}
	return nil
}

// parseSingle takes the body as it is, and attributes from X-Sluice-… headers or
// from the query. The header wins.
func parseSingle(r *http.Request, query url.Values, body []byte) ([]postedMessage, error) {
	get := func(name string) string {
		if v := r.Header.Get(attributeHeader(name)); v != "" {
			return v
		}
		return query.Get(name)
	}
	a := attributes{
		ID: get("id"), Key: get("key"), Tag: get("tag"), OrderingKey: get("ordering_key"), Delay: get("delay"),
	}
	p, err := a.post(body, time.Now())
	if err != nil {
		return nil, err
	}
	return []postedMessage{p}, nil
}

// parseLines reads an NDJSON batch. One bad line refuses the whole batch and is
// named, so that a producer never has to guess which lines were taken.
func parseLines(body []byte) ([]postedMessage, error) {
	var posted []postedMessage
	now := time.Now()
	for n, text := range bytes.Split(body, []byte{'\n'}) {
		text = bytes.TrimSpace(text)
		if len(text) == 0 {
			continue
		}
		if len(posted) == maxBatchLines {
			return nil, fmt.Errorf("the batch has more than %d lines", maxBatchLines)
		}
		var l line
		decoder := json.NewDecoder(bytes.NewReader(text))
		decoder.DisallowUnknownFields()
		err := plainly(decoder.Decode(&l))
		if err == nil {
			if _, more := decoder.Token(); more != io.EOF {
				err = errors.New("more than one JSON value")
			}
		}
		var content []byte
		if err == nil {
			content, err = l.content()
		}
		var p postedMessage
		if err == nil {
			p, err = l.post(content, now)
		}
		if err != nil {
			return nil, fmt.Errorf("line %d: %w", n+1, err)
		}
		posted = append(posted, p)
	}
	if len(posted) == 0 {
		return nil, errors.New("the batch has no line")
	}
	return posted, nil
}

// plainly says what a value of the wrong type is without naming Go types.
func plainly(err error) error {
	wrong := (*json.UnmarshalTypeError)(nil)
	switch {
	case !errors.As(err, &wrong):
		return err
	case wrong.Field == "":
		return fmt.Errorf("want an object, have %s", wrong.Value)
	}
	return fmt.Errorf("%s: want a string, have %s", strings.TrimPrefix(wrong.Field, "attributes."), wrong.Value)
}

func (l *line) content() ([]byte, error) {
	switch {
	case l.BodyBase64 != nil && l.Body != nil:
		return nil, errors.New("both body and body_base64 are given")
	case l.BodyBase64 != nil:
		content, err := base64.StdEncoding.DecodeString(*l.BodyBase64)
		if err != nil {
			return nil, fmt.Errorf("body_base64: %w", err)
		}
		return content, nil
	case l.Body == nil:
		return nil, errors.New("there is neither body nor body_base64")
	}
	var text string
	if json.Unmarshal(l.Body, &text) == nil {
		return []byte(text), nil
	}
	return l.Body, nil
}

// post makes the message.
func (a *attributes) post(body []byte, now time.Time) (postedMessage, error) {
	var props []byte
	var failed error
	add := func(name, value string) {
		if value == "" || failed != nil {
			return
		}
		if strings.ContainsAny(value, "\x01\x02") || strings.ContainsAny(name, "\x01\x02") {
			failed = fmt.Errorf("%s: the bytes 0x01 and 0x02 are not allowed", name)
			return
		}
		props = message.AppendProperty(props, name, value)
	}
	add(message.PropertyUniqueKey, a.ID)
	add(message.PropertyKeys, a.Key)
	add(message.PropertyTags, a.Tag)
	add(message.PropertyShardingKey, a.OrderingKey)
	if a.Delay != "" {
		due, err := dueTime(a.Delay, now)
		if err != nil {
			return postedMessage{}, err
		}
		add(message.PropertyTimerDeliverMillis, strconv.FormatInt(due.UnixMilli(), 10))
	}
	for name, value := range a.Properties {
		if message.IsSystemProperty(name) {
			return postedMessage{}, fmt.Errorf("property %q is reserved", name)
		}
		add(name, value)
	}
	if failed != nil {
		return postedMessage{}, failed
	}
	return postedMessage{
		message:     message.Message{Body: body, Properties: props, BornTimestamp: now.UnixMilli()},
		OrderingKey: a.OrderingKey,
	}, nil
}

// dueTime reads a delay: "90s" from now, or the time of delivery itself. It is
// forwarded as an absolute time, so that an outage does not add to it.
func dueTime(text string, now time.Time) (time.Time, error) {
	if d, err := time.ParseDuration(text); err == nil && d >= 0 {
		return now.Add(d), nil
	}
	if due, err := time.Parse(time.RFC3339, text); err == nil {
		return due, nil
	}
	return time.Time{}, fmt.Errorf("delay %q is neither a duration such as 90s nor an RFC 3339 time", text)
}
