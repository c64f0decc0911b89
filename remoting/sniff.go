package remoting

import (
	"bytes"
	"net"
)

// tlsRecord is the first byte of a TLS handshake. A frame starts with the high
// byte of its length: 0x00, or 0x01 for the largest one.
const tlsRecord = 0x16

// foreign lists how other protocols begin, with what to say to whoever reads the
// log. The length word of a frame can look like none of them.
var foreign = [...]struct{ start, says string }{
	{"\x16\x03", "TLS ClientHello, but TLS is not configured here"},
	{"PRI * HTTP/2", "HTTP/2 preface (a gRPC client?): this port speaks RocketMQ remoting"},
	{"PROXY ", "PROXY protocol version 1 header: it is not supported, switch it off in the load balancer"},
	{"\r\n\r\n\x00\r\nQUIT\n", "PROXY protocol version 2 header: it is not supported, switch it off in the load balancer"},
	{"GET ", "HTTP request: this port speaks RocketMQ remoting"},
	{"PUT ", "HTTP request: this port speaks RocketMQ remoting"},
	{"POST ", "HTTP request: this port speaks RocketMQ remoting"},
	{"HEAD ", "HTTP request: this port speaks RocketMQ remoting"},
	{"DELETE ", "HTTP request: this port speaks RocketMQ remoting"},
	{"OPTIONS ", "HTTP request: this port speaks RocketMQ remoting"},
	{"CONNECT ", "HTTP request: this port speaks RocketMQ remoting"},
	{"SSH-", "SSH banner: this port speaks RocketMQ remoting"},
}

// sniff says what protocol a connection's first bytes belong to, "" when it
// cannot tell. A beginning that was cut by the network counts from four bytes on.
func sniff(first []byte) string {
	for _, f := range foreign {
		n := min(len(f.start), len(first))
		if n >= min(4, len(f.start)) && bytes.HasPrefix(first, []byte(f.start[:n])) {
			return f.says
		}
	}
	return ""
}

// A replayConn reads first what was read from its connection before.
type replayConn struct {
	net.Conn
	head []byte
}

// Read returns the head, then what the connection has.
func (r *replayConn) Read(p []byte) (int, error) {
	if len(r.head) == 0 {
		return r.Conn.Read(p)
	}
	n := copy(p, r.head)
	r.head = r.head[n:]
	if len(r.head) == 0 {
		r.head = nil
	}
	return n, nil
}
