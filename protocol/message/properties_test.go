package message

import (
	"errors"
	"maps"
	"strings"
	"testing"
)

func TestParseProperties(t *testing.T) {
	for _, c := range []struct {
		name, text string
		want       map[string]string
	}{
		{"none", "", map[string]string{}},
		{"two", "A\x011\x02B\x012\x02", map[string]string{"A": "1", "B": "2"}},
		{"last separator missing", "A\x011\x02B\x012", map[string]string{"A": "1", "B": "2"}},
		{"later wins", "A\x011\x02A\x012\x02", map[string]string{"A": "2"}},
		{"dropped duplicate does not win", "A\x011\x02A\x01\x02", map[string]string{"A": "1"}},
		{"empty value", "A\x01\x02B\x012\x02", map[string]string{"B": "2"}},
		{"empty name", "\x01v\x02B\x012\x02", map[string]string{"B": "2"}},
		{"no separator", "ABC\x02B\x012\x02", map[string]string{"B": "2"}},
		{"too short", "A\x02\x02\x01\x02B\x012\x02", map[string]string{"B": "2"}},
		{"separator in the value", "A\x01x\x01y\x02", map[string]string{"A": "x\x01y"}},
		{"prefix of another name", "AB\x011\x02A\x012\x02ABC\x013\x02", map[string]string{"AB": "1", "A": "2", "ABC": "3"}},
		{"utf-8", "ключ\x01знач\x02", map[string]string{"ключ": "знач"}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ParseProperties([]byte(c.text)); !maps.Equal(got, c.want) {
				t.Errorf("got %q, want %q", got, c.want)
			}
			for name, want := range c.want {
				if got, ok := Property([]byte(c.text), name); string(got) != want || !ok {
					t.Errorf("%s: %q %v, want %q", name, got, ok, want)
				}
			}
			if _, ok := Property([]byte(c.text), "absent"); ok {
				t.Error("found what is not there")
			}
		})
	}
}

func TestEachPropertyStops(t *testing.T) {
	calls := 0
	EachProperty([]byte("A\x011\x02B\x012\x02"), func(_, _ []byte) bool { calls++; return false })
	if calls != 1 {
		t.Errorf("%d calls", calls)
	}
}

func TestAppendProperty(t *testing.T) {
	for _, c := range []struct{ before, name, value, want string }{
		{"", "A", "1", "A\x011\x02"},
		{"A\x011\x02", "B", "2", "A\x011\x02B\x012\x02"},
		{"A\x011", "B", "2", "A\x011\x02B\x012\x02"}, // an old client's text
		{"A\x011", "B", "", "A\x011"},
		{"A\x011", "", "2", "A\x011"},
	} {
		if got := string(AppendProperty([]byte(c.before), c.name, c.value)); got != c.want {
			t.Errorf("%q + %s=%s: %q, want %q", c.before, c.name, c.value, got, c.want)
		}
	}
}

func TestAppendPropertiesWithout(t *testing.T) {
	got := AppendPropertiesWithout(nil, []byte("POP_CK\x01x\x02A\x011\x02POP_CK\x01y\x02B\x012"), PropertyPopCheckPoint)
	if string(got) != "A\x011\x02B\x012\x02" {
		t.Errorf("%q", got)
	}
}

func TestFormatProperties(t *testing.T) {
	in := map[string]string{"B": "2", "A": "1", "empty": ""}
	got, err := FormatProperties(in)
	if err != nil || string(got) != "A\x011\x02B\x012\x02" {
		t.Errorf("%q %v", got, err)
	}
	for _, bad := range []map[string]string{{"": "x"}, {"a\x01": "x"}, {"a": "x\x02"}} {
		if _, err := FormatProperties(bad); !errors.Is(err, ErrBadProperty) {
			t.Errorf("%q: %v", bad, err)
		}
	}
	if _, err := FormatProperties(map[string]string{"a": strings.Repeat("x", MaxPropertiesLen)}); !errors.Is(err, ErrPropertiesTooLong) {
		t.Errorf("too long: %v", err)
	}
}

func TestIsSystemProperty(t *testing.T) {
	for _, name := range []string{PropertyKeys, PropertyUniqueKey, PropertyCRC32} {
		if !IsSystemProperty(name) {
			t.Errorf("%s is the system's", name)
		}
	}
	if IsSystemProperty("color") || IsSystemProperty("") {
		t.Error("an application's property is called the system's")
	}
}

func BenchmarkProperty(b *testing.B) {
	props := []byte("KEYS\x01order-1\x02UNIQ_KEY\x01C0A8000900002A9F0000000000001000\x02WAIT\x01true\x02TAGS\x01TagA\x02")
	for b.Loop() {
		Property(props, "TAGS")
	}
}
