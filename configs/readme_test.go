package configs

import (
	"bytes"
	"os"
	"testing"
)

// TestReadmeNamesEveryKey keeps the reference table of the README complete.
func TestReadmeNamesEveryKey(t *testing.T) {
	readme, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
	newSchema().walk("", func(key string, n *node) {
		if n.leaf() && n.kind != list && !bytes.Contains(readme, []byte("`"+key+"`")) {
			t.Errorf("README.md has no row for `%s`", key)
		}
	})
}
