package client

import (
	"bytes"
	"errors"
	"log/slog"
	"strings"
	"testing"
)

// A topic that is not there is looked for every second; the log says so once.
func TestWhyQueuesAreNotDividedIsToldOnce(t *testing.T) {
	var out bytes.Buffer
	p := &PushConsumer{c: &Client{logger: slog.New(slog.NewTextHandler(&out, nil))}, undone: map[string]string{}}
	for _, err := range []error{errors.New("no route"), errors.New("no route"), errors.New("no members"), errors.New("no members"), nil, nil, errors.New("no members")} {
		p.tell("orders", err)
	}
	if n := strings.Count(out.String(), "\n"); n != 4 {
		t.Errorf("%d lines, want one for each change, 4:\n%s", n, out.String())
	}
}
