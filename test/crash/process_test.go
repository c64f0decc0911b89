package crash

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// patience bounds every wait.
const patience = 60 * time.Second

// A child is one life of the binary. It ends with the test that started it.
type child struct {
	t     *testing.T
	name  string
	cmd   *exec.Cmd
	born  time.Time
	ended chan struct{} // closed when it has been waited for
	err   error         // valid then
	logs  tail
}

// launch starts the binary with a configuration file.
func launch(t *testing.T, name, config string) *child {
	t.Helper()
	c := &child{t: t, name: name, cmd: exec.Command(binary, "run", "-c", config), ended: make(chan struct{})}
	c.cmd.Stdout, c.cmd.Stderr = &c.logs, &c.logs
	// A child of a test that is itself killed must not live on.
	c.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	c.born = time.Now()
	if err := c.cmd.Start(); err != nil {
		t.Fatal(err)
	}
	go func() {
		c.err = c.cmd.Wait()
		close(c.ended)
	}()
	t.Cleanup(func() {
		c.kill()
		if t.Failed() {
			t.Logf("%s said last:\n%s", c.name, c.logs.String())
		}
	})
	return c
}

// kill ends the child as kill -9 does, and returns when it is gone.
func (c *child) kill() {
	_ = c.cmd.Process.Kill()
	<-c.ended
	if text := c.logs.String(); strings.Contains(text, "DATA RACE") || strings.Contains(text, "panic:") {
		c.t.Errorf("%s said:\n%s", c.name, text)
	}
}

// stop asks the child to end and demands that it does so cleanly.
func (c *child) stop() {
	c.t.Helper()
	if err := c.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		c.t.Fatalf("stop %s: %v", c.name, err)
	}
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-c.ended:
		if c.err != nil {
			c.t.Fatalf("%s did not stop cleanly: %v", c.name, c.err)
		}
	case <-late.C:
		c.t.Fatalf("%s does not stop", c.name)
	}
}

// ready asks until the child answers, and returns how long that took since its
// birth.
func (c *child) ready(ask func(ctx context.Context) error) time.Duration {
	c.t.Helper()
	err := eventually(func(ctx context.Context) error {
		select {
		case <-c.ended:
			return fmt.Errorf("%w: %s: %w", errGone, c.name, c.err)
		default:
			return ask(ctx)
		}
	})
	if err != nil {
		c.t.Fatalf("%s is not ready: %v", c.name, err)
	}
	return time.Since(c.born)
}

var errGone = errors.New("ended by itself")

// eventually asks every few milliseconds until the answer is nil, or time is up.
func eventually(ask func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	tick := time.NewTicker(2 * time.Millisecond)
	defer tick.Stop()
	for {
		err := ask(ctx)
		if err == nil || errors.Is(err, errGone) {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return err
		}
	}
}

// A tail keeps the last of what is written to it.
type tail struct {
	mu   sync.Mutex
	text []byte
}

const tailBytes = 16 << 10

// Write never fails.
func (b *tail) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.text = append(b.text, p...)
	if len(b.text) > 2*tailBytes {
		b.text = append(b.text[:0], b.text[len(b.text)-tailBytes:]...)
	}
	return len(p), nil
}

func (b *tail) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return string(b.text)
}

// freeAddr returns a loopback address that nobody listens on. Its port is below
// those that the system gives to outgoing connections, so that none of these
// takes it while a child is down.
func freeAddr(t *testing.T) string {
	t.Helper()
	for range 1000 {
		addr := fmt.Sprintf("127.0.0.1:%d", 15_000+rand.IntN(15_000))
		l, err := net.Listen("tcp", addr)
		if err != nil {
			continue
		}
		_ = l.Close()
		return addr
	}
	t.Fatal("no free port")
	return ""
}

// writeConfig writes a configuration file.
func writeConfig(t *testing.T, name, format string, args ...any) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), name+".yaml")
	text := strings.TrimLeft(fmt.Sprintf(format, args...), "\n")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}
