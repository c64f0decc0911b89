package client

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// nameServers is the fixed list of name servers and the one in use. A client
// stays with the server it chose until a call to it fails.
type nameServers struct {
	addrs   []string
	current atomic.Uint32 // index into addrs, modulo its length
}

func newNameServers(addrs []string) *nameServers {
	n := &nameServers{addrs: slices.Clone(addrs)}
	n.current.Store(rand.Uint32N(uint32(len(addrs))))
	return n
}

// NameServers returns the configured name servers.
func (c *Client) NameServers() []string { return slices.Clone(c.names.addrs) }

// CallNameServer sends a request to the name server in use and returns its
// response, whatever its code. A server that cannot be reached or does not
// answer is left for the next one; each is asked once at most, within ctx.
// newRequest is called once per attempt.
func (c *Client) CallNameServer(ctx context.Context, newRequest func() *protocol.Command) (*protocol.Command, error) {
	n := c.names
	var failures []error
	for left := len(n.addrs); left > 0; left-- {
		start := n.current.Load()
		addr := n.addrs[int(start)%len(n.addrs)]
		attempt, cancel := withShare(ctx, c.o.CallTimeout, left)
		resp, err := c.Call(attempt, addr, newRequest())
		cancel()
		if err == nil {
			return resp, nil
		}
		failures = append(failures, fmt.Errorf("name server %s: %w", addr, err))
		// Others may have moved on already; then their choice stands.
		n.current.CompareAndSwap(start, start+1)
		if ctx.Err() != nil {
			break
		}
	}
	return nil, errors.Join(failures...)
}

// withShare gives one of several attempts its part of the time left in ctx, at
// most limit: a silent first server must not use up the time of the others.
func withShare(ctx context.Context, limit time.Duration, attempts int) (context.Context, context.CancelFunc) {
	if deadline, ok := ctx.Deadline(); ok && attempts > 1 {
		limit = min(limit, time.Until(deadline)/2)
	}
	return context.WithTimeout(ctx, limit)
}
