//go:build !race

package protocol

import "testing"

// The hot paths of a broker must not allocate: one send or pull in, one answer
// out.
func TestHotPathsAllocateNothing(t *testing.T) {
	var c Command
	var send SendMessageRequest
	var pull PullMessageRequest
	sendJSON, pullJSON := loadFrame(), pullFrame()
	binaryFrame := func(frame []byte) []byte {
		var c Command
		if err := c.Decode(frame); err != nil {
			t.Fatal(err)
		}
		c.Coding = Binary
		return c.AppendTo(nil)[4:]
	}
	sendBinary, pullBinary := binaryFrame(sendJSON), binaryFrame(pullJSON)
	found := NewResponse(Success, "FOUND", &PullMessageResponse{NextBeginOffset: 1}, []byte("records")).AppendTo(nil)[4:]
	buf, id := make([]byte, 0, 4096), []byte("C0A8016400002A9F00000000000A1B2C")
	decodeAs := func(frame []byte, header func() error) func() error {
		return func() error {
			if err := c.Decode(frame); err != nil {
				return err
			}
			return header()
		}
	}
	for name, run := range map[string]func() error{
		"send JSON":    decodeAs(sendJSON, func() error { return send.DecodeSend(&c) }),
		"send binary":  decodeAs(sendBinary, func() error { return send.DecodeSend(&c) }),
		"pull JSON":    decodeAs(pullJSON, func() error { return c.DecodeHeader(&pull) }),
		"pull binary":  decodeAs(pullBinary, func() error { return c.DecodeHeader(&pull) }),
		"pull answer":  decodeAs(found, func() error { return nil }),
		"write JSON":   func() error { buf = appendSendResponse(buf[:0], JSON, id); return nil },
		"write binary": func() error { buf = appendSendResponse(buf[:0], Binary, id); return nil },
	} {
		if err := run(); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		if n := testing.AllocsPerRun(100, func() {
			if run() != nil {
				panic(name)
			}
		}); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
	if string(send.Properties) != "UNIQ_KEY\x018af31c2200000001000000000001E240\x02WAIT\x01true\x02TAGS\x01T\x02" {
		t.Errorf("properties %q", send.Properties)
	}
}
