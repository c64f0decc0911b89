package message

import (
	"bytes"
	"encoding/hex"
	"errors"
	"testing"
)

func batchOf(t testing.TB, ms ...Message) []byte {
	t.Helper()
	var body []byte
	for i := range ms {
		var err error
		if body, err = AppendBatchEntry(body, &ms[i]); err != nil {
			t.Fatal(err)
		}
	}
	return body
}

func TestBatchEntryBytes(t *testing.T) {
	got := batchOf(t, Message{Flag: 7, Body: []byte("hi"), Properties: []byte("A\x011\x02")})
	const want = "0000001c" + "00000000" + "00000000" + "00000007" + "00000002" + "6869" + "0004" + "41013102"
	if hex.EncodeToString(got) != want {
		t.Errorf("got %x, want %s", got, want)
	}
}

func TestBatchRoundTrip(t *testing.T) {
	in := []Message{
		{Flag: 1, Body: []byte("one"), Properties: []byte("TAGS\x01a\x02")},
		{Flag: -2, Body: []byte{}, Properties: []byte{}},
		{Body: []byte("three"), Properties: []byte("TAGS\x01c")}, // last separator missing
	}
	i := 0
	err := EachBatchEntry(batchOf(t, in...), func(m *Message) error {
		if m.Flag != in[i].Flag || !bytes.Equal(m.Body, in[i].Body) || !bytes.Equal(m.Properties, in[i].Properties) {
			t.Errorf("entry %d: %+v", i, m)
		}
		i++
		return nil
	})
	if err != nil || i != len(in) {
		t.Errorf("%d entries, %v", i, err)
	}
}

// TestBatchEntriesStayApart (fault F14): an entry whose last separator is
// missing keeps its own properties when it becomes a record.
func TestBatchEntriesStayApart(t *testing.T) {
	body := batchOf(t,
		Message{Body: []byte("1"), Properties: []byte("UNIQ_KEY\x01K1\x02TAGS\x01a")},
		Message{Body: []byte("2"), Properties: []byte("UNIQ_KEY\x01K2\x02TAGS\x01b\x02")},
		Message{Body: []byte("3"), Properties: []byte("UNIQ_KEY\x01K3\x02TAGS\x01c")})
	want := []string{"K1a", "K2b", "K3c"}
	i := 0
	err := EachBatchEntry(body, func(e *Message) error {
		m := sample()
		m.Body, m.Properties = e.Body, e.Properties
		v, err := ViewOf(AppendStripped(nil, encode(t, m, true)))
		if err != nil {
			return err
		}
		key, _ := Property(v.Properties(), PropertyUniqueKey)
		tag, _ := Property(v.Properties(), PropertyTags)
		if string(key)+string(tag) != want[i] {
			t.Errorf("entry %d: key %q tag %q", i, key, tag)
		}
		i++
		return nil
	})
	if err != nil || i != 3 {
		t.Errorf("%d entries, %v", i, err)
	}
}

func TestMalformedBatch(t *testing.T) {
	good := batchOf(t, Message{Body: []byte("hello"), Properties: []byte("A\x011\x02")})
	patch := func(at int, b ...byte) []byte {
		c := bytes.Clone(good)
		copy(c[at:], b)
		return c
	}
	for name, body := range map[string][]byte{
		"one byte":          {0},
		"cut":               good[:len(good)-1],
		"trailing bytes":    append(bytes.Clone(good), 1, 2, 3),
		"size 0":            patch(0, 0, 0, 0, 0),
		"size negative":     patch(0, 0xFF),
		"size smaller":      patch(3, byte(len(good)-1)),
		"body negative":     patch(16, 0xFF),
		"body huge":         patch(16, 0x7F, 0xFF, 0xFF, 0xFF),
		"properties longer": patch(26, 5),
		"properties i16":    patch(25, 0xFF, 0xFF),
	} {
		if err := EachBatchEntry(body, func(*Message) error { return nil }); !errors.Is(err, ErrBadBatch) {
			t.Errorf("%s: %v", name, err)
		}
	}
	stop := errors.New("stop")
	if err := EachBatchEntry(good, func(*Message) error { return stop }); !errors.Is(err, stop) {
		t.Errorf("error of the callback: %v", err)
	}
}
