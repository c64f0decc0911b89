// Package interop drives real programs against Sluice and Sluice against real
// servers: Apache RocketMQ's Java clients and servers, its Go client, and a NATS
// server. The tests have the build tag interop, so that go test ./... needs
// nothing but Go; see README.md.
package interop
