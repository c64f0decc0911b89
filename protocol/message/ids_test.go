package message

import (
	"encoding/hex"
	"errors"
	"net/netip"
	"strings"
	"sync"
	"testing"
	"time"
)

func TestOffsetID(t *testing.T) {
	for _, c := range []struct {
		store  string
		offset int64
		want   string
	}{
		{"192.168.0.9:10911", 4096, "C0A8000900002A9F0000000000001000"},
		{"[::ffff:192.168.0.9]:10911", 4096, "C0A8000900002A9F0000000000001000"},
		{"[2001:db8::1]:10911", 1 << 40, "20010DB800000000000000000000000100002A9F0000010000000000"},
	} {
		store := netip.MustParseAddrPort(c.store)
		got := OffsetID(store, c.offset)
		if got != c.want {
			t.Errorf("%s: %s, want %s", c.store, got, c.want)
		}
		for _, id := range []string{got, strings.ToLower(got)} {
			back, offset, err := ParseOffsetID(id)
			want := netip.AddrPortFrom(store.Addr().Unmap(), store.Port())
			if err != nil || back != want || offset != c.offset {
				t.Errorf("%s: %v %d %v", id, back, offset, err)
			}
		}
	}
	for _, bad := range []string{"", "C0", strings.Repeat("0", 33), strings.Repeat("G", 32),
		"C0A80009" + "00010000" + strings.Repeat("0", 16)} {
		if _, _, err := ParseOffsetID(bad); !errors.Is(err, ErrBadOffsetID) {
			t.Errorf("%q: %v", bad, err)
		}
	}
}

func TestUniqueKeyLayout(t *testing.T) {
	zone := time.FixedZone("test", 3*3600)
	at := time.Date(2024, 2, 3, 4, 5, 6, 7e6, zone)
	u := NewUniqueKeys(netip.MustParseAddr("10.1.2.3"), 0x12345, func() time.Time { return at })
	key := u.Next()
	if len(key) != 32 || strings.ToUpper(key) != key {
		t.Fatalf("key %s", key)
	}
	// The second of the month at 04:05:06.007, counted from local midnight of the first.
	ms := uint32((2*86400+4*3600+5*60+6)*1000 + 7)
	want := hex.EncodeToString([]byte{byte(ms >> 24), byte(ms >> 16), byte(ms >> 8), byte(ms)})
	if key[:12] != "0A0102032345" || !strings.EqualFold(key[20:28], want) {
		t.Errorf("key %s: address and process id, then time %s", key, want)
	}
	six := NewUniqueKeys(netip.MustParseAddr("2001:db8::1"), 1, time.Now).Next()
	if len(six) != 56 || !strings.HasPrefix(six, "20010DB8000000000000000000000001"+"0001") {
		t.Errorf("v6 key %s", six)
	}
	if none := NewUniqueKeys(netip.Addr{}, 1, time.Now).Next(); len(none) != 32 {
		t.Errorf("key without address %s", none)
	}
}

// TestUniqueKeysGrow: more keys than the counter has values in one millisecond,
// and a clock that is set back, give neither doubles nor a wrong order.
func TestUniqueKeysGrow(t *testing.T) {
	at := time.Date(2024, 2, 3, 4, 5, 6, 0, time.UTC)
	u := NewUniqueKeys(netip.MustParseAddr("10.0.0.1"), 1, func() time.Time { return at })
	last := ""
	for i := range 200_000 {
		if i == 100_000 {
			at = at.Add(-time.Hour)
		}
		if i == 150_000 {
			at = at.Add(2 * time.Hour)
		}
		key := u.Next()
		if key <= last {
			t.Fatalf("key %d: %s after %s", i, key, last)
		}
		last = key
	}
}

func TestUniqueKeysEnterMonth(t *testing.T) {
	at := time.Date(2024, 1, 31, 23, 59, 59, 999e6, time.UTC)
	u := NewUniqueKeys(netip.MustParseAddr("10.0.0.1"), 1, func() time.Time { return at })
	before := u.Next()
	at = at.Add(time.Millisecond)
	after := u.Next()
	if before[20:28] != "9FA523FF" || after[20:28] != "00000000" {
		t.Errorf("times %s, %s", before[20:28], after[20:28])
	}
}

func TestUniqueKeysTogether(t *testing.T) {
	u := NewUniqueKeys(netip.MustParseAddr("10.0.0.1"), 1, time.Now)
	var mu sync.Mutex
	seen := map[string]bool{}
	var wg sync.WaitGroup
	for range 8 {
		wg.Go(func() {
			for range 1000 {
				key := u.Next()
				mu.Lock()
				if seen[key] {
					t.Errorf("key %s twice", key)
				}
				seen[key] = true
				mu.Unlock()
			}
		})
	}
	wg.Wait()
}

func TestTagHash(t *testing.T) {
	for tag, want := range map[string]int64{
		"":                   0,
		"a":                  97,
		"TagA":               2598919,
		"TAGS":               2567193,
		"polygenelubricants": -2147483648,
		"привет":             2093147784,
		"é":                  233,
		"😀":                  0xD83D*31 + 0xDE00,
	} {
		if got := TagHash([]byte(tag)); got != want {
			t.Errorf("%q: %d, want %d", tag, got, want)
		}
	}
}

func BenchmarkUniqueKey(b *testing.B) {
	u := NewUniqueKeys(netip.MustParseAddr("10.0.0.1"), 1, time.Now)
	buf := make([]byte, 0, 64)
	for b.Loop() {
		buf = u.AppendNext(buf[:0])
	}
}
