package upstream

import (
	"encoding/json"
	"errors"
	"testing"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

func TestReadAnswer(t *testing.T) {
	for _, tt := range []struct {
		answer, stream string
		duplicate      bool
		err            error
	}{
		{`{"stream":"EDGE","seq":7}`, "EDGE", false, nil},
		{`{"stream":"EDGE","seq":7}`, "", false, nil},
		{`{"stream":"EDGE","seq":7,"duplicate": true}`, "EDGE", true, nil},
		{`{"stream":"EDGE","seq":7,"duplicate":true}`, "EDGE", true, nil},
		{`{"stream":"EDGE","domain":"hub","seq":18446744073709551615}`, "EDGE", false, nil},
		{`{"duplicate":true,"seq":7,"stream":"EDGE","later":{}}`, "EDGE", true, nil},
		{`{"stream":"OTHER","seq":7}`, "EDGE", false, ErrNoStream},
		{`{"stream":"EDGES","seq":7}`, "EDGE", false, ErrNoStream},
		{`{"stream":"EDGE","seq":0}`, "EDGE", false, errBadAck},
		{`{"stream":"EDGE","seq":-7}`, "EDGE", false, errBadAck},
		{`{"stream":"EDGE","seq":007}`, "EDGE", false, errBadAck},
		{`{"stream":"EDGE","seq":7`, "EDGE", false, errBadAck},
		{`{"stream":"EDGE","seq":7}}`, "EDGE", false, errBadAck},
		{`{"stream":"EDGE"}`, "EDGE", false, errBadAck},
		{`{"seq":7}`, "EDGE", false, errBadAck},
		{``, "EDGE", false, errBadAck},
		{`OK`, "", false, errBadAck},
		{`{}`, "", false, errBadAck},
	} {
		duplicate, err := readAnswer(&nats.Msg{Data: []byte(tt.answer)}, tt.stream)
		if duplicate != tt.duplicate || !errors.Is(err, tt.err) {
			t.Errorf("%s for %q: %v, %v", tt.answer, tt.stream, duplicate, err)
		}
	}
}

func TestReadAnswerKnowsRefusals(t *testing.T) {
	answer := `{"error":{"code":503,"err_code":10077,"description":"maximum messages exceeded"},"stream":"EDGE","seq":0}`
	_, err := readAnswer(&nats.Msg{Data: []byte(answer)}, "EDGE")
	var api *jetstream.APIError
	if !errors.As(err, &api) || api.ErrorCode != 10077 || api.Description != "maximum messages exceeded" {
		t.Errorf("%v", err)
	}
	if _, err := readAnswer(&nats.Msg{Header: nats.Header{"Status": {"503"}}}, "EDGE"); !errors.Is(err, nats.ErrNoResponders) {
		t.Errorf("%v", err)
	}
}

// FuzzReadAnswer compares the short way through an answer with the long one:
// what the short one understands, the long one understands in the same way.
func FuzzReadAnswer(f *testing.F) {
	for _, seed := range []string{
		`{"stream":"EDGE","seq":7}`, `{"stream":"EDGE","seq":7,"duplicate": true}`, `{"stream":"EDGE","seq":007}`,
		`{"stream":"EDGE","domain":"hub","seq":7}`, `{"error":{"code":503},"stream":"EDGE","seq":0}`, `{"stream":"EDGE","seq":`,
	} {
		f.Add([]byte(seed))
	}
	f.Fuzz(func(t *testing.T, data []byte) {
		_, _ = readAnswer(&nats.Msg{Data: data}, "")
		duplicate, ok := plainAck(data, "EDGE")
		if !ok {
			return
		}
		var ack pubAck
		if err := json.Unmarshal(data, &ack); err != nil || ack.Error != nil || ack.Stream != "EDGE" || ack.Sequence == 0 || ack.Duplicate != duplicate {
			t.Fatalf("%q: %+v, %v", data, ack, err)
		}
	})
}
