package remoting

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"runtime"
	"strings"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

func word(v uint32) []byte { return binary.BigEndian.AppendUint32(nil, v) }

// rawFrame makes a frame of a coding and header bytes, whatever they hold.
func rawFrame(coding byte, header []byte) []byte {
	b := append(word(uint32(4+len(header))), coding, byte(len(header)>>16), byte(len(header)>>8), byte(len(header)))
	return append(b, header...)
}

func jsonFrame(header string) []byte { return rawFrame(0, []byte(header)) }

// binaryFrame is a binary header with lengths that may lie.
func binaryFrame(remark, ext uint32, rest ...byte) []byte {
	h := append([]byte{0, 10, 0, 1, 0xDF}, make([]byte, 8)...)
	h = append(h, word(remark)...)
	h = append(h, word(ext)...)
	return rawFrame(1, append(h, rest...))
}

func malformedFrames() map[string][]byte {
	m := map[string][]byte{
		"header longer than frame":    append(word(10), 0, 0, 0, 100, 'x', 'x', 'x', 'x', 'x', 'x'),
		"header as long as frame":     append(word(10), 0, 0, 0, 10, 'x', 'x', 'x', 'x', 'x', 'x'),
		"header length all ones":      append(word(10), 0, 255, 255, 255, 'x', 'x', 'x', 'x', 'x', 'x'),
		"no header":                   jsonFrame(""),
		"JSON cut":                    jsonFrame(`{"code":1`),
		"JSON array":                  jsonFrame(`[]`),
		"JSON null":                   jsonFrame(`null`),
		"JSON deep":                   jsonFrame(strings.Repeat("[", 10_000_000)),
		"JSON deep in ext":            jsonFrame(`{"code":1,"extFields":` + strings.Repeat(`{"a":`, 1_000_000)),
		"JSON many fields":            jsonFrame(`{"code":1,"extFields":{` + strings.Repeat(`"a":"b",`, 1_000_000) + `"c":"d"}}`),
		"JSON code text":              jsonFrame(`{"code":"ten"}`),
		"JSON code 1e300":             jsonFrame(`{"code":1e300}`),
		"JSON bad escape":             jsonFrame(`{"code":1,"remark":"\u12"}`),
		"binary short":                rawFrame(1, make([]byte, 20)),
		"binary remark past end":      binaryFrame(1000, 0),
		"binary remark negative":      binaryFrame(1<<31, 0),
		"binary ext past end":         binaryFrame(0, 1<<20),
		"binary ext negative":         binaryFrame(0, 1<<31|5),
		"binary key negative":         binaryFrame(0, 6, 0x80, 0, 0, 0, 0, 0),
		"binary key past end":         binaryFrame(0, 6, 0x70, 0, 0, 0, 0, 0),
		"binary value past end":       binaryFrame(0, 7, 0, 1, 'k', 0x7F, 0, 0, 0),
		"binary value negative":       binaryFrame(0, 7, 0, 1, 'k', 0xFF, 0, 0, 0),
		"binary bytes behind the end": binaryFrame(0, 0, 1, 2, 3),
	}
	for _, n := range []uint32{0, 1, 3, 1<<32 - 1, 1<<31 - 1, 16<<20 + 1} {
		m[fmt.Sprint("length ", int32(n))] = append(word(n), make([]byte, 10)...)
	}
	m["length 5"] = append(word(5), 0, 0, 0, 2, 'x')
	for coding := range 254 {
		m[fmt.Sprint("coding ", 2+coding)] = rawFrame(byte(2+coding), []byte(`{"code":1}`))
	}
	return m
}

// Frames that are odd but readable get an answer: code 3 here, since no route has
// their code.
func oddFrames() map[string][]byte {
	return map[string][]byte{
		"empty object":      jsonFrame(`{}`),
		"no code":           jsonFrame(`{"opaque":0}`),
		"code negative":     jsonFrame(`{"code":-1}`),
		"code twice":        jsonFrame(`{"code":9001,"code":77}`),
		"language unknown":  jsonFrame(`{"code":77,"language":"FOO"}`),
		"version from afar": jsonFrame(`{"code":77,"version":99999}`),
		"ext null":          jsonFrame(`{"code":77,"extFields":null}`),
		"negative opaque":   jsonFrame(`{"code":77,"version":-5}`),
		"invalid UTF-8":     jsonFrame("{\"code\":77,\"remark\":\"\xff\xfe\"}"),
	}
}

func TestMalformedFramesEndOnlyTheirConnection(t *testing.T) {
	var log logBook
	s := start(t, ServerOptions{Logger: log.logger()}, Table{codeEcho: {Handler: echo}})
	witness := dialPeer(t, s)
	for name, frame := range malformedFrames() {
		p := dialPeer(t, s)
		p.Write(frame) // may fail half-way: the server need not read it all
		p.wantClosed()
		p.Close()
		witness.send(request(codeEcho, 1, name))
		if resp := witness.next(); string(resp.Body) != name {
			t.Fatalf("after %q another connection got %+v", name, resp)
		}
	}
	if n := strings.Count(log.text(), "malformed"); n < 10 || n > 100 {
		t.Errorf("%d log lines on %d bad connections, must be some but throttled", n, len(malformedFrames()))
	}
}

func TestOddFramesGetAnAnswer(t *testing.T) {
	s := start(t, ServerOptions{}, Table{codeEcho: {Handler: echo}})
	for name, frame := range oddFrames() {
		p := dialPeer(t, s)
		p.send(frame)
		resp, err := p.read()
		if err == nil && resp.ResponseCode() != protocol.RequestCodeNotSupported {
			t.Errorf("%s: code %d %q", name, resp.Code, resp.Remark)
		}
		if err != nil && !errors.Is(err, io.EOF) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

func TestGoodRequestsBeforeABadFrameAreAnswered(t *testing.T) {
	script := play(t, Table{codeStream: {Stream: echoStreams()}},
		append(request(codeStream, 1, "good"), "GET / HTTP/1.1\r\n\r\n"...))
	if got := frames(t, bytes.Join(script.writes, nil)); len(got) != 1 || string(got[0].Body) != "good" {
		t.Errorf("answers %+v", got)
	}
}

func TestLogSaysWhatArrived(t *testing.T) {
	for start1, want := range map[string]string{
		"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03": "TLS ClientHello",
		"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n":             "HTTP/2 preface",
		"GET /metrics HTTP/1.1\r\n\r\n":                "HTTP request",
		"POST /v1/topics/T HTTP/1.1\r\n\r\n":           "HTTP request",
		"PROXY TCP4 1.2.3.4 5.6.7.8 1 2\r\n":           "PROXY protocol version 1",
		"\r\n\r\n\x00\r\nQUIT\n\x21\x11\x00\x0c":       "PROXY protocol version 2",
		"\x7f\xff\xff\xff\x00\x00\x00\x00":             "frame length 2147483647, limit 16777212",
		"\x00\x00\x00\x09\x07\x00\x00\x01":             "unknown header coding 7",
		"\x00\x00\x00\x08\x00\x00\x00\xffabcd":         "header of 255 bytes in a frame of 8",
	} {
		var log logBook
		closed := make(chan *Conn, 1)
		s := start(t, ServerOptions{Logger: log.logger(), OnClose: func(c *Conn) { closed <- c }}, nil)
		p := dialPeer(t, s)
		p.send([]byte(start1))
		p.wantClosed()
		await(t, closed, "OnClose")
		if text := log.text(); !strings.Contains(text, want) || !strings.Contains(text, "remote="+p.LocalAddr().String()) || strings.Count(text, "\n") != 1 {
			t.Errorf("for %q the log says:\n%s", start1, text)
		}
	}
}

// Connections that declare the largest frame and send ten bytes of it must cost
// what ten bytes cost.
func TestDeclaredLengthTakesNoMemory(t *testing.T) {
	const conns = 64
	ten := append(word(16<<20-4), 0, 0, 1, 0, '{', '"')
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range conns {
		play(t, nil, ten, []byte("code"))
	}
	runtime.ReadMemStats(&after)
	if each := (after.TotalAlloc - before.TotalAlloc) / conns; each > 32<<10 {
		t.Errorf("%d KiB allocated for a connection that sent 14 bytes", each>>10)
	}
}

func TestBufferFollowsWhatArrived(t *testing.T) {
	b := frameBuffer{max: DefaultMaxFrame}
	size := 5 << 20
	frame := append(word(uint32(size)), 0, 0, 0, 2)
	frame = append(frame, make([]byte, size-4)...)
	for sent := 0; sent < len(frame); {
		b.prepare()
		if got := len(b.buf); got > max(2*sent, readMax) {
			t.Fatalf("buffer of %d after %d bytes", got, sent)
		}
		n := copy(b.buf[b.w:], frame[sent:])
		b.received(n)
		sent += n
		got, err := b.next()
		if err != nil || (got != nil) != (sent == len(frame)) {
			t.Fatalf("after %d bytes of %d: frame %v, %v", sent, len(frame), got != nil, err)
		}
	}
	for range 100 { // small frames from now on
		b.prepare()
		b.received(copy(b.buf, request(codeEcho, 1, "")))
		if frame, err := b.next(); frame == nil || err != nil {
			t.Fatal(err)
		}
	}
	if len(b.buf) > readMax {
		t.Errorf("buffer of %d long after the large frame", len(b.buf))
	}
}

// waitFor returns once the condition holds; it looks again and again, for what announces nothing.
func waitFor(t *testing.T, what string, condition func() bool) {
	t.Helper()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for late := time.After(patience); !condition(); {
		select {
		case <-tick.C:
		case <-late:
			t.Fatalf("waited in vain for %s", what)
		}
	}
}

// Large frames share the room that there is: one waits while another holds it,
// small ones do not, and in the end everybody is served.
func TestLargeFramesTakeTurns(t *testing.T) {
	s := start(t, ServerOptions{MaxBulk: 3 << 20}, Table{codeEcho: {Handler: echo}})
	big := request(codeEcho, 1, strings.Repeat("x", 1<<20)) // its buffer takes 2 MiB
	holder, second, small := dialPeer(t, s), dialPeer(t, s), dialPeer(t, s)
	holder.send(big[:len(big)-1])
	waitFor(t, "the first large buffer", func() bool { return s.ep.room.used.Load() == 2<<20 })
	go func() { _, _ = second.Write(big) }()
	waitFor(t, "the second to wait", func() bool { return s.ep.room.waiting.Load() == 1 })
	small.send(request(codeEcho, 2, "hi"))
	if got := small.next(); string(got.Body) != "hi" {
		t.Fatalf("a small frame is answered with %q", got.Body)
	}
	holder.send(big[len(big)-1:])
	for _, p := range []*peer{holder, second} {
		if got := p.next(); len(got.Body) != 1<<20 {
			t.Fatalf("a large frame is answered with %d bytes", len(got.Body))
		}
		p.Close()
	}
	waitFor(t, "all room to be given back", func() bool { return s.ep.room.used.Load() == 0 })
}

func FuzzFrames(f *testing.F) {
	for _, b := range malformedFrames() {
		if len(b) < 1000 {
			f.Add(b, uint8(3))
		}
	}
	f.Add(request(codeEcho, 1, "x"), uint8(1))
	f.Fuzz(func(t *testing.T, in []byte, step uint8) {
		whole := frameBuffer{buf: in, w: len(in), total: int64(len(in)), max: 1 << 16}
		parts := frameBuffer{max: 1 << 16}
		for rest := in; ; {
			want, wantErr := whole.next()
			got, err := parts.next()
			for got == nil && err == nil && len(rest) > 0 {
				parts.prepare()
				n := copy(parts.buf[parts.w:], rest[:min(len(rest), int(step)+1)])
				parts.received(n)
				rest = rest[n:]
				got, err = parts.next()
			}
			if !bytes.Equal(got, want) || (err == nil) != (wantErr == nil) {
				t.Fatalf("at once %x, %v; in parts %x, %v", want, wantErr, got, err)
			}
			if got == nil || err != nil {
				return
			}
		}
	})
}
