package broker

import (
	"fmt"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// batchOf is the body of a batch of messages with these bodies.
func batchOf(t *testing.T, texts ...string) []byte {
	t.Helper()
	entries := make([]message.Message, len(texts))
	for i, text := range texts {
		entries[i].Body = []byte(text)
	}
	return batchBody(t, entries...)
}

// propertiesOf is a properties text of exactly n bytes, with a unique key as
// every client sends one.
func propertiesOf(n int, unique bool) string {
	head := ""
	if unique {
		head = message.PropertyUniqueKey + "\x01KEY1\x02"
	}
	head += "long\x01"
	return head + strings.Repeat("v", n-len(head)-1) + "\x02"
}

// TestPropertiesLimit (fault F13): the length field has 15 bits. What fits comes
// back exactly, what does not is refused with 13 and leaves nothing.
func TestPropertiesLimit(t *testing.T) {
	const limit = 32767
	e := start(t, t.TempDir(), nil)
	e.createTopic("single", 1)
	e.createTopic("batch", 1)
	for _, unique := range []bool{true, false} {
		for _, n := range []int{limit + 1, 65536 + 10} {
			e.want(e.send("single", 0, propertiesOf(n, unique), "x"), protocol.MessageIllegal)
		}
		if got := e.offset(protocol.GetMaxOffset, "single", 0); got != 0 {
			t.Fatalf("a refused message took offset %d", got-1)
		}
	}
	for i, unique := range []bool{true, false} {
		e.mustSend("single", 0, propertiesOf(limit, unique), "x")
		e.awaitMax("single", 0, int64(i+1))
		m := e.pullAll("single", 0, int64(i))[0]
		if want := propertiesOf(limit, unique); string(m.Properties) != want {
			t.Errorf("unique %v: properties of %d bytes come back as %d", unique, len(want), len(m.Properties))
		}
		longest := message.Message{Body: []byte("b"), Properties: []byte(propertiesOf(limit, unique))}
		short := message.Message{Body: []byte("a")}
		e.want(e.sendBatch("batch", 0, batchBody(t, short, longest, short)), protocol.Success)
		e.awaitMax("batch", 0, int64(3*i+3))
		got := e.pullAll("batch", 0, int64(3*i))
		if len(got) != 3 || string(got[1].Properties) != string(longest.Properties) {
			t.Errorf("unique %v: the batch of 3 comes back as %d messages, or with other properties", unique, len(got))
		}
	}
	// One byte more than the field can say, in the middle of a batch.
	body := batchOf(t, "a", "b", "c")
	long := append(batchOf(t, "a"), body...)
	entry := batchBody(t, message.Message{Properties: []byte(propertiesOf(limit, true))})
	entry[3]++ // its own length
	entry[20], entry[21] = 0x80, 0x00
	long = append(append(long, entry...), 'v')
	before := e.offset(protocol.GetMaxOffset, "batch", 0)
	e.want(e.sendBatch("batch", 0, long), protocol.MessageIllegal)
	e.mustSend("batch", 0, "", "after")
	e.awaitMax("batch", 0, before+1)
	if got := e.offset(protocol.GetMaxOffset, "batch", 0); got != before+1 {
		t.Errorf("the refused batch left %d messages", got-before-1)
	}
}

// TestBatchKeepsMessagesApart (fault F14): three messages in one request are
// three records of their own, side by side, whether or not the last separator of
// their properties is there.
func TestBatchKeepsMessagesApart(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	for round, end := range []string{"\x02", ""} {
		var entries []message.Message
		for i := range 3 {
			props := fmt.Sprintf("KEYS\x01k%d\x02UNIQ_KEY\x01u%d-%d\x02TAGS\x01tag%d%s", i, round, i, i, end)
			entries = append(entries, message.Message{Flag: int32(i), Body: []byte{'0' + byte(i)}, Properties: []byte(props)})
		}
		h := sendHeader("t", 0, "UNIQ_KEY\x01batch\x02TAGS\x01batch\x02")
		h.Batch = true
		answer := e.call(protocol.SendBatchMessage, h, batchBody(t, entries...))
		e.want(answer, protocol.Success)
		first := int64(3 * round)
		e.awaitMax("t", 0, first+3)
		checkBatch(t, e, answer, first, entries)
		for i := range 3 {
			got := e.pull(pullHeader("t", 0, first, fmt.Sprint("tag", i), 0))
			if len(got.messages) != 1 || got.messages[0].QueueOffset != first+int64(i) {
				t.Errorf("round %d: tag%d matches %q", round, i, bodies(got.messages))
			}
		}
	}
}

// checkBatch compares stored messages with those of a batch and its answer.
func checkBatch(t *testing.T, e *engine, answer *protocol.Command, first int64, entries []message.Message) {
	t.Helper()
	var h protocol.SendMessageResponse
	e.decode(answer, &h)
	ids := strings.Split(h.MsgID, ",")
	stored := e.pullAll("t", 0, first)
	if h.QueueOffset != first || len(ids) != len(entries) || len(stored) != len(entries) {
		t.Fatalf("first offset %d, ids %q, %d messages stored; want %d, %d and %d",
			h.QueueOffset, ids, len(stored), first, len(entries), len(entries))
	}
	for i := range stored {
		m, want := &stored[i], &entries[i]
		if m.QueueOffset != first+int64(i) || string(m.Body) != string(want.Body) || m.Flag != want.Flag {
			t.Errorf("message %d: offset %d, body %q, flag %d", i, m.QueueOffset, m.Body, m.Flag)
		}
		for _, name := range []string{message.PropertyKeys, message.PropertyTags, message.PropertyUniqueKey} {
			if got, _ := want.Property(name); property(m, name) != got {
				t.Errorf("message %d: %s is %q, want %q", i, name, property(m, name), got)
			}
		}
		host, offset, err := message.ParseOffsetID(ids[i])
		if err != nil || host != e.broker.Addr() || offset != m.PhysicalOffset || m.StoreHost != host {
			t.Errorf("message %d: id %s says %v %d (%v), the record %v %d", i, ids[i], host, offset, err, m.StoreHost, m.PhysicalOffset)
		}
		var records spool.Records
		if err := e.spool.ReadAt(offset, &records); err != nil || records.Len() != 1 {
			t.Errorf("message %d: its id does not lead to a record: %v", i, err)
		}
		records.Release()
	}
}

// TestSingleMessageProperties: the broker's own properties are set, whatever the
// client wrote there, and a missing unique key is made.
func TestSingleMessageProperties(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	for _, end := range []string{"\x02", ""} {
		sent := e.mustSend("t", 0, "MSG_REGION\x01mine\x02POP_CK\x01x\x02KEYS\x01a b\x02TAGS\x01tag"+end, "x")
		e.awaitMax("t", 0, sent.QueueOffset+1)
		m := e.pullAll("t", 0, sent.QueueOffset)[0]
		for name, want := range map[string]string{
			"MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "CLUSTER": "DefaultCluster",
			"KEYS": "a b", "TAGS": "tag", "POP_CK": "",
		} {
			if got := property(&m, name); got != want {
				t.Errorf("with %q at the end: %s is %q, want %q", end, name, got, want)
			}
		}
		if property(&m, message.PropertyUniqueKey) == "" {
			t.Errorf("with %q at the end: no unique key", end)
		}
		if _, offset, err := message.ParseOffsetID(sent.MsgID); err != nil || offset != m.PhysicalOffset {
			t.Errorf("id %s: offset %d (%v), the record's is %d", sent.MsgID, offset, err, m.PhysicalOffset)
		}
	}
}

// TestBatchesThatMakeNoSense are refused whole.
func TestBatchesThatMakeNoSense(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	e.createGroup("g")
	whole := batchOf(t, "a", "b")
	for name, body := range map[string][]byte{
		"empty":      nil,
		"torn":       whole[:len(whole)-1],
		"with more":  append(whole[:len(whole):len(whole)], 1, 2, 3),
		"no batch":   []byte("just text, and long enough for a head"),
		"with delay": batchBody(t, message.Message{Body: []byte("a")}, message.Message{Body: []byte("b"), Properties: []byte("DELAY\x013\x02")}),
	} {
		if got := e.sendBatch("t", 0, body); got.ResponseCode() != protocol.MessageIllegal {
			t.Errorf("%s: code is %d %q", name, got.Code, got.Remark)
		}
	}
	// Retries come one by one.
	e.want(e.sendBatch("%RETRY%g", 0, batchOf(t, "a", "b")), protocol.MessageIllegal)
	if st := e.spool.Stats(); st.MaxOffset != st.MinOffset {
		t.Errorf("%d bytes were stored", st.MaxOffset-st.MinOffset)
	}
}
