package protocol

import (
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// TestRememberedShapeChangesNothing decodes headers of changing shapes into one
// Command, and each into a fresh one: what is remembered of the header before
// must not show.
func TestRememberedShapeChangesNothing(t *testing.T) {
	rng := rand.New(rand.NewPCG(1, 2))
	names := []string{"a", "topic", "b", `\u0062`, "queueId", "longer-than-what-is-remembered-" + strings.Repeat("x", 64), "", "i\"x"[:1]}
	values := []string{`"T"`, `""`, `"UNIQ\u0001x\u0002"`, `7`, `null`, `true`, ` "spaced"`, `"quote \" inside"`, `{}`, `"open`}
	header := func() string {
		var b strings.Builder
		b.WriteString(`{"code":310,"opaque":1,"extFields":{`)
		for n := range rng.IntN(12) {
			if n > 0 {
				b.WriteString([]string{",", ",", ",", " ,", ", ", ""}[rng.IntN(6)])
			}
			fmt.Fprintf(&b, `"%s"%s%s`, names[rng.IntN(len(names))], []string{":", ":", ":", " : "}[rng.IntN(4)], values[min(rng.IntN(60), 9-rng.IntN(10))])
		}
		b.WriteString(`}}`)
		return b.String()
	}
	headers := make([]string, 50)
	for i := range headers {
		headers[i] = header()
	}
	var kept Command
	good := 0
	for range 20_000 {
		// One in four is cut at some byte.
		text := headers[rng.IntN(len(headers))]
		if rng.IntN(4) == 0 {
			text = text[:rng.IntN(len(text))]
		}
		frame := append([]byte{0, 0, byte(len(text) >> 8), byte(len(text))}, text...)
		var fresh Command
		freshErr := fresh.Decode(append([]byte(nil), frame...))
		keptErr := kept.Decode(append([]byte(nil), frame...))
		if fmt.Sprint(freshErr) != fmt.Sprint(keptErr) {
			t.Fatalf("%s\nfresh: %v\n kept: %v", text, freshErr, keptErr)
		}
		if freshErr != nil {
			continue
		}
		good++
		if len(fresh.Fields)+len(kept.Fields) > 0 && !reflect.DeepEqual(fresh.Fields, kept.Fields) {
			t.Fatalf("%s\nfresh: %q\n kept: %q", text, fresh.Fields, kept.Fields)
		}
	}
	if good < 1000 {
		t.Fatalf("only %d headers were good", good)
	}
}
