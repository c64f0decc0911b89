package protocol

import (
	"strings"
	"testing"
)

func TestEveryCodeHasAName(t *testing.T) {
	codes := RequestCodes()
	seen := make(map[string]RequestCode)
	for i, c := range codes {
		if i > 0 && c <= codes[i-1] {
			t.Errorf("%d follows %d", c, codes[i-1])
		}
		name := c.String()
		if name == "" || name != strings.ToUpper(name) || strings.HasPrefix(name, "REQUEST_CODE_") {
			t.Errorf("%d is called %q", c, name)
		}
		if other, double := seen[name]; double {
			t.Errorf("%d and %d are both %s", c, other, name)
		}
		seen[name] = c
	}
	for c := range catalogue {
		if seen[c.String()] != c {
			t.Errorf("%d is not listed", c)
		}
	}
	if SendMessageV2.String() != "SEND_MESSAGE_V2" || RequestCode(9999).String() != "REQUEST_CODE_9999" {
		t.Error("wrong request names")
	}
	if TopicNotExist.String() != "TOPIC_NOT_EXIST" || ResponseCode(9999).String() != "RESPONSE_CODE_9999" {
		t.Error("wrong response names")
	}
}

// Every code above 16 bits must come back whole from a binary header.
func TestCanonicalUndoesTheBinaryHeader(t *testing.T) {
	cut := 0
	for _, c := range RequestCodes() {
		if c > 1<<15-1 {
			cut++
		}
		if got := Canonical(RequestCode(uint16(c))); got != c {
			t.Errorf("%v: %d becomes %d", c, uint16(c), got)
		}
		r := NewRequest(c, nil, nil)
		r.Coding = Binary
		if got := decode(t, r.AppendTo(nil)).RequestCode(); got != c {
			t.Errorf("%v arrives as %d", c, got)
		}
	}
	if cut != 8 {
		t.Errorf("%d codes above 16 bits", cut)
	}
}
