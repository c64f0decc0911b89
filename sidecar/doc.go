// Package sidecar is the role that takes local traffic into a spool and
// forwards it.
//
// Many small doors (door_*.go) end in one engine, the broker's, whose spool
// makes a message durable before it is acknowledged. Lanes (lane.go) read the
// spool in order and hand it to an upstream; a lane's cursor moves only past
// what the upstream has acknowledged. A message that is sent again after a doubt
// carries the same unique key, so that the upstream can recognise it.
package sidecar
