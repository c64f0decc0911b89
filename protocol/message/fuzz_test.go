package message

import (
	"bytes"
	"maps"
	"net/netip"
	"testing"
)

// FuzzDecode: whatever the bytes say, nothing outside them is read, and what
// decodes can be encoded again to a record that decodes to the same.
func FuzzDecode(f *testing.F) {
	m := sample()
	f.Add(encode(f, m, false))
	f.Add(encode(f, m, true))
	m.BornHost = netip.MustParseAddrPort("[2001:db8::1]:1")
	f.Add(encode(f, m, true))
	m.StoreHost, m.Topic = m.BornHost, RetryPrefix+string(bytes.Repeat([]byte("g"), 200))
	f.Add(encode(f, m, true))
	f.Add(BlankRecord(nil, 100))
	f.Fuzz(func(t *testing.T, data []byte) {
		// Exactly sized, so that a read beyond the end panics.
		rec := bytes.Clone(data)[:len(data):len(data)]
		_ = Verify(rec)
		_ = EachRecord(rec, func([]byte) bool { return true })
		stripped := AppendStripped(nil, rec)
		var got Message
		if Decode(rec, &got) != nil {
			return
		}
		var s Message
		if err := Decode(stripped, &s); err != nil {
			t.Fatalf("stripped record: %v", err)
		}
		if !bytes.HasPrefix(got.Properties, s.Properties) || !bytes.Equal(s.Body, got.Body) {
			t.Fatal("stripping changed the message")
		}
		if got.Topic == "" || len(got.Topic) > MaxTopicLen {
			return // AppendRecord refuses those
		}
		again, err := AppendRecord(nil, &got, true)
		if err != nil {
			t.Fatalf("encode again: %v", err)
		}
		Seal(again, got.QueueOffset, got.PhysicalOffset, got.StoreTimestamp)
		if err := Verify(again); err != nil {
			t.Fatalf("verify again: %v", err)
		}
		var back Message
		if err := Decode(again, &back); err != nil {
			t.Fatalf("decode again: %v", err)
		}
		if back.Topic != got.Topic || !bytes.Equal(back.Body, got.Body) || back.StoreTimestamp != got.StoreTimestamp ||
			!maps.Equal(ParseProperties(back.Properties), ParseProperties(trimCRC(got.Properties))) {
			t.Fatalf("got %+v\nback %+v", got, back)
		}
	})
}

// FuzzBatch: entries that are read can be written again to the same bytes.
func FuzzBatch(f *testing.F) {
	f.Add(batchOf(f, Message{Body: []byte("a"), Properties: []byte("TAGS\x01a")}, Message{Flag: 3}))
	f.Add([]byte{0, 0, 0, 22})
	f.Fuzz(func(t *testing.T, data []byte) {
		var again []byte
		err := EachBatchEntry(data[:len(data):len(data)], func(m *Message) error {
			var err error
			again, err = AppendBatchEntry(again, m)
			return err
		})
		if err != nil {
			return
		}
		if len(again) != len(data) {
			t.Fatalf("%d bytes read, %d written", len(data), len(again))
		}
	})
}

// FuzzProperties: the three ways of reading a properties text agree.
func FuzzProperties(f *testing.F) {
	f.Add([]byte("TAGS\x01a\x02KEYS\x01k1 k2\x02"))
	f.Add([]byte("TAGS\x01a"))
	f.Add([]byte("\x01\x02\x02\x01A\x01\x02A\x01\x01\x02"))
	f.Fuzz(func(t *testing.T, props []byte) {
		parsed := ParseProperties(props)
		for name, value := range parsed {
			if got, ok := Property(props, name); !ok || string(got) != value {
				t.Fatalf("%q: %q %v, parsed %q", name, got, ok, value)
			}
		}
		if got, ok := Property(props, "TAGS"); ok != (parsed["TAGS"] != "") || string(got) != parsed["TAGS"] {
			t.Fatalf("TAGS: %q %v, parsed %q", got, ok, parsed["TAGS"])
		}
		rest := ParseProperties(AppendPropertiesWithout(nil, props, "TAGS"))
		delete(parsed, "TAGS")
		if !maps.Equal(rest, parsed) {
			t.Fatalf("without TAGS %q, want %q", rest, parsed)
		}
		if grown := AppendProperty(props[:len(props):len(props)], "new", "v"); ParseProperties(grown)["new"] != "v" {
			t.Fatalf("appended property is not found in %q", grown)
		}
	})
}
