package sidecar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/upstream"
)

// upstreamOf starts a sidecar whose upstream takes everything.
func upstreamOf(t *testing.T, change func(*setup)) (*instance, *script) {
	t.Helper()
	up := newScript(nil)
	return start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, change), up
}

func TestPostTakesAttributesFromHeadersAndQuery(t *testing.T) {
	s, up := upstreamOf(t, oneQueue(10))
	due := time.Now().Add(time.Hour).UTC().Truncate(time.Second)
	binary := "a\x00b\xff\xfe" // bodies are bytes
	stored := s.must("orders", binary, "X-Sluice-Id", "ID-1", "X-Sluice-Key", "k1 k2", "X-Sluice-Tag", "red",
		"X-Sluice-Ordering-Key", "truck 7", "X-Sluice-Delay", due.Format(time.RFC3339), "Content-Type", "application/json")
	if want := (StoredMessage{ID: "ID-1", Queue: 0, Offset: 0}); stored != want {
		t.Errorf("answer is %+v, want %+v", stored, want)
	}
	status, text := s.post("/v1/topics/orders/messages?id=ID-2&key=k3&tag=blue&ordering_key=truck%208&delay=90s", "", "second", "X-Sluice-Tag", "green")
	if status != http.StatusOK || !strings.Contains(text, `"ID-2"`) {
		t.Fatalf("post with a query: %d %s", status, text)
	}
	up.has(t, "orders/0", 2)
	got := up.of("orders/0")
	if got[0].body != binary || got[0].key != "ID-1" {
		t.Errorf("upstream has %q with key %q", got[0].body, got[0].key)
	}
	for i, want := range []map[string]string{
		{"KEYS": "k1 k2", "TAGS": "red", message.PropertyShardingKey: "truck 7", message.PropertyTimerDeliverMillis: fmt.Sprint(due.UnixMilli())},
		{"KEYS": "k3", "TAGS": "green", message.PropertyShardingKey: "truck 8"}, // the header wins
	} {
		for name, value := range want {
			if got[i].props[name] != value {
				t.Errorf("message %d: property %s is %q, want %q", i, name, got[i].props[name], value)
			}
		}
	}
	// A delay counts from the moment the message was taken, however long the
	// upstream is away.
	at, err := strconv.ParseInt(got[1].props[message.PropertyTimerDeliverMillis], 10, 64)
	if off := time.Until(time.UnixMilli(at)); err != nil || off > 90*time.Second || off < 30*time.Second {
		t.Errorf("a delay of 90s is due in %v (%v)", off, err)
	}
}

func TestPostMakesAUniqueKeyOfItsOwn(t *testing.T) {
	s, up := upstreamOf(t, oneQueue(10))
	first, second := s.must("orders", "a"), s.must("orders", "b")
	if first.ID == "" || first.ID == second.ID {
		t.Fatalf("ids are %q and %q", first.ID, second.ID)
	}
	up.has(t, "orders/0", 2)
	for i, m := range up.of("orders/0") {
		if want := []string{first.ID, second.ID}[i]; m.key != want {
			t.Errorf("message %d has key %q upstream, the producer was told %q", i, m.key, want)
		}
	}
}

func TestLinesTakeEveryFormOfBody(t *testing.T) {
	s, up := upstreamOf(t, oneQueue(10))
	batch := strings.Join([]string{
		`{"body":"text \u00e9"}`,
		``,
		`{"body":{"a": [1,2]},"key":"k","tag":"t","id":"ID","properties":{"site":"A 7"}}`,
		`{"body":12.50}`,
		"  {\"body_base64\":\"AP8=\"}\r",
		`{"body":""}`,
	}, "\n")
	status, text := s.post("/v1/topics/orders/messages", "application/x-ndjson; charset=utf-8", batch)
	if status != http.StatusOK {
		t.Fatalf("%d %s", status, text)
	}
	up.has(t, "orders/0", 5)
	up.wantBodies(t, "orders/0", 1, []string{"text é", `{"a": [1,2]}`, "12.50", "\x00\xff", ""})
	m := up.of("orders/0")[1]
	if m.key != "ID" || m.props["KEYS"] != "k" || m.props["TAGS"] != "t" || m.props["site"] != "A 7" {
		t.Errorf("the second line has key %q and properties %v", m.key, m.props)
	}
	var answer struct{ Messages []StoredMessage }
	if err := json.Unmarshal([]byte(text), &answer); err != nil || len(answer.Messages) != 5 {
		t.Fatalf("answer %s: %v", text, err)
	}
	for i, a := range answer.Messages {
		if a.ID != up.of("orders/0")[i].key || a.Offset != int64(i) {
			t.Errorf("line %d is answered with %+v", i, a)
		}
	}
}

// TestBadPostsAreRefusedWhole sends what is wrong in one place; nothing of it
// may be stored, and the answer names the place.
func TestBadPostsAreRefusedWhole(t *testing.T) {
	s, up := upstreamOf(t, func(o *setup) {
		oneQueue(10)(o)
		o.MaxMessage, o.HTTP.MaxBody = 10_000, 50_000
	})
	lines := func(bad string) string {
		return "{\"body\":\"good\"}\n{\"body\":\"good\"}\n" + bad + "\n{\"body\":\"good\"}"
	}
	const ndjson = "application/x-ndjson"
	for name, tt := range map[string]struct {
		kind, body, query string
		status            int
		says              string
	}{
		"no JSON":            {ndjson, lines(`{"body":`), "", 400, "line 3"},
		"unknown field":      {ndjson, lines(`{"body":"x","tga":"t"}`), "", 400, `line 3: json: unknown field "tga"`},
		"two values":         {ndjson, lines(`{"body":"x"}{"body":"y"}`), "", 400, "line 3"},
		"no body":            {ndjson, lines(`{"key":"x"}`), "", 400, "line 3: there is neither body nor body_base64"},
		"two bodies":         {ndjson, lines(`{"body":"x","body_base64":"eA=="}`), "", 400, "line 3"},
		"bad base64":         {ndjson, lines(`{"body_base64":"%%%"}`), "", 400, "line 3: body_base64"},
		"reserved property":  {ndjson, lines(`{"body":"x","properties":{"UNIQ_KEY":"a"}}`), "", 400, "UNIQ_KEY"},
		"separator in value": {ndjson, lines(`{"body":"x","properties":{"a":"b\u0002c"}}`), "", 400, "line 3"},
		"separator in name":  {ndjson, lines(`{"body":"x","properties":{"a\u0001":"b"}}`), "", 400, "line 3"},
		"bad delay":          {ndjson, lines(`{"body":"x","delay":"soon"}`), "", 400, `delay "soon"`},
		"negative delay":     {"", "x", "?delay=-5s", 400, `delay "-5s"`},
		"property no text":   {ndjson, lines(`{"body":"x","properties":{"a":1}}`), "", 400, "line 3: properties: want a string, have number"},
		"tag no text":        {ndjson, lines(`{"body":"x","tag":["a"]}`), "", 400, "line 3: tag: want a string, have array"},
		"no object":          {ndjson, lines(`[1]`), "", 400, "line 3: want an object, have array"},
		"query of a batch":   {ndjson, lines(`{"body":"x"}`), "?tag=t", 400, "attributes of a batch are in its lines"},
		"unknown attribute":  {"", "x", "?orderingkey=k", 400, `query parameter "orderingkey": known are id, key, tag, ordering_key, delay`},
		"broken query":       {"", "x", "?key=%zz", 400, "query: "},
		"no lines":           {ndjson, "\n\n", "", 400, "no line"},
		"separator in key":   {"", "x", "?key=a%01b", 400, "0x01"},
		"message too big":    {"", strings.Repeat("x", 10_001), "", 413, "10001 bytes is over the limit of 10000"},
		"one line too big":   {ndjson, lines(`{"body":"` + strings.Repeat("x", 10_001) + `"}`), "", 413, "over the limit of 10000"},
		"request too big":    {"", strings.Repeat("x", 50_001), "", 413, "50000"},
		"properties too big": {"", "x", "?key=" + strings.Repeat("k", 33_000), 400, "propert"},
	} {
		t.Run(name, func(t *testing.T) {
			status, text := s.post("/v1/topics/orders/messages"+tt.query, tt.kind, tt.body)
			var answer struct {
				Error string
				Code  int
			}
			err := json.Unmarshal([]byte(text), &answer)
			if err != nil || status != tt.status || !strings.Contains(answer.Error, tt.says) {
				t.Errorf("answer is %d %s, want %d with %q", status, text, tt.status, tt.says)
			}
			if answer.Code != int(protocol.MessageIllegal) {
				t.Errorf("code is %d, want 13", answer.Code)
			}
		})
	}
	s.must("orders", "last")
	up.has(t, "orders/0", 1)
	up.wantBodies(t, "orders/0", 1, []string{"last"})
	if at := up.of("orders/0")[0].offset; at != 0 {
		t.Errorf("refused messages took %d offsets", at)
	}
}

func TestMisspeltHeaderIsRefused(t *testing.T) {
	s, _ := upstreamOf(t, oneQueue(10))
	status, text := s.post("/v1/topics/orders/messages", "", "x", "X-Sluice-OrderingKey", "k")
	if status != http.StatusBadRequest || !strings.Contains(text, "header X-Sluice-Orderingkey: known are") {
		t.Errorf("answer is %d %s, want 400", status, text)
	}
}

// TestBadTopicNamesReachNoFile is fault F59 for both doors: no name leads
// outside of the store.
func TestBadTopicNamesReachNoFile(t *testing.T) {
	dir := t.TempDir()
	inside := filepath.Join(dir, "store")
	s := start(t, inside, map[string]upstream.Sender{"up": newScript(nil)}, nil)
	for _, name := range []string{
		"../x", "..", ".", "/etc/x", "a/b", `a\b`, "a\x00b", strings.Repeat("x", 128), "a b", "ümlaut", "a.b", "*", "#",
	} {
		escaped := pathEscape(name)
		status, text := s.post("/v1/topics/"+escaped+"/messages", "", "x")
		if status != http.StatusBadRequest {
			t.Errorf("HTTP: topic %q is answered %d %s, want 400", name, status, text)
		}
		h := protocol.SendMessageRequestV2{ProducerGroup: []byte("p"), Topic: []byte(name), DefaultTopic: []byte(message.TopicAutoCreate), DefaultTopicQueueNums: 4}
		if answer := s.request(protocol.SendMessageV2, &h, []byte("x")); answer.ResponseCode() == protocol.Success {
			t.Errorf("RocketMQ: a message to topic %q is stored", name)
		}
		if answer := s.request(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: name}, nil); answer.ResponseCode() != protocol.TopicNotExist {
			t.Errorf("RocketMQ: a route of topic %q is answered with code %d", name, answer.Code)
		}
	}
	for _, name := range []string{"RMQ_SYS_TRANS_HALF_TOPIC", "SCHEDULE_TOPIC_XXXX"} {
		if status, text := s.post("/v1/topics/"+name+"/messages", "", "x"); status != http.StatusForbidden {
			t.Errorf("HTTP: system topic %q is answered %d %s, want 403", name, status, text)
		}
	}
	entries, err := os.ReadDir(dir)
	if err != nil || len(entries) != 1 {
		t.Errorf("beside the store there are %v (%v)", entries, err)
	}
	queues, err := os.ReadDir(filepath.Join(inside, "consumequeue"))
	for _, q := range queues {
		if err := message.ValidateTopic(q.Name()); err != nil {
			t.Errorf("the store has a queue of topic %q: %v", q.Name(), err)
		}
	}
	if err != nil {
		t.Error(err)
	}
}

// pathEscape escapes every byte, so that nothing on the way cleans the path.
func pathEscape(name string) string {
	var b strings.Builder
	for _, c := range []byte(name) {
		fmt.Fprintf(&b, "%%%02X", c)
	}
	return b.String()
}

func TestOrderingKeyChoosesTheQueueAsJavaDoes(t *testing.T) {
	up := newScript(nil)
	up.queues["orders"] = 16
	s := start(t, t.TempDir(), map[string]upstream.Sender{"up": up}, nil)
	// key.hashCode() % 16, made positive, as SelectMessageQueueByHash computes it.
	for key, want := range map[string]int32{"truck-7": 7, "truck-8": 6, "polygenelubricants": 0, "JFK": 15, "SFO": 12, "Aa": 0, "BB": 0} {
		if got := s.must("orders", "x", "X-Sluice-Ordering-Key", key).Queue; got != want {
			t.Errorf("HTTP: key %q goes to queue %d, want %d", key, got, want)
		}
		if got := s.mustLines("orders", key, "a", "b")[1].Queue; got != want {
			t.Errorf("NDJSON: key %q goes to queue %d, want %d", key, got, want)
		}
	}
	seen := map[int32]bool{}
	for range 400 {
		seen[s.must("orders", "x").Queue] = true
	}
	if len(seen) < 12 {
		t.Errorf("400 messages without an ordering key went to %d of 16 queues", len(seen))
	}
}

func TestOtherMethodsAndPathsAreNotServed(t *testing.T) {
	s, _ := upstreamOf(t, nil)
	for path, want := range map[string]int{"/": 404, "/v1/topics/orders/messages": 405, "/v1/topics": 404} {
		if status, text := s.get(path); status != want {
			t.Errorf("GET %s is answered %d %s, want %d", path, status, text, want)
		}
	}
	if status, _ := s.post("/healthz", "", ""); status != http.StatusMethodNotAllowed {
		t.Errorf("POST /healthz is answered %d", status)
	}
}
