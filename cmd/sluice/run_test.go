package main

import (
	"bufio"
	"bytes"
	"context"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
)

// running is a process of all three roles on free ports.
type running struct {
	t                            *testing.T
	namesrv, broker, door, http_ string
	file                         string
	logs                         *lockedBuffer
	stop                         func() int
}

// lockedBuffer takes the log of a process while the test reads it.
type lockedBuffer struct {
	mu   sync.Mutex
	b    bytes.Buffer
	more chan struct{}
}

func (l *lockedBuffer) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case l.more <- struct{}{}:
	default:
	}
	return l.b.Write(p)
}

func (l *lockedBuffer) String() string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.String()
}

// wait returns once the log holds the text.
func (l *lockedBuffer) wait(ctx context.Context, t *testing.T, text string) {
	t.Helper()
	for !strings.Contains(l.String(), text) {
		select {
		case <-l.more:
		case <-ctx.Done():
			t.Fatalf("no %q in the log:\n%s", text, l)
		}
	}
}

func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// startAll runs the default chain, with small stores, and returns when it says that it is ready.
func startAll(t *testing.T, dir string) *running {
	t.Helper()
	r := &running{t: t, namesrv: freeAddress(t), broker: freeAddress(t), door: freeAddress(t), http_: freeAddress(t),
		file: filepath.Join(dir, "sluice.yaml"), logs: &lockedBuffer{more: make(chan struct{}, 1)}}
	r.configure("info", "core")
	ctx, cancel := context.WithCancel(context.Background())
	banner, out := io.Pipe()
	ended := make(chan int, 1)
	go func() {
		defer out.Close()
		ended <- execute(ctx, []string{"run", "-c", r.file, "--set", "data=" + filepath.Join(dir, "data")},
			streams{strings.NewReader(""), out, r.logs, nil})
	}()
	r.stop = sync.OnceValue(func() int { cancel(); return <-ended })
	t.Cleanup(func() { r.stop() })
	lines := bufio.NewScanner(banner)
	for lines.Scan() {
		if strings.Contains(lines.Text(), "consume demo") {
			go io.Copy(io.Discard, banner)
			r.logs.wait(t.Context(), t, "broker registered")
			return r
		}
	}
	t.Fatalf("ended before it was ready: %s", r.logs)
	return nil
}

func (r *running) configure(level, lane string) {
	r.t.Helper()
	text := fmt.Sprintf(`
log: {level: %s}
namesrv: {listen: %q}
broker: {listen: %q, namesrv: [%q], store: {segment: 8MiB}}
sidecar:
  store: {segment: 8MiB, max_bytes: 80MiB}
  doors: {rocketmq: {listen: %q}, http: {listen: %q}}
  upstreams: {core: {kind: rocketmq, namesrv: [%q]}}
  lanes: [{topics: ["*"], upstream: %s}]
`, level, r.namesrv, r.broker, r.namesrv, r.door, r.http_, r.namesrv, lane)
	if err := os.WriteFile(r.file, []byte(text), 0o600); err != nil {
		r.t.Fatal(err)
	}
}

// TestRunTheMainJob follows the README: post a message to the sidecar, read it from the broker,
// stop, and look into both stores.
func TestRunTheMainJob(t *testing.T) {
	dir := t.TempDir()
	r := startAll(t, dir)
	post(t, "http://"+r.http_+"/v1/topics/demo/messages", "hello")
	got := call(t, nil, "consume", "demo", "-n", r.namesrv, "--group", "try", "--from", "first", "--count", "1")
	if got.code != exitOK || got.out != "hello\n" {
		t.Fatalf("consume: exit %d, %q, %s", got.code, got.out, got.err)
	}
	got = call(t, nil, "send", "orders", "-n", r.door, "--tag", "new", "--property", "shop=7", "by remoting")
	if got.code != exitOK || !strings.HasPrefix(got.out, "SEND_OK ") {
		t.Fatalf("send: exit %d, %q, %s", got.code, got.out, got.err)
	}
	got = call(t, nil, "consume", "orders", "-n", r.namesrv, "--group", "try", "--from", "first", "--count", "1", "--json")
	if got.code != exitOK || !strings.Contains(got.out, `"body":"by remoting"`) || !strings.Contains(got.out, `"shop":"7"`) {
		t.Fatalf("consume: exit %d, %q, %s", got.code, got.out, got.err)
	}
	if got := call(t, nil, "spool", "stat", filepath.Join(dir, "data", "sidecar")); got.code != exitFailure {
		t.Errorf("stat of a store in use: exit %d", got.code)
	}
	if code := r.stop(); code != exitOK {
		t.Fatalf("run: exit %d, %s", code, r.logs)
	}
	for _, role := range []string{"sidecar", "broker"} {
		got := call(t, nil, "spool", "stat", "--verify", filepath.Join(dir, "data", role))
		if text := strings.Join(strings.Fields(got.out), " "); !strings.Contains(text, "last stop clean") || !strings.Contains(text, "records 2") {
			t.Errorf("%s: %s%s", role, got.out, got.err)
		}
	}
}

func TestTopicCommands(t *testing.T) {
	r := startAll(t, t.TempDir())
	at := []string{"-n", r.namesrv}
	for _, tt := range []struct {
		args []string
		code int
		want string // in stdout or stderr
	}{
		{[]string{"topic", "create", "orders", "--queues", "3"}, exitOK, "3 queues, rw"},
		{[]string{"topic", "list"}, exitOK, "orders\n"},
		{[]string{"topic", "list", "--system"}, exitOK, "DefaultCluster\n"},
		{[]string{"topic", "describe", "orders"}, exitOK, "broker-a  2      0    0    0"},
		{[]string{"route", "orders"}, exitOK, "0=" + r.broker + "  3     3      rw"},
		{[]string{"route", "orders", "--json"}, exitOK, `"brokerName": "broker-a"`},
		{[]string{"topic", "create", "orders", "--perm", "x"}, exitUsage, "none of rw, r, w"},
		{[]string{"topic", "create", "a b"}, exitUsage, "a b"},
		{[]string{"topic", "delete", "orders"}, exitOK, "deleted"},
		{[]string{"topic", "delete", "orders"}, exitFailure, "orders"},
		{[]string{"route", "nowhere"}, exitFailure, "nowhere"},
		{[]string{"send", "SCHEDULE_TOPIC_XXXX", "x"}, exitFailure, "SCHEDULE_TOPIC_XXXX"},
		{[]string{"topic", "create", "x", "--broker", "a:1", "--cluster", "c"}, exitUsage, "none of the others can be"},
		{[]string{"send", "orders", "x", "--property", "TAGS=x"}, exitUsage, "belongs to the system"},
		{[]string{"consume", "orders"}, exitUsage, "group"},
		{[]string{"consume", "orders", "-g", "g", "--from", "yesterday"}, exitUsage, "yesterday"},
	} {
		got := call(t, nil, append(tt.args, at...)...)
		if got.code != tt.code || !strings.Contains(got.out+got.err, tt.want) {
			t.Errorf("%v: exit %d, %q, %q; want %d, %q", tt.args, got.code, got.out, got.err, tt.code, tt.want)
		}
		if strings.Count(got.err, "\n") > 1 {
			t.Errorf("%v: more than one line on stderr: %q", tt.args, got.err)
		}
	}
}

func TestSendEveryLineOfStdin(t *testing.T) {
	r := startAll(t, t.TempDir())
	var out, err bytes.Buffer
	code := execute(t.Context(), []string{"send", "lines", "-", "-q", "-n", r.namesrv},
		streams{strings.NewReader("a\n\nb\nc"), &out, &err, nil})
	if code != exitOK || out.String() != "3 stored\n" {
		t.Fatalf("exit %d, %q, %s", code, out.String(), err.String())
	}
	got := call(t, nil, "consume", "lines", "-n", r.namesrv, "-g", "g", "--from", "first", "--count", "3")
	for _, line := range []string{"a\n", "b\n", "c\n"} {
		if !strings.Contains(got.out, line) {
			t.Errorf("no %q in %q", line, got.out)
		}
	}
}

func TestReloadWhileRunning(t *testing.T) {
	r := startAll(t, t.TempDir())
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	r.configure("debug", "core")
	r.logs.wait(ctx, t, "changed=[log.level]")
	r.configure("debug", "cor")
	r.logs.wait(ctx, t, `the nearest is core`)
	r.configure("warn", "core")
	// A signal reads the file at once; without a change since, nothing is applied twice.
	if err := syscall.Kill(os.Getpid(), syscall.SIGHUP); err != nil {
		t.Fatal(err)
	}
	post(t, "http://"+r.http_+"/v1/topics/demo/messages", "still serving")
}

func TestRunRefuses(t *testing.T) {
	busy, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer busy.Close()
	data := "data=" + t.TempDir()
	for _, tt := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"--set", "roles=namesrv", "--set", "namesrv.listen=" + busy.Addr().String()}, exitFailure, "sluice: namesrv.listen: listen tcp"},
		{[]string{"--set", "roles=sidecar", "--set", "sidecar.doors.http.listen=" + busy.Addr().String()}, exitFailure, "sluice: sidecar.doors.http.listen: listen tcp"},
		{[]string{"--set", "rols=x"}, exitUsage, "the nearest known key is roles"},
		{[]string{"--pprof", "0.0.0.0:6060"}, exitUsage, "is not a loopback address"},
		{[]string{"--set", "roles=broker", "--set", "broker.tls={cert: /none.pem, key: /none.key}"}, exitFailure, "load the certificate"},
	} {
		got := call(t, nil, append([]string{"run", "--set", data}, tt.args...)...)
		if got.code != tt.code || !strings.Contains(got.err, tt.err) {
			t.Errorf("%v: exit %d, %q", tt.args, got.code, got.err)
		}
	}
}

func post(t *testing.T, url, body string) {
	t.Helper()
	resp, err := http.Post(url, "text/plain", strings.NewReader(body))
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	answer, _ := io.ReadAll(resp.Body)
	if resp.StatusCode != http.StatusOK {
		t.Fatalf("%s: %s", resp.Status, answer)
	}
}
