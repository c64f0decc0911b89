// Package protocol holds the words of the RocketMQ remoting protocol: request
// and response codes, typed headers and bodies, and the frames that carry them
// in both header codings. It is pure data: no connection, no file, no goroutine.
//
//	 0        4             8
//	+--------+------+------+----------------+-------------+
//	| length | kind | hlen | header (hlen)  | body        |
//	+--------+------+------+----------------+-------------+
//	  u32      u8     u24    JSON or binary   opaque bytes
//
// length counts everything after itself. A Command is a decoded frame, a
// FrameWriter encodes one without building a Command first.
package protocol
