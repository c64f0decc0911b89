package message

import (
	"bytes"
	"encoding/binary"
	"encoding/hex"
	"errors"
	"hash/crc32"
	"net/netip"
	"reflect"
	"strings"
	"testing"
)

func sample() Message {
	return Message{
		Topic: "orders", QueueID: 3, Flag: 7, SysFlag: MultiTags,
		BornTimestamp: 1700000000001, BornHost: netip.MustParseAddrPort("10.1.2.3:40000"),
		StoreTimestamp: 1700000000002, StoreHost: netip.MustParseAddrPort("192.168.0.9:10911"),
		ReconsumeTimes: 2, PreparedTransactionOffset: 77,
		Body: []byte("hello"), Properties: []byte("TAGS\x01a\x02KEYS\x01k1 k2\x02"),
		QueueOffset: 11, PhysicalOffset: 4096,
	}
}

// encode fails the test on error and seals with the positions in m.
func encode(t testing.TB, m Message, withCRC bool) []byte {
	t.Helper()
	rec, err := AppendRecord(nil, &m, withCRC)
	if err != nil {
		t.Fatal(err)
	}
	if len(rec) != RecordSize(&m, withCRC) {
		t.Fatalf("record of %d bytes, RecordSize says %d", len(rec), RecordSize(&m, withCRC))
	}
	Seal(rec, m.QueueOffset, m.PhysicalOffset, m.StoreTimestamp)
	return rec
}

// TestRecordBytes holds the layout against bytes written out by hand from the
// format's description.
func TestRecordBytes(t *testing.T) {
	want := strings.Join([]string{
		"00000076", "daa320a7", "3610a686", "00000003", "00000007", // size magic crc queue flag
		"000000000000000b", "0000000000001000", "00000002", // offsets, sysFlag
		"0000018bcfe56801", "0a010203", "00009c40", // born
		"0000018bcfe56802", "c0a80009", "00002a9f", // store
		"00000002", "000000000000004d", // reconsume, prepared
		"00000005", "68656c6c6f", "06", "6f7264657273", // body, topic
		"0010", "5441475301" + "6102" + "4b45595301" + "6b312002",
	}, "")
	m := sample()
	m.Properties = []byte("TAGS\x01a\x02KEYS\x01k1 \x02")
	got := hex.EncodeToString(encode(t, m, false))
	if got != want {
		t.Errorf("record\n got %s\nwant %s", got, want)
	}
}

func TestRecordRoundTrip(t *testing.T) {
	v6 := netip.MustParseAddrPort("[2001:db8::5]:10911")
	cases := map[string]func(*Message){
		"plain":            func(*Message) {},
		"no body":          func(m *Message) { m.Body = []byte{} },
		"no properties":    func(m *Message) { m.Properties = []byte{} },
		"born v6":          func(m *Message) { m.BornHost = v6 },
		"store v6":         func(m *Message) { m.StoreHost = v6 },
		"both v6":          func(m *Message) { m.BornHost, m.StoreHost = v6, v6 },
		"topic of 127":     func(m *Message) { m.Topic = strings.Repeat("t", 127) },
		"topic of 128: V2": func(m *Message) { m.Topic = RetryPrefix + strings.Repeat("t", 121) },
		"topic of 255: V2": func(m *Message) { m.Topic = RetryPrefix + strings.Repeat("t", 248) },
		"longest properties": func(m *Message) {
			m.Properties = AppendProperty(nil, "K", strings.Repeat("v", MaxPropertiesLen-3))
		},
		"negative numbers": func(m *Message) { m.QueueID, m.Flag, m.ReconsumeTimes, m.BornTimestamp = -1, -2, -3, -4 },
	}
	for name, change := range cases {
		for _, withCRC := range []bool{false, true} {
			t.Run(name, func(t *testing.T) {
				m := sample()
				change(&m)
				rec := encode(t, m, withCRC)
				if err := Verify(rec); err != nil {
					t.Fatal(err)
				}
				var got Message
				if err := Decode(rec, &got); err != nil {
					t.Fatal(err)
				}
				want := m
				want.BodyCRC = crc32.ChecksumIEEE(m.Body) & 0x7FFFFFFF
				want.StoreSize = int32(len(rec))
				for host, bit := range map[netip.AddrPort]SysFlag{m.BornHost: BornHostV6, m.StoreHost: StoreHostV6} {
					if host == v6 {
						want.SysFlag |= bit
					}
				}
				if m.BornHost == v6 && m.StoreHost == v6 {
					want.SysFlag |= BornHostV6 | StoreHostV6
				}
				if !reflect.DeepEqual(got, want) {
					t.Errorf("decoded\n got %+v\nwant %+v", got, want)
				}
				again := encode(t, got, withCRC)
				if !bytes.Equal(again, rec) {
					t.Error("encoding what was decoded gives other bytes")
				}
			})
		}
	}
}

// TestViewReadsWhatDecodeReads: the two ways of reading never disagree.
func TestViewReadsWhatDecodeReads(t *testing.T) {
	m := sample()
	m.BornHost = netip.MustParseAddrPort("[2001:db8::5]:1")
	rec := encode(t, m, true)
	v, err := ViewOf(append(bytes.Clone(rec), "next record"...))
	if err != nil {
		t.Fatal(err)
	}
	var d Message
	if err := Decode(rec, &d); err != nil {
		t.Fatal(err)
	}
	got := Message{
		Topic: string(v.Topic()), QueueID: v.QueueID(), Flag: v.Flag(), SysFlag: v.SysFlag(),
		BornTimestamp: v.BornTimestamp(), BornHost: v.BornHost(), StoreTimestamp: v.StoreTimestamp(),
		StoreHost: v.StoreHost(), ReconsumeTimes: v.ReconsumeTimes(),
		PreparedTransactionOffset: v.PreparedTransactionOffset(), Body: v.Body(), Properties: v.Properties(),
		QueueOffset: v.QueueOffset(), PhysicalOffset: v.PhysicalOffset(), BodyCRC: v.BodyCRC(),
		StoreSize: int32(v.Size()),
	}
	if !reflect.DeepEqual(got, d) {
		t.Errorf("view %+v\ndecode %+v", got, d)
	}
	if v.Magic() != MagicV1 || !bytes.Equal(v.Bytes(), rec) || !v.HasCRC() {
		t.Error("magic, bytes or CRC flag wrong")
	}
}

func TestSealWritesPositionAndCRC(t *testing.T) {
	for _, born := range []string{"10.0.0.1:1", "[2001:db8::1]:1"} {
		m := sample()
		m.BornHost = netip.MustParseAddrPort(born)
		rec, err := AppendRecord(nil, &m, true)
		if err != nil {
			t.Fatal(err)
		}
		if err := Verify(rec); !errors.Is(err, ErrRecordCRC) {
			t.Errorf("unsealed record verifies: %v", err)
		}
		Seal(rec, 5, 1<<40, 1700000009999)
		v, err := ViewOf(rec)
		if err != nil {
			t.Fatal(err)
		}
		if v.QueueOffset() != 5 || v.PhysicalOffset() != 1<<40 || v.StoreTimestamp() != 1700000009999 {
			t.Errorf("sealed %d %d %d", v.QueueOffset(), v.PhysicalOffset(), v.StoreTimestamp())
		}
		if err := v.Verify(); err != nil {
			t.Error(err)
		}
		// The CRC as the format words it: over everything before the suffix,
		// 31 bits, ten decimal digits, the least significant first.
		sum := crc32.ChecksumIEEE(rec[:len(rec)-20]) & 0x7FFFFFFF
		var digits []byte
		for range 10 {
			digits = append(digits, '0'+byte(sum%10))
			sum /= 10
		}
		if want := "__CRC32#\x01" + string(digits) + "\x02"; string(rec[len(rec)-20:]) != want {
			t.Errorf("suffix %q, want %q", rec[len(rec)-20:], want)
		}
	}
}

// TestEveryFlippedBitIsFound: with a record CRC no single wrong bit passes.
func TestEveryFlippedBitIsFound(t *testing.T) {
	rec := encode(t, sample(), true)
	for i := range len(rec) * 8 {
		bad := bytes.Clone(rec)
		bad[i/8] ^= 1 << (i % 8)
		if i/8 >= len(rec)-CRCSuffixLen && i/8 < len(rec)-CRCSuffixLen+len(crcName) || i/8 == len(rec)-1 {
			continue // the name of the suffix itself: then there is no CRC
		}
		if Verify(bad) == nil {
			t.Fatalf("bit %d of byte %d flipped, not found", i%8, i/8)
		}
	}
}

func TestBodyCRCIsFoundWithoutRecordCRC(t *testing.T) {
	m := sample()
	rec := encode(t, m, false)
	rec[bytes.Index(rec, m.Body)] ^= 1
	if err := Verify(rec); !errors.Is(err, ErrBodyCRC) {
		t.Errorf("changed body: %v", err)
	}
}

// TestBodyCRCIs31Bits (fault F83): Java clears the sign bit.
func TestBodyCRCIs31Bits(t *testing.T) {
	body := []byte("a")
	if crc32.ChecksumIEEE(body)&0x80000000 == 0 {
		t.Fatal("pick a body with a CRC beyond 31 bits")
	}
	m := sample()
	m.Body = body
	rec := encode(t, m, false)
	if got := binary.BigEndian.Uint32(rec[8:]); got != crc32.ChecksumIEEE(body)&0x7FFFFFFF {
		t.Errorf("body CRC %#x", got)
	}
}

// TestPropertiesLengthLimit (fault F13): 32767 bytes are kept exactly, one more
// is refused and appends nothing, in records and in batch entries.
func TestPropertiesLengthLimit(t *testing.T) {
	for _, n := range []int{MaxPropertiesLen - CRCSuffixLen - 1, MaxPropertiesLen - CRCSuffixLen,
		MaxPropertiesLen - CRCSuffixLen + 1, MaxPropertiesLen, MaxPropertiesLen + 1, 65536 + 10} {
		for _, end := range []string{"v", "\x02"} {
			for _, withCRC := range []bool{false, true} {
				m := sample()
				m.Properties = []byte("K\x01" + strings.Repeat("v", n-2-len(end)) + end)
				if len(m.Properties) != n {
					t.Fatal("test is wrong")
				}
				dst := []byte("before")
				rec, err := AppendRecord(dst, &m, withCRC)
				_, batchErr := AppendBatchEntry(nil, &m)
				if n > MaxPropertiesLen {
					if !errors.Is(err, ErrPropertiesTooLong) || string(rec) != "before" || !errors.Is(batchErr, ErrPropertiesTooLong) {
						t.Errorf("%d bytes: %v, batch %v, %d bytes appended", n, err, batchErr, len(rec)-6)
					}
					continue
				}
				if err != nil || batchErr != nil {
					t.Errorf("%d bytes: %v, batch %v", n, err, batchErr)
					continue
				}
				rec = rec[6:]
				Seal(rec, 1, 2, 3)
				v, err := ViewOf(rec)
				if err != nil {
					t.Fatal(err)
				}
				got := v.Properties()
				if !bytes.Equal(bytes.TrimSuffix(got, []byte{2}), bytes.TrimSuffix(m.Properties, []byte{2})) {
					t.Errorf("%d bytes, CRC %v: read back %d", n, withCRC, len(got))
				}
				if err := v.Verify(); err != nil {
					t.Errorf("%d bytes: %v", n, err)
				}
				if stripped, err := ViewOf(AppendStripped(nil, rec)); err != nil || len(stripped.Properties()) > MaxPropertiesLen {
					t.Errorf("%d bytes stripped: %v", n, err)
				}
			}
		}
	}
}

// TestMissingLastSeparator (fault F14): the record CRC is never glued to the
// last property of an old client, and a forged CRC is not kept.
func TestMissingLastSeparator(t *testing.T) {
	for props, want := range map[string]string{
		"TAGS\x01a":     "TAGS\x01a\x02",
		"TAGS\x01a\x02": "TAGS\x01a\x02",
		"":              "",
		"TAGS\x01a\x02__CRC32#\x010123456789\x02": "TAGS\x01a\x02",
		"__CRC32#\x010123456789\x02":              "",
	} {
		m := sample()
		m.Properties = []byte(props)
		rec := encode(t, m, true)
		v, err := ViewOf(rec)
		if err != nil {
			t.Fatal(err)
		}
		if got := string(v.Properties()); got != want {
			t.Errorf("%q is stored as %q, want %q", props, got, want)
		}
		stripped, err := ViewOf(AppendStripped(nil, rec))
		if err != nil || string(stripped.Properties()) != want || stripped.HasCRC() {
			t.Errorf("%q is read as %q, %v", props, stripped.Properties(), err)
		}
		if err := stripped.Verify(); err != nil {
			t.Errorf("%q stripped: %v", props, err)
		}
	}
}

func TestAppendStripped(t *testing.T) {
	with, without := encode(t, sample(), true), encode(t, sample(), false)
	if got := AppendStripped([]byte("x"), with); !bytes.Equal(got[1:], without) {
		t.Errorf("stripped\n got %x\nwant %x", got[1:], without)
	}
	if got := AppendStripped(nil, without); !bytes.Equal(got, without) {
		t.Error("a record without CRC changed")
	}
	if got := AppendStripped(nil, with[:50]); !bytes.Equal(got, with[:50]) {
		t.Error("half a record changed")
	}
}

func TestAppendRecordRefuses(t *testing.T) {
	for name, c := range map[string]struct {
		topic string
		want  error
	}{
		"no topic":   {"", ErrNoTopic},
		"long topic": {strings.Repeat("t", MaxTopicLen+1), ErrTopicTooLong},
	} {
		m := sample()
		m.Topic = c.topic
		if got, err := AppendRecord([]byte("x"), &m, true); !errors.Is(err, c.want) || string(got) != "x" {
			t.Errorf("%s: %v, %q", name, err, got)
		}
	}
}

// TestHostsWithoutAddress: IPv4 in IPv6 form is IPv4, no address is 0.0.0.0.
func TestHostsWithoutAddress(t *testing.T) {
	m := sample()
	m.BornHost = netip.MustParseAddrPort("[::ffff:10.0.0.1]:5")
	m.StoreHost = netip.AddrPort{}
	var got Message
	if err := Decode(encode(t, m, true), &got); err != nil {
		t.Fatal(err)
	}
	if got.BornHost.String() != "10.0.0.1:5" || got.StoreHost.String() != "0.0.0.0:0" || got.SysFlag != m.SysFlag {
		t.Errorf("hosts %v %v flag %#x", got.BornHost, got.StoreHost, got.SysFlag)
	}
}

func TestMalformedRecords(t *testing.T) {
	rec := encode(t, sample(), true)
	patch := func(at int, b ...byte) []byte {
		c := bytes.Clone(rec)
		copy(c[at:], b)
		return c
	}
	v, err := ViewOf(rec)
	if err != nil {
		t.Fatal(err)
	}
	for name, c := range map[string]struct {
		rec  []byte
		want error
	}{
		"nothing":              {nil, ErrTruncated},
		"7 bytes":              {rec[:7], ErrTruncated},
		"one byte missing":     {rec[:len(rec)-1], ErrTruncated},
		"zeros":                {make([]byte, 100), ErrBadMagic},
		"blank":                {BlankRecord(nil, 1000), ErrBlank},
		"other magic":          {patch(4, 0xDA, 0xA3, 0x20, 0xA8), ErrBadMagic},
		"size 0":               {patch(0, 0, 0, 0, 0), ErrMalformed},
		"size negative":        {patch(0, 0x80, 0, 0, 0), ErrMalformed},
		"size too small":       {patch(0, 0, 0, 0, 90), ErrMalformed},
		"size one less":        {patch(3, byte(len(rec)-1)), ErrMalformed},
		"size beyond":          {patch(0, 0x7F, 0xFF, 0xFF, 0xFF), ErrTruncated},
		"body length negative": {patch(84, 0xFF, 0xFF, 0xFF, 0xFF), ErrMalformed},
		"body length huge":     {patch(84, 0x7F, 0xFF, 0xFF, 0xFF), ErrMalformed},
		"body one longer":      {patch(87, 6), ErrMalformed},
		"topic length":         {patch(int(v.topic)-1, 0xFF), ErrMalformed},
		"properties length":    {patch(int(v.props)-2, 0xFF, 0xFF), ErrMalformed},
		"born host v6":         {patch(39, 0x12), ErrMalformed},
	} {
		var m Message
		if err := Decode(c.rec, &m); !errors.Is(err, c.want) {
			t.Errorf("%s: %v, want %v", name, err, c.want)
		}
	}
}

func TestEachRecord(t *testing.T) {
	a, b := sample(), sample()
	b.Body = []byte("second")
	body := append(encode(t, a, true), encode(t, b, false)...)
	var got []string
	each := func(rec []byte) bool {
		v, err := ViewOf(rec)
		if err != nil {
			t.Fatal(err)
		}
		got = append(got, string(v.Body()))
		return true
	}
	if err := EachRecord(body, each); err != nil || !reflect.DeepEqual(got, []string{"hello", "second"}) {
		t.Errorf("%q, %v", got, err)
	}
	if err := EachRecord(body[:len(body)-1], each); !errors.Is(err, ErrTruncated) {
		t.Errorf("cut body: %v", err)
	}
	calls := 0
	if err := EachRecord(body, func([]byte) bool { calls++; return false }); err != nil || calls != 1 {
		t.Errorf("stop: %d calls, %v", calls, err)
	}
}

func TestBlankRecord(t *testing.T) {
	size, magic, ok := Head(BlankRecord(nil, 1234))
	if size != 1234 || magic != MagicBlank || !ok {
		t.Errorf("%d %#x %v", size, magic, ok)
	}
}

func TestMessageCloneAndSetProperty(t *testing.T) {
	buf := []byte("TAGS\x01a\x02next")
	m := Message{Body: buf[:4], Properties: buf[:7]}
	c := m.Clone()
	m.SetProperty("KEYS", "k")
	if string(buf[7:]) != "next" {
		t.Errorf("SetProperty wrote into the caller's buffer: %q", buf)
	}
	if v, ok := m.Property("KEYS"); v != "k" || !ok {
		t.Errorf("KEYS %q %v", v, ok)
	}
	buf[0] = 'X'
	if string(c.Body) != "TAGS" {
		t.Error("clone aliases the original")
	}
}

func TestHotPathDoesNotAllocate(t *testing.T) {
	m := sample()
	buf := make([]byte, 0, 4096)
	rec := encode(t, m, true)
	var sink int
	var d Message
	for name, f := range map[string]func(){
		"AppendRecord":   func() { buf, _ = AppendRecord(buf[:0], &m, true) },
		"Seal":           func() { Seal(rec, 1, 2, 3) },
		"Verify":         func() { _ = Verify(rec) },
		"AppendStripped": func() { buf = AppendStripped(buf[:0], rec) },
		"View": func() {
			v, _ := ViewOf(rec)
			sink += len(v.Topic()) + len(v.Body()) + len(v.Properties()) + int(v.StoreHost().Port())
		},
		"Decode into the same topic": func() { _ = Decode(rec, &d) },
		"Property": func() {
			p, _ := Property(m.Properties, "KEYS")
			sink += len(p)
		},
		"EachProperty": func() {
			EachProperty(m.Properties, func(n, v []byte) bool { sink += len(v); return true })
		},
		"TagHash":        func() { sink += int(TagHash(rec[:0])) + int(TagHash([]byte("TagA"))) },
		"AppendOffsetID": func() { buf = AppendOffsetID(buf[:0], m.StoreHost, 1) },
	} {
		f()
		if n := testing.AllocsPerRun(100, f); n != 0 {
			t.Errorf("%s: %v allocations", name, n)
		}
	}
}
