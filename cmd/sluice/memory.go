package main

import (
	"runtime/debug"

	"github.com/sluicemq/sluice/configs"
)

// memoryLimit is what the Go runtime keeps to under load, so that all anonymous memory stays
// below 96 MB. Stored messages are read from mapped files, which are not part of it.
const memoryLimit = 84 << 20

// limitMemory sets the runtime's limit unless the environment has one. Larger messages than
// the default need a limit that has room for several of them.
func limitMemory(c *configs.Config, lookup func(string) (string, bool)) {
	if _, given := lookup("GOMEMLIMIT"); !given {
		largest := max(c.Broker.MaxMessage, c.Sidecar.MaxMessage)
		debug.SetMemoryLimit(max(memoryLimit, 16*int64(largest)))
	}
}
