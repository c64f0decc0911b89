package namesrv

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

// TestRestartedNameServer (fault F66): it says that it is not ready for as long
// as it was told to, and learns everything from the brokers' next registration.
func TestRestartedNameServer(t *testing.T) {
	waiting := start(t, Options{WaitForBrokers: time.Hour})
	p := connect(t, waiting)
	p.must(protocol.RegisterBroker, header("broker-a", "10.0.0.1:10911"), topicsBody(1, "t1", "t2"))
	p.want(protocol.SystemError, "name server not ready", p.route("t1", protocol.CurrentVersion, false))

	ready := start(t, Options{WaitForBrokers: time.Nanosecond})
	p = connect(t, ready)
	p.wantNoRoute("t1")
	p.must(protocol.RegisterBroker, header("broker-a", "10.0.0.1:10911"), topicsBody(1, "t1", "t2"))
	if err := p.route("t1", protocol.CurrentVersion, false).Err(); err != nil {
		t.Error(err)
	}
}

// TestRouteFormByVersion (fault F67): old clients get fastjson's form, newer
// ones and those that ask for it strict JSON.
func TestRouteFormByVersion(t *testing.T) {
	n := start(t, Options{})
	p := connect(t, n)
	p.must(protocol.RegisterBroker, header("broker-a", "10.0.0.1:10911"), topicsBody(1, "t1", "t2"))
	for _, c := range []struct {
		version  int32
		standard bool
		want     string
	}{
		{317, false, `"brokerAddrs":{0:"10.0.0.1:10911"}`},
		{400, false, `"brokerAddrs":{0:"10.0.0.1:10911"}`},
		{317, true, `"brokerAddrs":{"0":"10.0.0.1:10911"}`},
		{401, false, `"brokerAddrs":{"0":"10.0.0.1:10911"}`},
	} {
		if body := p.route("t1", c.version, c.standard).Body; !bytes.Contains(body, []byte(c.want)) {
			t.Errorf("version %d, standard %v: %s", c.version, c.standard, body)
		}
	}
}

// compressedBody writes a registration in the compressed form by hand.
func compressedBody(t *testing.T, version int32) []byte {
	t.Helper()
	var plain bytes.Buffer
	section := func(s string) {
		plain.Write(binary.BigEndian.AppendUint32(nil, uint32(len(s))))
		plain.WriteString(s)
	}
	section(`{"counter":3,"stateVersion":0,"timestamp":1700000000000}`)
	plain.Write([]byte{0, 0, 0, 2})
	attributes := ""
	if version >= protocol.Version5_0_0 {
		attributes = " {}"
	}
	section("t1 4 5 6 SINGLE_TAG" + attributes)
	section("t2 8 8 6 MULTI_TAG" + attributes)
	section("[]")
	if version >= protocol.Version5_0_0 {
		plain.Write([]byte{0, 0, 0, 0})
	}
	var out bytes.Buffer
	z, err := zlib.NewWriterLevel(&out, zlib.BestCompression)
	if err != nil {
		t.Fatal(err)
	}
	if _, err := z.Write(plain.Bytes()); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

// TestRegistrationForms (fault F67): brokers from before 3.0.11 to today, plain
// and compressed, with and without checksum.
func TestRegistrationForms(t *testing.T) {
	plain := topicsBody(1, "t1", "t2")
	table := plain[strings.Index(plain, `{"dataVersion"`) : len(plain)-1]
	for name, c := range map[string]struct {
		version    int32
		compressed bool
		body       string
	}{
		"3.0.8 topic table":    {30, false, table},
		"4.4 plain":            {287, false, plain},
		"4.9 compressed":       {399, true, string(compressedBody(t, 399))},
		"5.x compressed":       {protocol.CurrentVersion, true, string(compressedBody(t, protocol.CurrentVersion))},
		"5.x plain":            {protocol.CurrentVersion, false, plain},
		"unquoted and trailer": {399, false, strings.Replace(plain, `"filterServerList":[]`, `"filterServerList":null,"unknown":{1:"x"}`, 1)},
	} {
		t.Run(name, func(t *testing.T) {
			n := start(t, Options{})
			p := connect(t, n)
			h := header("broker-a", "10.0.0.1:10911")
			h.Compressed = c.compressed
			register := func(crc int32) *protocol.Command {
				h.BodyCRC32 = crc
				q := protocol.NewRequest(protocol.RegisterBroker, h, []byte(c.body))
				q.Version = c.version
				return p.send(q)
			}
			crc := protocol.BodyCRC32([]byte(c.body))
			p.want(protocol.SystemError, "crc32 not match", register(crc^1))
			p.wantNoRoute("t1")
			for _, sum := range []int32{0, crc} {
				if err := register(sum).Err(); err != nil {
					t.Fatal(err)
				}
			}
			if got := n.routes.Topics(); len(got) != 2 {
				t.Errorf("topics %v", got)
			}
		})
	}
}

func TestRegistrationWithoutBody(t *testing.T) {
	n := start(t, Options{})
	p := connect(t, n)
	p.must(protocol.RegisterBroker, header("broker-a", "10.0.0.1:10911"), "")
	if v, known := n.routes.DataVersion("c1", "10.0.0.1:10911"); !known || v != (protocol.DataVersion{}) {
		t.Errorf("%+v %v", v, known)
	}
}

func TestMalformedRegistrationsAreRefused(t *testing.T) {
	n := start(t, Options{})
	p := connect(t, n)
	good := topicsBody(1, "t1", "t2")
	for name, c := range map[string]struct {
		change func(*protocol.RegisterBrokerRequest)
		body   string
	}{
		"cluster":          {func(h *protocol.RegisterBrokerRequest) { h.ClusterName = "../x" }, good},
		"broker name":      {func(h *protocol.RegisterBrokerRequest) { h.BrokerName = "a/b" }, good},
		"address":          {func(h *protocol.RegisterBrokerRequest) { h.BrokerAddr = "nowhere" }, good},
		"id":               {func(h *protocol.RegisterBrokerRequest) { h.BrokerID = -1 }, good},
		"zone":             {func(h *protocol.RegisterBrokerRequest) { h.ZoneName = "a\x00b" }, good},
		"HA address":       {func(h *protocol.RegisterBrokerRequest) { h.HAServerAddr = strings.Repeat("x", 300) }, good},
		"body":             {func(*protocol.RegisterBrokerRequest) {}, "{"},
		"compressed body":  {func(h *protocol.RegisterBrokerRequest) { h.Compressed = true }, good},
		"compressed bombs": {func(h *protocol.RegisterBrokerRequest) { h.Compressed = true }, bomb(t)},
	} {
		h := header("broker-a", "10.0.0.1:10911")
		c.change(h)
		if resp := p.call(protocol.RegisterBroker, h, c.body); resp.ResponseCode() != protocol.SystemError || resp.Remark == "" || len(resp.Remark) > 1000 {
			t.Errorf("%s: %v %.200q", name, resp.ResponseCode(), resp.Remark)
		}
	}
	if len(n.routes.live) != 0 {
		t.Error("something was registered")
	}
}

// bomb unfolds to 100 MiB.
func bomb(t *testing.T) string {
	t.Helper()
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	zeros := make([]byte, 1<<20)
	for range 100 {
		if _, err := z.Write(zeros); err != nil {
			t.Fatal(err)
		}
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.String()
}

// TestBadTopicsAreSkipped (fault F59): one bad topic does not cost the others.
func TestBadTopicsAreSkipped(t *testing.T) {
	n := start(t, Options{})
	p := connect(t, n)
	body := topicsBody(1, "good", "../../../fuzz2019", "a/b", "broker.a", "%RETRY%g+good", strings.Repeat("x", 128))
	body = strings.Replace(body, `"topicConfigTable":{`, `"topicConfigTable":{"absurd":{"topicName":"absurd","readQueueNums":4,"writeQueueNums":2147483647,"perm":6},`, 1)
	p.must(protocol.RegisterBroker, header("broker.a", "10.0.0.1:10911"), body)
	if got := n.routes.Topics(); strings.Join(got, " ") != "%RETRY%g+good broker.a good" {
		t.Errorf("topics %q", got)
	}
	p.want(protocol.SystemError, "illegal name", p.call(protocol.RegisterTopicInNameServer, &protocol.RegisterTopicRequest{Topic: "a/b"}, `{"queueDatas":[]}`))
	for _, topic := range []string{"../x", "a/b", "a\x00b", strings.Repeat("x", 5000)} {
		if resp := p.route(topic, protocol.CurrentVersion, false); resp.ResponseCode() != protocol.TopicNotExist || len(resp.Remark) > 1000 {
			t.Errorf("route of %.20q: %v, remark of %d bytes", topic, resp.ResponseCode(), len(resp.Remark))
		}
	}
}

// TestManyTopics (fault F53): a table of 100 000 topics arrives in parts, and an
// answer that no frame can hold is an error, not a dead connection.
func TestManyTopics(t *testing.T) {
	n := start(t, Options{})
	p := connect(t, n)
	const parts, size = 10, 10_000
	for i := range parts {
		topics := make([]string, size)
		for j := range topics {
			topics[j] = fmt.Sprintf("topic-%0100d", i*size+j)
		}
		p.must(protocol.RegisterBroker, header("broker-a", "10.0.0.1:10911"), topicsBody(i, topics...))
	}
	var list protocol.TopicList
	if err := protocol.Unmarshal(p.must(protocol.GetAllTopicListFromNameServer, nil, "").Body, &list); err != nil || len(list.TopicList) != parts*size {
		t.Errorf("%d topics, %v", len(list.TopicList), err)
	}
	if _, err := answerBytes(nil, make([]byte, maxAnswer+1)); protocol.AsError(err).Code != protocol.SystemError ||
		!strings.Contains(err.Error(), "more than the") {
		t.Errorf("an answer beyond the frame limit: %v", err)
	}
	if resp, err := answerBytes(nil, make([]byte, maxAnswer)); err != nil || len(resp.AppendTo(nil)) > remoting.DefaultMaxFrame {
		t.Errorf("the longest answer: %v", err)
	}
}
