package remoting

import (
	"fmt"
	"sync/atomic"

	"github.com/sluicemq/sluice/protocol"
)

// A route is a Route made ready: with its place among the streams and its count
// of running handlers.
type route struct {
	code    protocol.RequestCode
	handler Handler
	factory *StreamFactory
	stream  int // index into Conn.streams
	inline  bool
	limit   int64
	running atomic.Int64
}

// routes is the read-only form of a Table.
type routes struct {
	byCode  map[protocol.RequestCode]*route
	streams int // how many different StreamFactories
}

func newRoutes(t Table) (*routes, error) {
	r := &routes{byCode: make(map[protocol.RequestCode]*route, len(t))}
	index := make(map[*StreamFactory]int)
	for code, entry := range t {
		if (entry.Handler == nil) == (entry.Stream == nil) {
			return nil, fmt.Errorf("route of %v: needs a handler or a stream", code)
		}
		rt := &route{code: code, handler: entry.Handler, factory: entry.Stream, inline: entry.Inline, limit: int64(entry.Limit)}
		if entry.Stream != nil {
			if _, ok := index[entry.Stream]; !ok {
				index[entry.Stream] = len(index)
			}
			rt.stream = index[entry.Stream]
		}
		r.byCode[code] = rt
	}
	r.streams = len(index)
	return r, nil
}

// lookup returns the route of a request, nil when there is none.
func (c *Conn) lookup(code protocol.RequestCode) *route {
	if c.last != nil && c.last.code == code {
		return c.last
	}
	rt := c.ep.routes.byCode[code]
	if rt != nil {
		c.last = rt
	}
	return rt
}

// enter counts one more request of size bytes under way. Over a limit, of its
// code or of the endpoint, it counts nothing and reports false.
func (ep *endpoint) enter(rt *route, size int) bool {
	calls, held, running := ep.calls.Add(1), ep.held.Add(int64(size)), rt.running.Add(1)
	if calls > ep.maxCalls || held > maxCallBytes || rt.limit > 0 && running > rt.limit {
		ep.leave(rt, size)
		return false
	}
	return true
}

func (ep *endpoint) leave(rt *route, size int) {
	rt.running.Add(-1)
	ep.held.Add(-int64(size))
	ep.calls.Add(-1)
}
