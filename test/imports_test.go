// Package test holds what spans packages.
package test

import (
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/sluicemq/sluice"

// rows are the layers from top to bottom. A package may import any row below its own; of its
// own row only what neighbours names. A pattern ending in /... stands for the directory and
// all below it; the longest pattern that fits a package decides.
var rows = []struct {
	name     string
	packages []string
}{
	{"wiring", []string{"cmd/sluice", "configs"}},
	{"roles", []string{"sidecar/...", "namesrv/...", "console/..."}},
	{"roles", []string{"broker"}},
	{"parts", []string{"broker/...", "upstream/...", "client/admin"}},
	{"engines", []string{"spool/...", "client", "client/...", "remoting/..."}},
	{"words", []string{"protocol/..."}},
}

// neighbours are the arrows inside a row.
var neighbours = map[string][]string{
	"cmd/sluice":    {"configs"},
	"spool/replica": {"spool", "spool/segment"},
	"spool":         {"spool/segment"},
	"client":        {"remoting", "client/rebalance"},
	"protocol":      {"protocol/message"},
	// Support for tests of the engines, used by no product code.
	"client/clienttest":     {"client", "remoting"},
	"spool/segment/faultfs": {"spool/segment"},
	// The tables of a broker share one way of replacing a file.
	"broker/topics":  {"broker/statefile"},
	"broker/groups":  {"broker/statefile"},
	"broker/offsets": {"broker/statefile"},
	"broker/delay":   {"broker/statefile"},
}

// keep and talk are the engines that know nothing of each other.
var keep, talk = []string{"spool/..."}, []string{"client", "client/...", "remoting/..."}

// outside are packages that the layers do not bind: tests that span them.
var outside = []string{"test/..."}

func TestImportsPointDown(t *testing.T) {
	for _, e := range imports(t) {
		from, to := row(e.from), row(e.to)
		switch {
		case matchAny(outside, e.from):
		case matchAny(outside, e.to):
			t.Errorf("%s imports %s: the product must not need its tests", e.file, e.to)
		case from < 0:
			t.Errorf("%s: package %s has no place in the layers", e.file, e.from)
		case to < 0:
			t.Errorf("%s imports %s, which has no place in the layers", e.file, e.to)
		case matchAny(keep, e.from) && matchAny(talk, e.to), matchAny(talk, e.from) && matchAny(keep, e.to):
			t.Errorf("%s imports %s: keep and talk know nothing of each other", e.file, e.to)
		case to < from:
			t.Errorf("%s imports %s: %s must not call up to %s", e.file, e.to, rows[from].name, rows[to].name)
		case to == from && !neighbour(e.from, e.to):
			t.Errorf("%s imports %s: no arrow leads there inside %s", e.file, e.to, rows[from].name)
		}
	}
}

// TestOnlyTheWiringKnowsConfigs keeps the roles usable without a configuration file.
func TestOnlyTheWiringKnowsConfigs(t *testing.T) {
	for _, e := range imports(t) {
		if e.to == "configs" && e.from != "cmd/sluice" && !matchAny(outside, e.from) {
			t.Errorf("%s imports configs", e.file)
		}
	}
}

// TestLayersCatchViolations checks the checker.
func TestLayersCatchViolations(t *testing.T) {
	for _, tt := range []struct{ from, to string }{
		{"spool", "broker"}, {"protocol/message", "protocol"}, {"configs", "cmd/sluice"}, {"namesrv", "sidecar"},
		{"broker/topics", "broker/groups"}, {"upstream", "broker/topics"}, {"client/rebalance", "client"},
	} {
		from, to := row(tt.from), row(tt.to)
		if from < 0 || to < 0 || to > from || (to == from && neighbour(tt.from, tt.to)) {
			t.Errorf("%s may import %s", tt.from, tt.to)
		}
	}
}

// edge is one import of one file.
type edge struct{ file, from, to string }

// imports reads every Go file of the module, except tests: a test may look at its neighbours.
func imports(t *testing.T) []edge {
	t.Helper()
	var edges []edge
	root := ".."
	err := filepath.WalkDir(root, func(file string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && file != root && (strings.HasPrefix(name, ".") || name == "testdata" || name == "target" || nested(file)) {
			return filepath.SkipDir
		}
		if d.IsDir() || !strings.HasSuffix(name, ".go") || strings.HasSuffix(name, "_test.go") {
			return nil
		}
		parsed, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.ImportsOnly)
		if err != nil {
			return err
		}
		relative, err := filepath.Rel(root, file)
		if err != nil {
			return err
		}
		for _, spec := range parsed.Imports {
			imported, err := strconv.Unquote(spec.Path.Value)
			if err != nil {
				return err
			}
			if to, ok := strings.CutPrefix(imported, module+"/"); ok {
				edges = append(edges, edge{relative, path.Dir(filepath.ToSlash(relative)), to})
			}
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if len(edges) == 0 {
		t.Fatal("no imports found: the test looks in the wrong place")
	}
	return edges
}

// nested tells whether a directory is a module of its own.
func nested(dir string) bool {
	_, err := os.Stat(filepath.Join(dir, "go.mod"))
	return err == nil
}

func row(pkg string) int {
	best, length := -1, -1
	for i, r := range rows {
		for _, pattern := range r.packages {
			if fits(pattern, pkg) && len(pattern) > length {
				best, length = i, len(pattern)
			}
			if pattern == pkg {
				return i
			}
		}
	}
	return best
}

func neighbour(from, to string) bool { return slices.Contains(neighbours[from], to) }

func matchAny(patterns []string, pkg string) bool {
	for _, p := range patterns {
		if fits(p, pkg) {
			return true
		}
	}
	return false
}

func fits(pattern, pkg string) bool {
	dir, all := strings.CutSuffix(pattern, "/...")
	return pkg == dir || (all && strings.HasPrefix(pkg, dir+"/"))
}
