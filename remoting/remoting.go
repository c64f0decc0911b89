// Package remoting carries commands of the RocketMQ remoting protocol over TCP
// and TLS. A Server and a Client share one kind of connection: either side may
// send requests, and both look up what to do with one in a Table.
//
// Each connection has one goroutine that reads. It takes what the socket has,
// handles every frame in it, and writes the answers out together:
//
//	socket ─read─▶ frames ─┬─ response ──────────▶ call table ─▶ done / waiting Call
//	                       ├─ request, Stream ───▶ Request … Request, Flush ─▶ one write
//	                       ├─ request, Inline ───▶ answer ────────────────────▶ same write
//	                       └─ request, Handler ──▶ own goroutine ─────────────▶ own write
//
// Anything that waits belongs into a Handler or into Conn.Go. remoting knows
// commands, never messages or files.
package remoting

import (
	"context"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// A Handler answers one request. It runs on a goroutine of its own with a copy
// of the request, which it may keep, unless its Route says Inline. The context
// ends when the connection closes and when the server begins to stop. A nil
// response with a nil error means that the request is answered later, by
// Conn.Reply, or never. An error that is no *protocol.Error is logged and
// becomes a system error (code 1) on the wire. The response may be shared: it is
// only read.
type Handler func(ctx context.Context, c *Conn, req *protocol.Command) (*protocol.Command, error)

// A Stream handles one connection's pipelined requests in the order of their
// arrival, on the goroutine that reads them. No two of its methods run at once,
// and it needs no lock of its own.
type Stream interface {
	// Request is called for each request. req and all it points to are valid
	// during the call only. An answer may be appended to w now or in Flush.
	Request(req *protocol.Command, w *Writer)
	// Flush is called when every frame that had arrived has been handled, or
	// early when the answers in w have grown large. It appends the answers
	// that are still owed and may wait for what they promise. The connection then
	// writes w out at once. While Flush waits, nothing is read from this
	// connection.
	//
	// Conn.Context ends when the server begins to stop; an answer that only
	// waits for durability should not give up then.
	Flush(w *Writer)
}

// A StreamFactory makes the Stream of each connection. Routes that share one
// *StreamFactory share one Stream per connection, so their requests keep
// their order among each other.
type StreamFactory struct{ New func(c *Conn) Stream }

// A Route says who handles a request code: Handler or Stream, not both.
type Route struct {
	Handler Handler
	Stream  *StreamFactory
	// Inline lets Handler run on the reading goroutine, for handlers that never
	// wait. Its request is valid only during the call.
	Inline bool
	// Limit bounds how many requests of this code are handled at once by
	// handlers with their own goroutine; 0 leaves only the limit over all codes.
	// What exceeds it is answered with code 2 (system busy).
	Limit int
}

// A Table maps request codes to routes. A request that is not in it gets code 3.
// It is read once, when the server or client is made.
type Table map[protocol.RequestCode]Route

// A Writer collects answer frames on their way to one connection. It belongs to
// the connection's reader and is valid only during the Stream call it came with.
type Writer struct {
	Buf []byte // Streams append whole frames
	c   *Conn
}

// Drain writes out what has been collected so far, for streams whose answers are
// large. An error means that the connection is gone.
func (w *Writer) Drain() error {
	if len(w.Buf) == 0 {
		return nil
	}
	err := w.c.sendBytes(w.Buf)
	if cap(w.Buf) > keepWriter {
		w.Buf = nil
	} else {
		w.Buf = w.Buf[:0]
	}
	return err
}

// Defaults of the options, after Apache's where it has them.
const (
	DefaultIdleTimeout      = 120 * time.Second
	DefaultWriteTimeout     = 30 * time.Second
	DefaultHandshakeTimeout = 10 * time.Second
	DefaultConnectTimeout   = 3 * time.Second
	DefaultCallTimeout      = 3 * time.Second
	DefaultGrace            = 3 * time.Second
	DefaultMaxFrame         = 16 << 20 // bytes, the length word included
	DefaultMaxCalls         = 2048
	DefaultMaxWaiting       = 16384
)

// Sizes in bytes that hold a connection's memory to what its traffic needs.
const (
	readStart  = 4 << 10   // first read buffer, and the one of an idle connection
	readMax    = 256 << 10 // the most that one read asks for, unless a frame is larger
	burstMax   = 256 << 10 // answers collected before an early flush
	keepWriter = 512 << 10 // larger answer buffers are not reused
	keepQueue  = 1 << 20   // larger queue buffers are not reused
	queueMax   = 4 << 20   // frames that may wait for a slow peer; beyond, senders wait
	writeChunk = 1 << 20   // what a peer must take within one write time-out

	maxCallBytes = 256 << 20 // requests held by handlers with their own goroutine, over all connections
)

// shrinkAfter is how long a connection with large buffers may be silent
// before it gets a small one, and its answer buffer is given up.
const shrinkAfter = 5 * time.Second

// goAwayVersion is the last client version (V5_3_1) that does not know code
// 1500.
const goAwayVersion = 475

const (
	remarkBusy   = "[REJECTREQUEST]system busy, start flow control for a while"
	remarkGoAway = "please go away"
)

// AppendResponse appends resp as the answer to req: with its opaque and header
// coding, marked as a response. It appends nothing when req wants no answer.
func AppendResponse(dst []byte, req, resp *protocol.Command) []byte {
	if req.IsOneWay() {
		return dst
	}
	frame := answerTo(req, resp)
	return frame.AppendTo(dst)
}

// AppendError is AppendResponse with the code and remark of err, see
// protocol.AsError.
func AppendError(dst []byte, req *protocol.Command, err error) []byte {
	e := protocol.AsError(err)
	return AppendResponse(dst, req, &protocol.Command{Code: int32(e.Code), Remark: e.Remark})
}

func answerTo(req, resp *protocol.Command) protocol.Command {
	frame := *resp
	frame.Opaque = req.Opaque
	frame.Coding = req.Coding
	frame.Flag |= protocol.FlagResponse
	frame.Version = protocol.CurrentVersion
	frame.Language = protocol.LanguageGo
	return frame
}
