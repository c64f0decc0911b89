package configs

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/knadh/koanf/maps"
	"go.yaml.in/yaml/v3"
)

// A source reads one of the four places into a tree of typed values, following the schema, and
// notes where each value stood. It implements koanf.Parser for YAML documents.
type source struct {
	schema   *node
	at       Origin // of what is being read; the line is filled in for files
	origins  map[string]Origin
	replaced []string // tables and lists that this source gives as a whole
	problems Problems
}

func newSource(schema *node, at Origin) *source {
	return &source{schema: schema, at: at, origins: map[string]Origin{}}
}

// elementName is what a user may call an element of a table. A point would end the key.
var elementName = regexp.MustCompile(`^[A-Za-z0-9][A-Za-z0-9_-]{0,63}$`)

// yamlLine finds the position in an error text of the YAML library.
var yamlLine = regexp.MustCompile(`^yaml: (?:line (\d+): )?(.*)$`)

// Unmarshal reads one YAML document. It returns an error only for text that is not YAML;
// everything else wrong is collected in s.problems.
func (s *source) Unmarshal(data []byte) (map[string]any, error) {
	tree := map[string]any{}
	decoder := yaml.NewDecoder(bytes.NewReader(data))
	var doc, more yaml.Node
	if err := decoder.Decode(&doc); errors.Is(err, io.EOF) {
		return tree, nil
	} else if err != nil {
		return nil, s.yamlProblem(err)
	}
	if err := decoder.Decode(&more); err == nil {
		s.problem("", more.Line, "a second YAML document; only one is read")
	} else if !errors.Is(err, io.EOF) {
		return nil, s.yamlProblem(err)
	}
	if root := resolve(doc.Content[0]); !isNull(root) {
		s.keys(s.schema, "", root, tree)
	}
	return tree, nil
}

// Marshal completes koanf.Parser; nothing is ever written this way.
func (s *source) Marshal(map[string]any) ([]byte, error) {
	return nil, errors.New("a source is only read")
}

func (s *source) yamlProblem(err error) error {
	o, text := s.at, err.Error()
	if m := yamlLine.FindStringSubmatch(text); m != nil {
		o.Line, _ = strconv.Atoi(m[1])
		text = m[2]
	}
	return Problems{{Origin: o, Text: text}}
}

// merge lays src over dest, for koanf. What the source replaces as a whole is emptied first.
func (s *source) merge(src, dest map[string]any) error {
	for _, key := range s.replaced {
		maps.Delete(dest, strings.Split(key, "."))
	}
	maps.Merge(src, dest)
	return nil
}

func (s *source) originOf(line int) Origin {
	o := s.at
	if o.Source == FromFile {
		o.Line = line
	}
	return o
}

func (s *source) problem(key string, line int, format string, args ...any) {
	s.problems = append(s.problems, Problem{Key: key, Origin: s.originOf(line), Text: fmt.Sprintf(format, args...)})
}

// keys reads a YAML mapping into a section or a table.
func (s *source) keys(n *node, key string, y *yaml.Node, into map[string]any) {
	if y.Kind != yaml.MappingNode {
		s.problem(key, y.Line, "want %s with keys", n.kind)
		return
	}
	lines := map[string]int{}
	for i := 0; i+1 < len(y.Content); i += 2 {
		name, value := y.Content[i].Value, resolve(y.Content[i+1])
		line := y.Content[i].Line
		full := join(key, name)
		if first, twice := lines[name]; twice {
			s.problem(full, line, "given twice, first on line %d", first)
			continue
		}
		lines[name] = line
		child := n.child(name)
		switch {
		case name == "<<":
			s.problem(key, line, "YAML merge keys (<<) are not read; anchors and aliases are")
		case child == nil:
			s.problem(full, line, "unknown key; the nearest known key is %s", nearestKey(s.schema, n, key, name))
		case n.kind == table && !elementName.MatchString(name):
			s.problem(full, line, "want a name of letters, digits, - and _")
		default:
			if v, ok := s.value(child, full, value, line); ok {
				into[name] = v
			}
		}
	}
}

// value reads the YAML value of one key. The line is that of the key, where an editor should
// jump to.
func (s *source) value(n *node, key string, y *yaml.Node, line int) (any, bool) {
	switch n.kind {
	case section, table:
		into := map[string]any{}
		if n.kind == table {
			s.replaced = append(s.replaced, key)
			s.origins[key] = s.originOf(line)
		}
		if !isNull(y) {
			s.keys(n, key, y, into)
		}
		return into, true
	case list:
		s.replaced = append(s.replaced, key)
		return s.list(n, key, y, line)
	}
	if isNull(y) {
		s.problem(key, line, "has no value; leave the key out to keep the default")
		return nil, false
	}
	s.origins[key] = s.originOf(line)
	if n.kind == texts && y.Kind == yaml.SequenceNode {
		return s.texts(key, y)
	}
	if y.Kind != yaml.ScalarNode {
		s.problem(key, line, "want %s", n.kind)
		return nil, false
	}
	v, err := n.parse(y.Value)
	if err != nil {
		s.problem(key, line, "%s", err)
	}
	return v, err == nil
}

func (s *source) list(n *node, key string, y *yaml.Node, line int) (any, bool) {
	if y.Kind != yaml.SequenceNode {
		s.problem(key, line, "want %s", n.kind)
		return nil, false
	}
	s.origins[key] = s.originOf(line)
	elements := []any{}
	for i, e := range y.Content {
		full := fmt.Sprintf("%s[%d]", key, i)
		s.origins[full] = s.originOf(e.Line)
		into := map[string]any{}
		s.keys(n.element, full, resolve(e), into)
		elements = append(elements, into)
	}
	return elements, true
}

func (s *source) texts(key string, y *yaml.Node) (any, bool) {
	out := []string{}
	for _, e := range y.Content {
		e = resolve(e)
		if e.Kind != yaml.ScalarNode || isNull(e) {
			s.problem(key, e.Line, "want a list of texts")
			return nil, false
		}
		out = append(out, e.Value)
	}
	return out, true
}

// plain reads a value written as one line of text, in the environment or on the command line:
// scalars as they are, lists comma separated, everything structured as YAML flow.
func (s *source) plain(n *node, key, raw string) (any, bool) {
	trimmed := strings.TrimSpace(raw)
	flow := strings.HasPrefix(trimmed, "[") || strings.HasPrefix(trimmed, "{")
	if n.leaf() && n.kind != list && (n.kind != texts || !flow) {
		s.origins[key] = s.at
		v, err := n.parse(raw)
		if err != nil {
			s.problem(key, 0, "%s", err)
		}
		return v, err == nil
	}
	var doc yaml.Node
	if err := yaml.Unmarshal([]byte(trimmed), &doc); err != nil || !flow || len(doc.Content) == 0 {
		s.problem(key, 0, "want %s in YAML flow style, such as {key: value} or [a, b]", n.kind)
		return nil, false
	}
	return s.value(n, key, resolve(doc.Content[0]), 0)
}

// parse reads the text of a scalar, or of a comma separated list.
func (n *node) parse(raw string) (any, error) {
	switch n.kind {
	case boolean:
		switch strings.ToLower(raw) {
		case "true":
			return true, nil
		case "false":
			return false, nil
		}
		return nil, fmt.Errorf("%q is neither true nor false", raw)
	case integer:
		v, err := strconv.ParseInt(raw, 10, 64)
		if err != nil {
			return nil, fmt.Errorf("%q is not a whole number", raw)
		}
		return v, nil
	case size:
		return ParseSize(raw)
	case duration:
		return ParseDuration(raw)
	case texts:
		out := []string{}
		for part := range strings.SplitSeq(raw, ",") {
			if part = strings.TrimSpace(part); part != "" {
				out = append(out, part)
			}
		}
		return out, nil
	}
	if n.oneof != nil && !slices.Contains(n.oneof, raw) {
		return nil, fmt.Errorf("%q is none of %s", raw, strings.Join(n.oneof, ", "))
	}
	return raw, nil
}

// resolve follows an alias to the node that it names. The library has checked that it exists.
func resolve(y *yaml.Node) *yaml.Node {
	if y.Kind == yaml.AliasNode {
		return y.Alias
	}
	return y
}

func isNull(y *yaml.Node) bool { return y.Kind == yaml.ScalarNode && y.Tag == "!!null" }
