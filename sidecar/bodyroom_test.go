package sidecar

import (
	"bufio"
	"fmt"
	"io"
	"net"
	"net/http"
	"strings"
	"testing"
)

// begin sends the head of a post on a connection of its own and leaves its body to the caller.
func (i *instance) begin(t *testing.T, header string) net.Conn {
	t.Helper()
	conn, err := net.Dial("tcp", i.sidecar.HTTPAddr())
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	if _, err := fmt.Fprintf(conn, "POST /v1/topics/orders/messages HTTP/1.1\r\nHost: x\r\n%s\r\n\r\n", header); err != nil {
		t.Fatal(err)
	}
	return conn
}

func statusOf(t *testing.T, conn net.Conn) (int, string) {
	t.Helper()
	resp, err := http.ReadResponse(bufio.NewReader(conn), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(text)
}

// A body that cannot be read whole is not stored, and must not be answered as
// if it were.
func TestBrokenBodyIsRefused(t *testing.T) {
	s, up := upstreamOf(t, oneQueue(10))
	conn := s.begin(t, "Transfer-Encoding: chunked")
	if _, err := io.WriteString(conn, "4\r\ngood\r\nZZZ\r\n"); err != nil {
		t.Fatal(err)
	}
	if status, text := statusOf(t, conn); status != http.StatusBadRequest || !strings.Contains(text, "ended early") {
		t.Errorf("a broken body is answered %d %q, want 400", status, text)
	}
	conn = s.begin(t, "Content-Length: 10")
	if _, err := io.WriteString(conn, "half"); err != nil {
		t.Fatal(err)
	}
	if err := conn.(*net.TCPConn).CloseWrite(); err != nil {
		t.Fatal(err)
	}
	if status, _ := statusOf(t, conn); status != http.StatusBadRequest {
		t.Errorf("half a body is answered %d, want 400", status)
	}
	s.must("orders", "last")
	up.has(t, "orders/0", 1)
	up.wantBodies(t, "orders/0", 1, []string{"last"})
}

// Bodies under way take bounded memory together; who comes too much is told to
// send again, and is served when others are through.
func TestBodiesUnderWayAreBounded(t *testing.T) {
	room := bodyRoom{limit: 100}
	first, second := &allowance{room: &room}, &allowance{room: &room}
	if _, err := io.ReadAll(first.reader(strings.NewReader(strings.Repeat("x", 60)))); err != nil {
		t.Fatalf("60 of 100 bytes: %v", err)
	}
	if _, err := io.ReadAll(second.reader(strings.NewReader(strings.Repeat("x", 60)))); err != errNoRoom {
		t.Fatalf("120 of 100 bytes: %v, want %v", err, errNoRoom)
	}
	second.giveBack()
	first.giveBack()
	third := &allowance{room: &room}
	if _, err := io.ReadAll(third.reader(strings.NewReader(strings.Repeat("x", 100)))); err != nil {
		t.Fatalf("100 of 100 bytes, after others gave back theirs: %v", err)
	}
	third.giveBack()
	if n := room.used.Load(); n != 0 {
		t.Errorf("%d bytes are never given back", n)
	}
}

func TestRequestsBeyondTheRoomAreTurnedAway(t *testing.T) {
	s, _ := upstreamOf(t, oneQueue(10))
	s.sidecar.http.room.limit = 1000
	if status, text := s.post("/v1/topics/orders/messages", "", strings.Repeat("x", 1001)); status != http.StatusTooManyRequests || !strings.Contains(text, "send again later") {
		t.Errorf("answer is %d %s, want 429", status, text)
	}
	s.must("orders", strings.Repeat("x", 1000))
}
