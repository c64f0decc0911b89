package protocol

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"strings"
	"testing"
)

func TestFrameWriterWritesStrictJSON(t *testing.T) {
	w := BeginFrame([]byte("ab"), JSON, 0, 1, -7, "a\"\\\x00\n")
	w.Int("n", -1)
	w.Bool("yes", true)
	w.Bool("no", false)
	w.String("s", "\x01\x02\t\x7f é \xff 日")
	w.Bytes("b", []byte("\xed\xa0\x80<&>"))
	got := w.End(append(w.BeginBody(), "body"...))
	want := `{"code":0,"flag":1,"language":"GO","opaque":-7,"remark":"a\"\\\u0000\n","serializeTypeCurrentRPC":"JSON","version":479,` +
		`"extFields":{"n":"-1","yes":"true","no":"false","s":"\u0001\u0002\t` + "\x7f é \uFFFD 日" + `","b":"` + "\uFFFD\uFFFD\uFFFD<&>" + `"}}`
	head := got[10 : len(got)-4]
	if string(head) != want || !json.Valid(head) {
		t.Errorf("got  %s\nwant %s", head, want)
	}
	if string(got[:2]) != "ab" || binary.BigEndian.Uint32(got[2:]) != uint32(len(got)-6) ||
		binary.BigEndian.Uint32(got[6:]) != uint32(len(want)) || string(got[len(got)-4:]) != "body" {
		t.Errorf("frame %q", got)
	}
}

func TestFrameWriterLeavesOutWhatIsEmpty(t *testing.T) {
	w := BeginFrame(nil, JSON, 1, 1, 2, "")
	got := w.End(w.BeginBody())
	if want := `{"code":1,"flag":1,"language":"GO","opaque":2,"serializeTypeCurrentRPC":"JSON","version":479}`; string(got[8:]) != want {
		t.Errorf("got %s", got[8:])
	}
}

func TestBinaryHeaderBytes(t *testing.T) {
	c := &Command{Code: 200050, Language: LanguageJava, Version: 479, Opaque: 7, Flag: 2, Remark: "r", Coding: Binary, Body: []byte("B")}
	c.AddField("topic", "T1")
	want := []byte{
		0, 0, 0, 40, // length
		1, 0, 0, 35, // binary, header length
		0x0D, 0x72, // 3442: 200050 in 16 bits
		0,          // Java
		0x01, 0xDF, // 479
		0, 0, 0, 7,
		0, 0, 0, 2,
		0, 0, 0, 1, 'r',
		0, 0, 0, 13, 0, 5, 't', 'o', 'p', 'i', 'c', 0, 0, 0, 2, 'T', '1',
		'B',
	}
	if got := c.AppendTo(nil); !bytes.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func TestDecodeRefusesMalformedFrames(t *testing.T) {
	bin := func(change func(h []byte) []byte) []byte {
		c := &Command{Code: 10, Coding: Binary}
		c.AddField("k", "v")
		f := change(c.AppendTo(nil)[4:])
		binary.BigEndian.PutUint32(f, 1<<24|uint32(len(f)-4))
		return f
	}
	put := func(at int, v int32) []byte {
		return bin(func(h []byte) []byte { binary.BigEndian.PutUint32(h[4+at:], uint32(v)); return h })
	}
	for _, tc := range []struct {
		name, says string
		frame      []byte
	}{
		{"empty", "0 bytes", nil},
		{"short mark", "3 bytes", []byte{0, 0, 0}},
		{"header past the end", "header of 2 bytes", []byte{0, 0, 0, 2, '{'}},
		{"largest header", "16777215", []byte{0, 255, 255, 255, '{'}},
		{"unknown coding", "coding 2", []byte{2, 0, 0, 0}},
		{"negative coding", "coding 255", []byte{255, 0, 0, 0}},
		{"binary too short", "needs 21", []byte{1, 0, 0, 1, 0}},
		{"remark past the end", "remark of 100", put(13, 100)},
		{"remark negative", "remark of -1", put(13, -1)},
		{"fields past the end", "ext fields of 2147483647", put(17, 1<<31-1)},
		{"fields negative", "ext fields of -2147483648", put(17, -1<<31)},
		{"fields short", "after the ext fields", put(17, 3)},
		{"value past the end", "ext value of 9", put(24, 9)},
		{"value negative", "ext value of -9", put(24, -9)},
		{"key negative", "ext key of -1", bin(func(h []byte) []byte { h[4+21], h[4+22] = 255, 255; return h })},
		{"key past the end", "ext key of 257", bin(func(h []byte) []byte { h[4+21] = 1; return h })},
		{"trailing byte", "after the ext fields", bin(func(h []byte) []byte { return append(h, 0) })},
		{"cut key length", "1 byte left", bin(func(h []byte) []byte { h[4+20]++; return append(h, 0) })},
		{"HTTP", "header of 5392672", []byte("PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n")},
	} {
		var c Command
		err := c.Decode(tc.frame)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.says)
		}
	}
}

// A million fields in a binary frame must not become a table of them.
func TestBinaryFieldsAreBounded(t *testing.T) {
	c := &Command{Code: 10, Coding: Binary}
	for range MaxFields + 1 {
		c.Fields = append(c.Fields, Field{})
	}
	var d Command
	if err := d.Decode(c.AppendTo(nil)[4:]); err == nil || !strings.Contains(err.Error(), "4096") {
		t.Errorf("error %v", err)
	}
}

// Texts of one decode lie side by side in scratch and must all stay readable.
func TestUnescapedTextsStayApart(t *testing.T) {
	header := `{"code":10,"extFields":{`
	for i := range 50 {
		if i > 0 {
			header += ","
		}
		header += `"k\u0001` + strings.Repeat("x", i) + `":"` + strings.Repeat(`v\n`, i) + `"`
	}
	var c Command
	for range 3 {
		if err := c.Decode(jsonFrame(header + "}}")); err != nil {
			t.Fatal(err)
		}
		for i, f := range c.Fields {
			if string(f.Key) != "k\x01"+strings.Repeat("x", i) || string(f.Value) != strings.Repeat("v\n", i) {
				t.Fatalf("field %d is %q", i, f)
			}
		}
		if err := c.Decode(jsonFrame(`{"code":1,"extFields":{"a":"\t"}}`)); err != nil || len(c.Fields) != 1 {
			t.Fatal("memory of the last decode shows", err)
		}
	}
}

func TestReusedCommandLetsGoOfLargeMemory(t *testing.T) {
	var c Command
	if err := c.Decode(jsonFrame(`{"code":1,"remark":"\n` + strings.Repeat("x", 1<<20) + `"}`)); err != nil {
		t.Fatal(err)
	}
	if err := c.Decode(jsonFrame(`{"code":1}`)); err != nil || cap(c.scratch) > keepScratch {
		t.Errorf("keeps %d bytes, %v", cap(c.scratch), err)
	}
}
