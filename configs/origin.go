package configs

import (
	"fmt"
	"sort"
	"strings"
)

// An Origin is the place a value came from.
type Origin struct {
	Source Source
	Name   string // the file's path, the variable's name; empty for the defaults
	Line   int    // in the file, from 1; 0 when no single line is meant
}

// Source is one of the four places where configuration is found. Later ones win.
type Source int

// The sources, weakest first.
const (
	FromDefault Source = iota
	FromFile
	FromEnv
	FromSet
)

// String prints the origin as config show and error messages do: "default", "sluice.yaml:12",
// "env SLUICE_DATA", "--set".
func (o Origin) String() string {
	switch o.Source {
	case FromFile:
		if o.Line == 0 {
			return o.Name
		}
		return fmt.Sprintf("%s:%d", o.Name, o.Line)
	case FromEnv:
		return "env " + o.Name
	case FromSet:
		return "--set"
	}
	return "default"
}

// A Problem is one thing wrong with a configuration.
type Problem struct {
	Key    string // the full key, for example "broker.store.segment"; may be empty
	Origin Origin // where the offending value was given
	Text   string // what is wrong, without key and origin
}

func (p Problem) String() string {
	if p.Key == "" {
		return p.Origin.String() + ": " + p.Text
	}
	return p.Origin.String() + ": " + p.Key + ": " + p.Text
}

// Problems is the error that Load and Validate return: everything wrong, in the order of
// the sources and their lines.
type Problems []Problem

// Error joins the problems into one line.
func (ps Problems) Error() string {
	lines := make([]string, len(ps))
	for i, p := range ps {
		lines[i] = p.String()
	}
	return strings.Join(lines, "; ")
}

// err is nil when there are no problems, else the problems sorted.
func (ps Problems) err() error {
	if len(ps) == 0 {
		return nil
	}
	sort.SliceStable(ps, func(i, j int) bool {
		a, b := ps[i].Origin, ps[j].Origin
		if a.Source != b.Source {
			return a.Source < b.Source
		}
		return a.Line < b.Line
	})
	return ps
}

// Origin tells where the value of a full key came from. Keys in lists are written with their
// index, for example "sidecar.lanes[0].topics".
func (c *Config) Origin(key string) Origin { return c.origins[key] }

// given tells whether the key was set by anything but the defaults.
func (c *Config) given(key string) bool {
	o, ok := c.origins[key]
	return ok && o.Source != FromDefault
}

// nearestOrigin finds the origin of a key or of what contains or makes it up, so that a problem
// with a whole section points at something.
func (c *Config) nearestOrigin(key string) Origin {
	for k := key; k != ""; k = parent(k) {
		if o, ok := c.origins[k]; ok {
			return o
		}
		if o, ok := c.firstBelow(k); ok {
			return o
		}
	}
	return Origin{}
}

// firstBelow is the strongest origin among the keys below a section; of several lines of a
// file, the first.
func (c *Config) firstBelow(key string) (Origin, bool) {
	var best Origin
	found := false
	for k, o := range c.origins {
		if !below(k, key) {
			continue
		}
		if !found || o.Source > best.Source || (o.Source == best.Source && o.Line < best.Line) {
			best, found = o, true
		}
	}
	return best, found
}

// below tells whether key lies inside the section, table or list named by ancestor.
func below(key, ancestor string) bool {
	rest, ok := strings.CutPrefix(key, ancestor)
	return ok && rest != "" && (rest[0] == '.' || rest[0] == '[')
}

func parent(key string) string {
	return key[:max(strings.LastIndexAny(key, ".["), 0)]
}
