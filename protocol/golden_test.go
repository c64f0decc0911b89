package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"testing"
)

// A recorded is one line of testdata/frames/index.json: a frame that passed
// between an Apache client, broker or name server and its peer.
type recorded struct {
	File      string
	Coding    string      // json or binary
	Code      RequestCode // of the request, also for its response
	Name      string
	Direction string // request or response
	Status    ResponseCode
	Version   int32
}

func recordedFrames(t *testing.T) []recorded {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "frames", "index.json"))
	if os.IsNotExist(err) {
		t.Skip("no recorded frames: test/vectors makes them")
	}
	if err != nil {
		t.Fatal(err)
	}
	var index []recorded
	if err := json.Unmarshal(text, &index); err != nil || len(index) == 0 {
		t.Fatalf("%d frames in the index, %v", len(index), err)
	}
	return index
}

// Every frame that Apache's programs sent must decode, mean the same after
// encoding in either coding, and fit its typed header and body.
func TestRecordedFrames(t *testing.T) {
	for _, r := range recordedFrames(t) {
		t.Run(r.File, func(t *testing.T) {
			frame, err := os.ReadFile(filepath.Join("testdata", "frames", r.File))
			if err != nil {
				t.Fatal(err)
			}
			if n := int(binary.BigEndian.Uint32(frame)); n != len(frame)-4 {
				t.Fatalf("length word %d of %d bytes", n, len(frame))
			}
			var c Command
			if err := c.Decode(frame[4:]); err != nil {
				t.Fatal(err)
			}
			checkRecorded(t, r, &c)
			for _, coding := range []Coding{JSON, Binary} {
				again := c.Clone()
				again.Coding = coding
				d := decode(t, again.AppendTo(nil))
				if d.Code != c.Code || d.Opaque != c.Opaque || d.Flag != c.Flag || d.Language != c.Language || d.Version != c.Version ||
					d.Remark != c.Remark || !reflect.DeepEqual(fieldMap(d), fieldMap(&c)) || !bytes.Equal(d.Body, c.Body) {
					t.Errorf("in %v it reads %+v, was %+v", coding, d, c)
				}
			}
		})
	}
}

func checkRecorded(t *testing.T, r recorded, c *Command) {
	t.Helper()
	if (c.Coding == Binary) != (r.Coding == "binary") || c.Version != r.Version || c.IsResponse() != (r.Direction == "response") {
		t.Errorf("%v, version %d, response %v: index says %+v", c.Coding, c.Version, c.IsResponse(), r)
	}
	if r.Name != "UNKNOWN" && r.Code.String() != r.Name {
		t.Errorf("%d is %s here and %s there", r.Code, r.Code, r.Name)
	}
	s := catalogue[r.Code]
	newHeader, newBody := s.request, s.requestBody
	if c.IsResponse() {
		newHeader, newBody = s.response, s.responseBody
		if c.ResponseCode() != r.Status {
			t.Errorf("status %v, index says %v", c.ResponseCode(), r.Status)
		}
		if r.Status != Success {
			return
		}
	} else if c.RequestCode() != r.Code {
		t.Errorf("code %v, index says %v", c.RequestCode(), r.Code)
	}
	if newHeader != nil && len(c.Fields) > 0 {
		checkRecordedHeader(t, c, newHeader())
	}
	if newBody != nil && len(c.Body) > 0 {
		checkRecordedBody(t, c.Body, newBody)
	}
	if r.Code == GetRouteInfoByTopic && c.IsResponse() {
		checkRecordedRoute(t, c.Body)
	}
	if r.Code == RegisterBroker && !c.IsResponse() {
		checkRecordedRegistration(t, c)
	}
}

// passedOver are ext fields that no header here has a use for: namespaces,
// one-way and logical-queue hints, signatures, the region of answers.
var passedOver = []string{
	"ns", "nsd", "oway", "lo", "bname", "n", "AccessKey", "Signature", "SecurityToken", "ReqT", "MSG_REGION", "TRACE_ON",
}

// checkRecordedHeader wants every field to be in the typed header.
func checkRecordedHeader(t *testing.T, c *Command, h Header) {
	t.Helper()
	if err := c.DecodeHeader(h); err != nil {
		t.Fatal(err)
	}
	ours := fieldMap(NewRequest(0, h, nil))
	for key, want := range fieldMap(c) {
		if got, ok := ours[key]; got != want && !slices.Contains(passedOver, key) && (ok || want != "" && want != "false") {
			t.Errorf("%T: field %s is %q after a round trip, was %q", h, key, got, want)
		}
	}
}

// checkRecordedBody wants the typed body to be stable and to lose no key.
func checkRecordedBody(t *testing.T, text []byte, fresh func() any) {
	t.Helper()
	v, w := fresh(), fresh()
	if err := Unmarshal(text, v); err != nil {
		t.Fatalf("%v in %.400q", err, text)
	}
	again, err := MarshalFastjson(v)
	if err != nil {
		t.Fatal(err)
	}
	// An empty map may come back as none, so the texts are compared.
	err = Unmarshal(again, w)
	if third, _ := MarshalFastjson(w); err != nil || !bytes.Equal(third, again) {
		t.Errorf("%T is not stable (%v):\n%.800s\n%.800s", v, err, again, third)
	}
	var theirs, ours any
	if json.Unmarshal(text, &theirs) != nil || json.Unmarshal(again, &ours) != nil {
		return // raw keys: only our own reader takes those
	}
	lost(t, "", theirs, ours)
}

// lost reports the keys of theirs that ours lacks.
func lost(t *testing.T, path string, theirs, ours any) {
	t.Helper()
	switch a := theirs.(type) {
	case map[string]any:
		b, ok := ours.(map[string]any)
		if !ok {
			t.Errorf("%s is %T, was an object", path, ours)
			return
		}
		for key, v := range a {
			if w, kept := b[key]; kept {
				lost(t, path+"."+key, v, w)
			} else if !empty(v) {
				t.Errorf("%s.%s is lost, was %v", path, key, v)
			}
		}
	case []any:
		b, _ := ours.([]any)
		if len(b) != len(a) {
			t.Errorf("%s has %d elements, had %d", path, len(b), len(a))
			return
		}
		for i := range a {
			lost(t, path+"[]", a[i], b[i])
		}
	}
}

// empty tells whether a JSON value may be left out.
func empty(v any) bool {
	switch v := v.(type) {
	case nil:
		return true
	case map[string]any:
		return len(v) == 0
	case []any:
		return len(v) == 0
	}
	return reflect.ValueOf(v).IsZero()
}

// The binary coding leaves no choice but the order of the fields, which a
// Command keeps: Apache's frames must come out as they went in.
func TestRecordedBinaryFramesByteForByte(t *testing.T) {
	tried := 0
	for _, r := range recordedFrames(t) {
		if r.Coding != "binary" {
			continue
		}
		tried++
		frame, err := os.ReadFile(filepath.Join("testdata", "frames", r.File))
		if err != nil {
			t.Fatal(err)
		}
		var c Command
		if err := c.Decode(frame[4:]); err != nil {
			t.Fatal(err)
		}
		if again := c.AppendTo(nil); !bytes.Equal(again, frame) {
			t.Errorf("%s:\n got %x\nwant %x", r.File, again, frame)
		}
	}
	if tried < 150 {
		t.Errorf("only %d binary frames: the directory is incomplete", tried)
	}
}

// checkRecordedRoute wants our route to be Apache's to the byte, in the strict
// form or the one for old clients.
func checkRecordedRoute(t *testing.T, text []byte) {
	t.Helper()
	var r TopicRouteData
	if err := Unmarshal(text, &r); err != nil {
		t.Fatal(err)
	}
	strict, err := Marshal(&r)
	if err != nil {
		t.Fatal(err)
	}
	old, err := r.AppendFastjson(nil)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(strict, text) && !bytes.Equal(old, text) {
		t.Errorf("route\n%s\nbecomes\n%s\nor\n%s", text, strict, old)
	}
}

func checkRecordedRegistration(t *testing.T, c *Command) {
	t.Helper()
	var h RegisterBrokerRequest
	if err := c.DecodeHeader(&h); err != nil {
		t.Fatal(err)
	}
	if h.BodyCRC32 != 0 && h.BodyCRC32 != BodyCRC32(c.Body) {
		t.Errorf("checksum %d, the body's is %d", h.BodyCRC32, BodyCRC32(c.Body))
	}
	b, err := DecodeRegisterBrokerBody(c.Body, h.Compressed, c.Version)
	if err != nil {
		t.Fatal(err)
	}
	if len(c.Body) > 0 && len(b.TopicConfigSerializeWrapper.TopicConfigTable) == 0 {
		t.Error("a registration without topics")
	}
}
