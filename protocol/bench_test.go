package protocol

import (
	"encoding/binary"
	"strconv"
	"testing"
)

// loadFrame is a send of 1 KiB as the project's load generator frames it,
// without the length word.
func loadFrame() []byte {
	h := []byte(`{"code":310,"flag":0,"language":"GO","opaque":`)
	h = strconv.AppendInt(h, 123456, 10)
	h = append(h, `,"serializeTypeCurrentRPC":"JSON","version":401,"extFields":{"a":"load","b":"load-topic","c":"TBW102","d":"4","e":"3","f":"0","g":"1764400000000","h":"0","i":"UNIQ_KEY\u00018af31c2200000001000000000001E240\u0002WAIT\u0001true\u0002TAGS\u0001T\u0002","j":"0","k":"false","m":"false"}}`...)
	f := binary.BigEndian.AppendUint32(nil, uint32(len(h)))
	f = append(f, h...)
	return append(f, make([]byte, 1024)...)
}

// pullFrame is a pull as a Java client frames it, without the length word.
func pullFrame() []byte {
	h := []byte(`{"code":11,"extFields":{"queueId":"3","maxMsgNums":"32","sysFlag":"6","commitOffset":"0","suspendTimeoutMillis":"15000","topic":"load-topic","queueOffset":"4711","expressionType":"TAG","subVersion":"1764400000000","consumerGroup":"load-group","subscription":"*","bname":"broker-a"},"flag":0,"language":"JAVA","opaque":77,"serializeTypeCurrentRPC":"JSON","version":479}`)
	return append(binary.BigEndian.AppendUint32(nil, uint32(len(h))), h...)
}

func BenchmarkDecodeSend(b *testing.B) {
	frame := loadFrame()
	var c Command
	var h SendMessageRequest
	b.Run("frame", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Decode(frame); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("header", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := h.DecodeSend(&c); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func BenchmarkDecodePull(b *testing.B) {
	frame := pullFrame()
	var c Command
	var h PullMessageRequest
	b.Run("frame", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := c.Decode(frame); err != nil {
				b.Fatal(err)
			}
		}
	})
	b.Run("header", func(b *testing.B) {
		b.ReportAllocs()
		for b.Loop() {
			if err := c.DecodeHeader(&h); err != nil {
				b.Fatal(err)
			}
		}
	})
}

func appendSendResponse(dst []byte, coding Coding, id []byte) []byte {
	w := BeginFrame(dst, coding, int32(Success), 1, 123456, "")
	w.Bytes("msgId", id)
	w.Int("queueId", 3)
	w.Int("queueOffset", 123456789)
	w.String("MSG_REGION", "DefaultRegion")
	w.String("TRACE_ON", "true")
	return w.End(w.BeginBody())
}

func BenchmarkSendResponse(b *testing.B) {
	buf := make([]byte, 0, 4096)
	id := []byte("C0A8016400002A9F00000000000A1B2C")
	for _, coding := range []Coding{JSON, Binary} {
		b.Run(coding.String(), func(b *testing.B) {
			b.ReportAllocs()
			for b.Loop() {
				buf = appendSendResponse(buf[:0], coding, id)
			}
		})
	}
}
