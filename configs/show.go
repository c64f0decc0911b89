package configs

import (
	"fmt"
	"io"
	"net/url"
	"reflect"
	"slices"
	"strings"
)

// masked stands for a secret wherever values are shown.
const masked = "********"

// A Setting is one key with its value as text and where it came from.
type Setting struct {
	Key    string
	Value  string // in YAML flow style; secrets masked
	Origin Origin
}

// Settings lists every key in the order of the structs, tables by name, lists by index.
func (c *Config) Settings() []Setting {
	var out []Setting
	c.each(func(key string, n *node, v reflect.Value) {
		out = append(out, Setting{key, shown(n, v), c.origins[key]})
	})
	return out
}

// Show prints one line per key: "key: value  # origin".
func (c *Config) Show(w io.Writer) error {
	settings := c.Settings()
	width := 0
	for _, s := range settings {
		width = max(width, min(len(s.Key)+len(s.Value)+2, 64))
	}
	for _, s := range settings {
		if _, err := fmt.Fprintf(w, "%-*s  # %s\n", width, s.Key+": "+s.Value, s.Origin); err != nil {
			return err
		}
	}
	return nil
}

// each calls f for every value that the configuration holds.
func (c *Config) each(f func(key string, n *node, v reflect.Value)) {
	eachBelow(newSchema(), "", "", reflect.ValueOf(c).Elem(), f)
}

// eachBelow walks a section and the value it describes side by side. Keys of another kind of
// upstream than the one at hand are not part of the configuration and left out.
func eachBelow(n *node, key, upstreamKind string, v reflect.Value, f func(string, *node, reflect.Value)) {
	switch n.kind {
	case section:
		for i, k := range n.keys {
			if k.only != "" && k.only != upstreamKind {
				continue
			}
			eachBelow(k, join(key, k.name), upstreamKind, v.Field(i), f)
		}
	case table:
		names := make([]string, 0, v.Len())
		for _, name := range v.MapKeys() {
			names = append(names, name.String())
		}
		slices.Sort(names)
		for _, name := range names {
			e := v.MapIndex(reflect.ValueOf(name))
			is := ""
			if u, ok := e.Interface().(Upstream); ok {
				is = u.Kind
			}
			eachBelow(n.element, join(key, name), is, e, f)
		}
	case list:
		for i := range v.Len() {
			eachBelow(n.element, fmt.Sprintf("%s[%d]", key, i), upstreamKind, v.Index(i), f)
		}
	default:
		f(key, n, v)
	}
}

// shown prints a value so that it reads back as the same one.
func shown(n *node, v reflect.Value) string {
	if n.secret && v.String() != "" {
		return masked
	}
	switch x := v.Interface().(type) {
	case string:
		return quoted(withoutPassword(x))
	case []string:
		parts := make([]string, len(x))
		for i, s := range x {
			parts[i] = quoted(s)
		}
		return "[" + strings.Join(parts, ", ") + "]"
	default:
		return fmt.Sprint(x)
	}
}

// withoutPassword masks the user part of URLs, which may carry a password or a token.
func withoutPassword(text string) string {
	if !strings.Contains(text, "://") || !strings.Contains(text, "@") {
		return text
	}
	parts := strings.Split(text, ",")
	for i, part := range parts {
		u, err := url.Parse(strings.TrimSpace(part))
		if err != nil {
			return masked
		}
		if u.User != nil {
			scheme, rest, _ := strings.Cut(part, "://")
			parts[i] = scheme + "://" + masked + rest[strings.LastIndex(rest, "@"):]
		}
	}
	return strings.Join(parts, ",")
}

// quoted puts a text in quotes when YAML flow would read it as something else.
func quoted(text string) string {
	if text == "" || strings.ContainsAny(text, ",[]{}#&*!|>'\"%@`\n\t ") || strings.HasPrefix(text, "-") || strings.HasSuffix(text, ":") {
		return fmt.Sprintf("%q", text)
	}
	return text
}
