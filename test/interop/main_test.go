//go:build interop

package interop

import (
	"fmt"
	"os"
	"testing"
)

func TestMain(m *testing.M) {
	if err := prepare(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	os.Exit(m.Run())
}

func prepare() error {
	for _, dir := range []string{targetDir, cacheDir} {
		if err := os.MkdirAll(dir, 0o755); err != nil {
			return err
		}
	}
	return os.RemoveAll(logDir)
}
