package broker

import (
	"bytes"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// TestMessageSizeLimit (fault F52): a body of exactly the limit is taken, with
// the longest properties too, and one byte more is not.
func TestMessageSizeLimit(t *testing.T) {
	const limit = 4 << 20
	e := start(t, t.TempDir(), func(_ *Options, so *spool.Options) { so.SegmentBytes = 16 << 20 })
	e.createTopic("t", 1)
	body := filled(limit+1, "large")
	h := sendHeader("t", 0, propertiesOf(32767, true))
	e.want(e.call(protocol.SendMessageV2, h, body), protocol.MessageIllegal)
	e.must(protocol.SendMessageV2, h, body[:limit])
	e.mustSend("t", 0, "", "small")
	e.awaitMax("t", 0, 2)
	// Far above what one answer holds, it comes alone.
	got := e.pull(pullHeader("t", 0, 0, "*", 0))
	if len(got.messages) != 1 || !bytes.Equal(got.messages[0].Body, body[:limit]) || got.header.NextBeginOffset != 1 {
		t.Errorf("code %d, %d messages, next %d", got.code, len(got.messages), got.header.NextBeginOffset)
	}
	// A batch is measured as a whole.
	whole := batchBody(t, message.Message{Body: body[:limit/2]}, message.Message{Body: body[:limit/2]})
	e.want(e.sendBatch("t", 0, whole), protocol.MessageIllegal)
	if got := e.offset(protocol.GetMaxOffset, "t", 0); got != 2 {
		t.Errorf("the queue ends at %d, want 2", got)
	}
}

// TestPullAnswerSize: answers are bounded by messages and by bytes, and go on
// where they ended.
func TestPullAnswerSize(t *testing.T) {
	e := start(t, t.TempDir(), func(_ *Options, so *spool.Options) { so.Flush = spool.FlushAsync })
	e.createTopic("t", 2)
	for range 50 {
		e.mustSend("t", 0, "", "x")
	}
	for range 8 {
		e.mustSend("t", 1, "", string(filled(60<<10, "y")))
	}
	e.awaitMax("t", 0, 50)
	e.awaitMax("t", 1, 8)
	for asked, want := range map[int32]int{-1: 1, 0: 1, 1: 1, 5: 5, 32: 32, 1000: 32} {
		h := pullHeader("t", 0, 0, "*", 0)
		h.MaxMsgNums = asked
		if got := e.pull(h); len(got.messages) != want || got.header.NextBeginOffset != int64(want) {
			t.Errorf("asked for %d: %d messages, next %d; want %d", asked, len(got.messages), got.header.NextBeginOffset, want)
		}
	}
	if got := e.pull(pullHeader("t", 1, 0, "*", 0)); len(got.messages) != 4 || got.header.NextBeginOffset != 4 {
		t.Errorf("large messages: %d in one answer, next %d; want 4", len(got.messages), got.header.NextBeginOffset)
	}
	if all := e.pullAll("t", 1, 0); len(all) != 8 {
		t.Errorf("%d large messages in all, want 8", len(all))
	}
}

// TestCompressedBodyIsKept (fault F52): the broker neither unpacks nor packs, and
// keeps the flag that says how.
func TestCompressedBodyIsKept(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	for i, kind := range []message.SysFlag{message.CompressionZlib, message.CompressionLZ4, message.CompressionZstd} {
		packed, err := message.Compress(kind, filled(5000, "text"))
		if err != nil {
			t.Fatal(err)
		}
		h := sendHeader("t", 0, "")
		h.SysFlag = int32(message.Compressed | kind)
		e.must(protocol.SendMessageV2, h, packed)
		e.awaitMax("t", 0, int64(i+1))
		m := e.pullAll("t", 0, int64(i))[0]
		if !bytes.Equal(m.Body, packed) || m.SysFlag != message.Compressed|kind {
			t.Errorf("kind %#x: body of %d bytes, flag %#x; want %d, %#x", kind, len(m.Body), m.SysFlag, len(packed), message.Compressed|kind)
		}
		if text, err := message.Decompress(m.SysFlag, m.Body, 1<<20); err != nil || !bytes.Equal(text, filled(5000, "text")) {
			t.Errorf("kind %#x: %v", kind, err)
		}
	}
}
