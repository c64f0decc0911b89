package configs

import (
	_ "embed"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"slices"
	"strings"

	"github.com/knadh/koanf/providers/confmap"
	"github.com/knadh/koanf/providers/env/v2"
	"github.com/knadh/koanf/providers/rawbytes"
	"github.com/knadh/koanf/v2"
)

//go:embed default.yaml
var defaultYAML []byte

// DefaultYAML is the embedded file of defaults, with its comments.
func DefaultYAML() string { return string(defaultYAML) }

// A Loader knows where one process finds its configuration. The zero Loader loads the
// defaults alone.
type Loader struct {
	File    string   // path of a YAML file; empty: none
	Environ []string // as os.Environ gives it; nil: no environment
	Set     []string // key=value, in the order of the command line
}

// Load reads and checks everything anew. The error is Problems unless the file cannot be read.
func (l Loader) Load() (*Config, error) {
	var data []byte
	if l.File != "" {
		var err error
		if data, err = os.ReadFile(l.File); err != nil {
			return nil, fmt.Errorf("read configuration %s: %w", l.File, underlying(err))
		}
	}
	return l.load(data)
}

// underlying drops the operation and the path from a file error, which the caller says better.
func underlying(err error) error {
	if p, ok := errors.AsType[*fs.PathError](err); ok {
		return p.Err
	}
	return err
}

func (l Loader) load(file []byte) (*Config, error) {
	b := &layers{schema: newSchema(), tree: koanf.New("."), origins: map[string]Origin{}}
	if err := b.yaml(defaultYAML, Origin{Source: FromDefault}); err != nil {
		return nil, err
	}
	if err := b.yaml(file, Origin{Source: FromFile, Name: l.File}); err != nil {
		return nil, err
	}
	if err := b.environ(l.Environ); err != nil {
		return nil, err
	}
	if err := b.set(l.Set); err != nil {
		return nil, err
	}
	if err := b.problems.err(); err != nil {
		return nil, err
	}
	c, err := b.config()
	if err != nil {
		return nil, err
	}
	return c, c.Validate()
}

// layers is a configuration being put together, weakest source first.
type layers struct {
	schema   *node
	tree     *koanf.Koanf
	origins  map[string]Origin
	problems Problems
}

func (b *layers) yaml(data []byte, at Origin) error {
	s := newSource(b.schema, at)
	if err := b.tree.Load(rawbytes.Provider(data), s, koanf.WithMergeFunc(s.merge)); err != nil {
		return err
	}
	b.took(s)
	return nil
}

// took adds what a source noted to what is known. A source that gave a table or a list as a
// whole makes the origins of the former elements meaningless.
func (b *layers) took(s *source) {
	for _, key := range s.replaced {
		maps.DeleteFunc(b.origins, func(k string, _ Origin) bool { return below(k, key) })
	}
	maps.Copy(b.origins, s.origins)
	b.problems = append(b.problems, s.problems...)
}

func (b *layers) environ(environ []string) error {
	s := newSource(b.schema, Origin{Source: FromEnv})
	names := b.variables()
	var given []string
	provider := env.Provider(".", env.Opt{
		Prefix:      envPrefix,
		EnvironFunc: func() []string { return environ },
		TransformFunc: func(name, value string) (string, any) {
			s.at.Name = name
			key, n, err := names.lookup(name)
			if err != nil {
				s.problem("", 0, "%s", err)
			}
			if n == nil {
				return "", nil
			}
			// The provider reads variables in no order that could decide between two.
			if i := slices.IndexFunc(given, func(k string) bool { return k == key || below(k, key) || below(key, k) }); i >= 0 {
				s.problem(key, 0, "contradicts %s, which another variable sets", given[i])
				return "", nil
			}
			given = append(given, key)
			v, ok := s.plain(n, key, value)
			if !ok {
				return "", nil
			}
			return key, v
		},
	})
	if err := b.tree.Load(provider, nil, koanf.WithMergeFunc(s.merge)); err != nil {
		return fmt.Errorf("read the environment: %w", err)
	}
	b.took(s)
	return nil
}

// set applies --set flags one by one, so that a later one wins over an earlier.
func (b *layers) set(flags []string) error {
	for _, flag := range flags {
		s := newSource(b.schema, Origin{Source: FromSet})
		flat := map[string]any{}
		key, raw, found := strings.Cut(flag, "=")
		key = strings.TrimSpace(key)
		if !found || key == "" {
			s.problem("", 0, "%q is not key=value", flag)
		} else if n := s.find(key); n != nil {
			if v, ok := s.plain(n, key, raw); ok {
				flat[key] = v
			}
		}
		if err := b.tree.Load(confmap.Provider(flat, "."), nil, koanf.WithMergeFunc(s.merge)); err != nil {
			return fmt.Errorf("apply --set %s: %w", flag, err)
		}
		b.took(s)
	}
	return nil
}

// find walks a full key down the schema, and notes a problem when it leads nowhere.
func (s *source) find(key string) *node {
	n, at := s.schema, ""
	for name := range strings.SplitSeq(key, ".") {
		child := n.child(name)
		if child == nil {
			s.problem(key, 0, "unknown key; the nearest known key is %s", nearestKey(s.schema, n, at, name))
			return nil
		}
		if n.kind == table && !elementName.MatchString(name) {
			s.problem(key, 0, "want a name of letters, digits, - and _")
			return nil
		}
		n, at = child, join(at, name)
	}
	return n
}

// config turns the finished tree into a Config.
func (b *layers) config() (*Config, error) {
	b.schema.walk("", func(key string, n *node) {
		if n.kind == table {
			for _, name := range b.tree.MapKeys(key) {
				b.fillElement(n.element, join(key, name))
			}
		}
	})
	c := &Config{origins: b.origins}
	if err := b.tree.Unmarshal("", c); err != nil {
		return nil, fmt.Errorf("assemble the configuration: %w", err)
	}
	return c, nil
}

// fillElement gives a table's element the defaults that fit its kind. They cannot stand in
// default.yaml, which does not know the element's name.
func (b *layers) fillElement(element *node, key string) {
	is := b.tree.String(join(key, "kind"))
	element.walk(key, func(full string, n *node) {
		if !n.hasDef || b.tree.Exists(full) || (n.only != "" && n.only != is) {
			return
		}
		v, err := n.parse(n.defaultFor(is))
		if err == nil {
			err = b.tree.Set(full, v)
		}
		if err != nil {
			b.problems = append(b.problems, Problem{Key: full, Text: err.Error()})
			return
		}
		b.origins[full] = Origin{Source: FromDefault}
	})
}
