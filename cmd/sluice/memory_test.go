package main

import (
	"runtime/debug"
	"testing"

	"github.com/sluicemq/sluice/configs"
)

func TestMemoryLimit(t *testing.T) {
	before := debug.SetMemoryLimit(-1)
	defer debug.SetMemoryLimit(before)
	c, err := configs.Loader{}.Load()
	if err != nil {
		t.Fatal(err)
	}
	given := func(string) (string, bool) { return "1GiB", true }
	missing := func(string) (string, bool) { return "", false }
	limitMemory(c, given)
	if got := debug.SetMemoryLimit(-1); got != before {
		t.Errorf("GOMEMLIMIT is overruled: %d", got)
	}
	limitMemory(c, missing)
	if got := debug.SetMemoryLimit(-1); got != memoryLimit {
		t.Errorf("got %d", got)
	}
	c.Sidecar.MaxMessage = 12 << 20
	limitMemory(c, missing)
	if got := debug.SetMemoryLimit(-1); got != 192<<20 {
		t.Errorf("got %d", got)
	}
}
