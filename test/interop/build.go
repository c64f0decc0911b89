//go:build interop

package interop

import (
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"sync"
	"testing"
)

// Places, as absolute paths: children run in directories of their own.
var (
	here      = absolute(".")
	module    = absolute("../..")
	targetDir = filepath.Join(here, "target")
	logDir    = filepath.Join(targetDir, "failed") // output of failed tests
	cacheDir  = filepath.Join(targetDir, "data")   // data sets
)

func absolute(path string) string {
	abs, err := filepath.Abs(path)
	if err != nil {
		panic(err) // the working directory is gone
	}
	return abs
}

// The programs under test and beside it; each is built when it is first needed.
var (
	sluice   = built(module, "sluice", "./cmd/sluice")
	natsd    = built(module, "nats-server", "github.com/nats-io/nats-server/v2")
	goClient = built(filepath.Join(here, "goclient"), "goclient", ".")
	java     = sync.OnceValues(func() (string, error) {
		run := filepath.Join(here, "java", "run")
		return run, command(here, run, "build")
	})
)

// built returns a function that builds a Go program once and returns its path.
func built(dir, name, pkg string) func() (string, error) {
	return sync.OnceValues(func() (string, error) {
		path := filepath.Join(targetDir, name)
		return path, command(dir, "go", "build", "-o", path, pkg)
	})
}

func command(dir string, argv ...string) error {
	cmd := exec.Command(argv[0], argv[1:]...)
	cmd.Dir, cmd.Stdout, cmd.Stderr = dir, os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		return fmt.Errorf("%v: %w", argv, err)
	}
	return nil
}

// program returns the path of a built program.
func program(t *testing.T, build func() (string, error)) string {
	t.Helper()
	path, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return path
}
