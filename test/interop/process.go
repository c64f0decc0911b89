//go:build interop

package interop

import (
	"bufio"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

// A process is a child whose output is kept line by line, so that a test can
// wait for what it says. It is always ended by its own process handle.
type process struct {
	name  string
	cmd   *exec.Cmd
	stdin io.WriteCloser
	ended chan struct{} // closed when the child has been waited for

	mu      sync.Mutex
	out     []string // standard output
	both    []string // standard output and error, for people
	grown   chan struct{}
	waitErr error
}

// newProcess starts argv in dir with env added to the environment.
func newProcess(name, dir string, env []string, argv ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(argv[0], argv[1:]...), ended: make(chan struct{}), grown: make(chan struct{})}
	p.cmd.Dir = dir
	p.cmd.Env = append(os.Environ(), env...)
	// A child of a test that is itself killed must not live on.
	p.cmd.SysProcAttr = &syscall.SysProcAttr{Pdeathsig: syscall.SIGKILL}
	stdin, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	p.stdin = stdin
	stdout, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	stderr, err := p.cmd.StderrPipe()
	if err != nil {
		return nil, err
	}
	if err := p.cmd.Start(); err != nil {
		return nil, err
	}
	var readers sync.WaitGroup
	readers.Go(func() { p.read(stdout, true) })
	readers.Go(func() { p.read(stderr, false) })
	go func() {
		readers.Wait()
		err := p.cmd.Wait()
		p.mu.Lock()
		p.waitErr = err
		p.mu.Unlock()
		close(p.ended)
	}()
	return p, nil
}

func (p *process) read(r io.Reader, isOut bool) {
	s := bufio.NewScanner(r)
	s.Buffer(nil, 1<<20)
	for s.Scan() {
		p.mu.Lock()
		if isOut {
			p.out = append(p.out, s.Text())
		}
		p.both = append(p.both, s.Text())
		close(p.grown)
		p.grown = make(chan struct{})
		p.mu.Unlock()
	}
	_, _ = io.Copy(io.Discard, r) // a line too long must not block the child
}

// lines returns a copy of the standard output so far.
func (p *process) lines() []string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return append([]string(nil), p.out...)
}

// await returns when seen answers true about all output so far, and fails when
// the child ends or the time is up before.
func (p *process) await(limit time.Duration, what string, seen func(lines []string) bool) error {
	deadline := time.NewTimer(limit)
	defer deadline.Stop()
	for {
		p.mu.Lock()
		ok, grown := seen(p.both), p.grown
		p.mu.Unlock()
		if ok {
			return nil
		}
		select {
		case <-grown:
		case <-p.ended:
			p.mu.Lock()
			defer p.mu.Unlock()
			if seen(p.both) {
				return nil
			}
			return fmt.Errorf("%s ended (%v) before %s", p.name, p.waitErr, what)
		case <-deadline.C:
			return fmt.Errorf("%s: %s did not come within %v", p.name, what, limit)
		}
	}
}

// awaitText is await for one piece of text.
func (p *process) awaitText(limit time.Duration, text string) error {
	from := 0
	return p.await(limit, fmt.Sprintf("%q", text), func(lines []string) bool {
		for ; from < len(lines); from++ {
			if strings.Contains(lines[from], text) {
				return true
			}
		}
		return false
	})
}

var errTime = errors.New("time is up")

// wait returns how the child ended; errTime when it has not.
func (p *process) wait(limit time.Duration) error {
	t := time.NewTimer(limit)
	defer t.Stop()
	select {
	case <-p.ended:
		p.mu.Lock()
		defer p.mu.Unlock()
		return p.waitErr
	case <-t.C:
		return fmt.Errorf("%s: %w after %v", p.name, errTime, limit)
	}
}

// running tells whether the child has not ended.
func (p *process) running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// stop ends the child in good order: SIGTERM, and SIGKILL if that is ignored.
func (p *process) stop() error {
	_ = p.cmd.Process.Signal(syscall.SIGTERM)
	if err := p.wait(60 * time.Second); errors.Is(err, errTime) {
		p.kill()
		return err
	}
	return nil
}

// kill is SIGKILL: what a crash leaves.
func (p *process) kill() {
	_ = p.cmd.Process.Kill()
	<-p.ended
}

// keepLog writes the output to a file in dir, for a test that failed.
func (p *process) keepLog(dir string) {
	p.mu.Lock()
	text := strings.Join(p.both, "\n")
	p.mu.Unlock()
	if err := os.MkdirAll(dir, 0o755); err == nil {
		_ = os.WriteFile(filepath.Join(dir, p.name+".log"), []byte(text+"\n"), 0o644)
	}
}

// start is newProcess for one test: the child ends with it, and its output is
// kept when the test fails.
func start(t *testing.T, name, dir string, env []string, argv ...string) *process {
	t.Helper()
	p, err := newProcess(name, dir, env, argv...)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if p.running() {
			p.kill()
		}
		if t.Failed() {
			p.keepLog(filepath.Join(logDir, t.Name()))
			t.Logf("the output of %s is in %s", name, filepath.Join(logDir, t.Name()))
		}
	})
	return p
}
