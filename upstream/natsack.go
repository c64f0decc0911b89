package upstream

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// A pubAck is JetStream's answer to a message, as JSON:
//
//	{"stream":"EDGE","seq":7}
//	{"stream":"EDGE","domain":"hub","seq":7,"duplicate":true}
//	{"error":{"code":503,"err_code":10077,"description":"…"},"stream":"EDGE","seq":0}
type pubAck struct {
	Stream    string              `json:"stream"`
	Sequence  uint64              `json:"seq"`
	Duplicate bool                `json:"duplicate"`
	Error     *jetstream.APIError `json:"error"`
}

var errBadAck = errors.New("the answer is no acknowledgement")

// readAnswer says what became of a message. stream, when not empty, is the one
// that must have stored it.
func readAnswer(m *nats.Msg, stream string) (duplicate bool, err error) {
	if len(m.Data) == 0 && m.Header.Get("Status") == "503" {
		return false, nats.ErrNoResponders
	}
	if stream != "" {
		if duplicate, ok := plainAck(m.Data, stream); ok {
			return duplicate, nil
		}
	}
	var ack pubAck
	if err := json.Unmarshal(m.Data, &ack); err != nil {
		return false, fmt.Errorf("%w: %w", errBadAck, err)
	}
	switch {
	case ack.Error != nil:
		return false, ack.Error
	case ack.Stream == "" || ack.Sequence == 0:
		return false, errBadAck
	case stream != "" && ack.Stream != stream:
		return false, fmt.Errorf("%w: stored by stream %s instead of %s", ErrNoStream, ack.Stream, stream)
	}
	return ack.Duplicate, nil
}

// plainAck reads the two forms that nearly all answers have: no domain, and the
// fields in the server's order. It says ok only when it has understood every byte.
func plainAck(data []byte, stream string) (duplicate, ok bool) {
	rest, ok := bytes.CutPrefix(data, []byte(`{"stream":"`))
	if !ok || len(rest) < len(stream) || string(rest[:len(stream)]) != stream {
		return false, false
	}
	rest, ok = bytes.CutPrefix(rest[len(stream):], []byte(`","seq":`))
	if !ok || len(rest) == 0 || rest[0] < '1' || rest[0] > '9' {
		return false, false
	}
	digits := 1
	for digits < len(rest) && rest[digits] >= '0' && rest[digits] <= '9' {
		digits++
	}
	if digits > 19 {
		return false, false
	}
	switch string(rest[digits:]) {
	case "}":
		return false, true
	case `,"duplicate":true}`, `,"duplicate": true}`:
		return true, true
	}
	return false, false
}
