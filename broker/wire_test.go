package broker

import (
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"slices"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool"
)

// wire is a bare connection: what is written to it arrives as it is.
type wire struct {
	t *testing.T
	net.Conn
}

func (e *engine) dial(t *testing.T) *wire {
	t.Helper()
	conn, err := net.Dial("tcp", e.addr)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if err := conn.SetDeadline(time.Now().Add(patience)); err != nil {
		t.Fatal(err)
	}
	return &wire{t, conn}
}

func (w *wire) write(frames []byte) {
	w.t.Helper()
	if _, err := w.Write(frames); err != nil {
		w.t.Fatal(err)
	}
}

// read takes the next answer.
func (w *wire) read() *protocol.Command {
	w.t.Helper()
	var length [4]byte
	if _, err := io.ReadFull(w, length[:]); err != nil {
		w.t.Fatal(err)
	}
	frame := make([]byte, binary.BigEndian.Uint32(length[:]))
	if _, err := io.ReadFull(w, frame); err != nil {
		w.t.Fatal(err)
	}
	answer := new(protocol.Command)
	if err := answer.Decode(frame); err != nil {
		w.t.Fatal(err)
	}
	if !answer.IsResponse() {
		w.t.Fatalf("got a request: %+v", answer)
	}
	return answer
}

// burst collects frames for one write, and what each is to be answered with.
type burst struct {
	frames []byte
	want   map[int32]protocol.ResponseCode // by opaque
}

func (b *burst) add(req *protocol.Command, want protocol.ResponseCode) {
	req.Opaque = int32(1000 + 7*len(b.want))
	b.frames = req.AppendTo(b.frames)
	b.want[req.Opaque] = want
}

func sendRequest(topic string, queue int32, props string, body []byte) *protocol.Command {
	return protocol.NewRequest(protocol.SendMessageV2, sendHeader(topic, queue, props), body)
}

// TestMixedBurst: requests that arrive together, good and bad, of both codings
// and of all kinds, are each answered once with their own opaque and code, and
// just the good sends are stored, in order.
func TestMixedBurst(t *testing.T) {
	e := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.MaxMessageBytes = 1000 })
	e.createTopic("t", 1)
	b := burst{want: map[int32]protocol.ResponseCode{}}
	var stored []string
	for i := range 100 {
		name := fmt.Sprint(i)
		coding := protocol.Coding(i % 2)
		for _, c := range []struct {
			req  *protocol.Command
			want protocol.ResponseCode
		}{
			{sendRequest("t", 0, "", []byte(name)), protocol.Success},
			{sendRequest("t", 7, "", []byte(name)), protocol.InvalidParameter},
			{sendRequest("SELF_TEST_TOPIC", 0, "", []byte(name)), protocol.NoPermission},
			{sendRequest("t", 0, "DELAY\x011\x02", []byte(name)), protocol.MessageIllegal},
			{sendRequest("t", 0, "", filled(1001, name)), protocol.MessageIllegal},
			{sendRequest("../t", 0, "", []byte(name)), protocol.InvalidParameter},
			{protocol.NewRequest(protocol.SendMessageV2, nil, []byte(name)), protocol.InvalidParameter},
			{protocol.NewRequest(31999, nil, []byte(name)), protocol.RequestCodeNotSupported},
			{protocol.NewRequest(protocol.PullMessage, pullHeader("none", 0, 0, "*", time.Hour), nil), protocol.TopicNotExist},
			{protocol.NewRequest(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: "t"}, nil), protocol.Success},
			{protocol.NewRequest(protocol.UnregisterClient, &protocol.UnregisterClientRequest{ClientID: "c"}, nil), protocol.Success},
		} {
			c.req.Coding = coding
			b.add(c.req, c.want)
		}
		one := sendRequest("t", 0, "", []byte(name+" one way"))
		one.SetOneWay()
		one.Opaque = 5
		b.frames = one.AppendTo(b.frames)
		stored = append(stored, name, name+" one way")
	}
	w := e.dial(t)
	w.write(b.frames)
	for range len(b.want) {
		answer := w.read()
		want, ok := b.want[answer.Opaque]
		if !ok {
			t.Fatalf("opaque %d is answered twice, or nobody's", answer.Opaque)
		}
		delete(b.want, answer.Opaque)
		if answer.ResponseCode() != want {
			t.Errorf("opaque %d: code %d %q, want %d", answer.Opaque, answer.Code, answer.Remark, want)
		}
		if want != protocol.Success && answer.Remark == "" {
			t.Errorf("opaque %d: code %d without a reason", answer.Opaque, answer.Code)
		}
	}
	e.awaitMax("t", 0, int64(len(stored)))
	if got := bodies(e.pullAll("t", 0, 0)); !slices.Equal(got, stored) {
		t.Errorf("stored are %d messages, want %d in their order", len(got), len(stored))
	}
	if got := e.broker.Totals(); got.Stored != 200 || got.Refused != 600 || got.StoredBytes < 200*91 {
		t.Errorf("counted: %+v", got)
	}
}

// TestOneWayRequests get no answer, whatever becomes of them.
func TestOneWayRequests(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	e.createGroup("g")
	w := e.dial(t)
	var frames []byte
	for _, req := range []*protocol.Command{
		sendRequest("t", 0, "", []byte("stored")),
		sendRequest("t", 9, "", []byte("refused")),
		protocol.NewRequest(protocol.SendMessageV2, nil, nil),
		protocol.NewRequest(31999, nil, nil),
		protocol.NewRequest(protocol.PullMessage, pullHeader("t", 0, 0, "*", 0), nil),
		protocol.NewRequest(protocol.PullMessage, pullHeader("none", 0, 0, "*", 0), nil),
		protocol.NewRequest(protocol.UpdateConsumerOffset, &protocol.UpdateConsumerOffsetRequest{ConsumerGroup: "g", Topic: "t", CommitOffset: 1}, nil),
		protocol.NewRequest(protocol.GetBrokerConfig, nil, nil),
		protocol.NewRequest(protocol.Heartbeat, nil, []byte("{")),
	} {
		req.SetOneWay()
		req.Opaque = 1
		frames = req.AppendTo(frames)
	}
	last := protocol.NewRequest(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: "t"}, nil)
	last.Opaque = 2
	w.write(last.AppendTo(frames))
	if answer := w.read(); answer.Opaque != 2 {
		t.Errorf("an answer to opaque %d", answer.Opaque)
	}
	e.awaitMax("t", 0, 1)
	if got := bodies(e.pullAll("t", 0, 0)); !slices.Equal(got, []string{"stored"}) {
		t.Errorf("stored are %q", got)
	}
	if got, ok := e.committed("t", "g", 0, protocol.Some(false)); !ok || got != 1 {
		t.Errorf("committed: %d %v", got, ok)
	}
}

// TestBinaryHeaders: clients that write binary headers are answered in kind,
// also when their pull was held.
func TestBinaryHeaders(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	w := e.dial(t)
	binaryOf := func(req *protocol.Command, opaque int32) []byte {
		req.Coding, req.Opaque = protocol.Binary, opaque
		return req.AppendTo(nil)
	}
	w.write(binaryOf(protocol.NewRequest(protocol.PullMessage, pullHeader("t", 0, 0, "*", time.Hour), nil), 1))
	v1 := protocol.SendMessageRequest(*sendHeader("t", 0, "KEYS\x01k\x02"))
	w.write(binaryOf(protocol.NewRequest(protocol.SendMessage, &v1, []byte("text")), 2))
	answers := map[int32]*protocol.Command{}
	for range 2 {
		answer := w.read()
		answers[answer.Opaque] = answer
		if answer.Coding != protocol.Binary || answer.Code != 0 {
			t.Errorf("opaque %d: coding %v, code %d %q", answer.Opaque, answer.Coding, answer.Code, answer.Remark)
		}
	}
	got := e.decodePull(answers[1])
	if len(got.messages) != 1 || string(got.messages[0].Body) != "text" || property(&got.messages[0], "KEYS") != "k" {
		t.Errorf("pulled: %+v", got)
	}
	var h protocol.SendMessageResponse
	e.decode(answers[2], &h)
	if h.QueueOffset != 0 || h.MsgID == "" {
		t.Errorf("sent: %+v", h)
	}
	w.write(binaryOf(sendRequest("t", 9, "", []byte("refused")), 3))
	if answer := w.read(); answer.Coding != protocol.Binary || answer.ResponseCode() != protocol.InvalidParameter || len(answer.Fields) == 0 {
		t.Errorf("refused: %+v", answer)
	}
}

// TestRefusedSendsCarryFields: Java clients read the fields of every answer to a
// send, so none comes without.
func TestRefusedSendsCarryFields(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	for _, answer := range []*protocol.Command{
		e.send("t", 9, "", "x"), e.send("", 0, "", "x"), e.sendBatch("t", 0, nil), e.call(protocol.SendMessage, nil, nil),
	} {
		if region, _ := answer.Fields.Get("MSG_REGION"); answer.Code == 0 || string(region) != "DefaultRegion" {
			t.Errorf("code %d %q, region %q", answer.Code, answer.Remark, region)
		}
	}
}
