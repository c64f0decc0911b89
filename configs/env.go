package configs

import (
	"fmt"
	"regexp"
	"sort"
	"strings"
)

// envPrefix begins the name of every variable that is configuration.
const envPrefix = "SLUICE_"

// FileVariable names the configuration file when no -c flag does. It is not itself a key.
const FileVariable = envPrefix + "CONFIG"

// serviceLink matches the variables that Kubernetes puts into every pod for a Service named
// "sluice" or "sluice-…". They are not ours and must not stop the start.
var serviceLink = regexp.MustCompile(
	`^SLUICE_(.+_)?(SERVICE_HOST|SERVICE_PORT(_.+)?|PORT(_\d+_(TCP|UDP|SCTP)(_(PROTO|PORT|ADDR))?)?)$`)

// variables maps names of environment variables to keys.
type variables struct {
	byName map[string][]variable
	tables []variable
}

type variable struct {
	name, key string
	node      *node
}

// variableName is the variable of a key: "broker.store.max_bytes" is SLUICE_BROKER_STORE_MAX_BYTES.
func variableName(key string) string {
	return envPrefix + strings.ToUpper(strings.NewReplacer(".", "_", "-", "_").Replace(key))
}

// variables lists what can be set, with the table elements that exist so far.
func (b *layers) variables() variables {
	v := variables{byName: map[string][]variable{}}
	add := func(key string, n *node) {
		if !strings.Contains(key, wildcard) {
			name := variableName(key)
			v.byName[name] = append(v.byName[name], variable{name, key, n})
		}
	}
	b.schema.walk("", func(key string, n *node) {
		add(key, n)
		if n.kind != table {
			return
		}
		v.tables = append(v.tables, variable{variableName(key), key, n})
		for _, name := range b.tree.MapKeys(key) {
			add(join(key, name), n.element)
			n.element.walk(join(key, name), add)
		}
	})
	return v
}

// lookup finds the key of a variable. No node and no error: the variable is none of ours.
func (v variables) lookup(name string) (string, *node, error) {
	found := v.byName[name]
	switch {
	case len(found) == 1:
		return found[0].key, found[0].node, nil
	case len(found) > 1:
		return "", nil, fmt.Errorf("may mean %s or %s; use the file or --set", found[0].key, found[1].key)
	case name == FileVariable || serviceLink.MatchString(name):
		return "", nil, nil
	}
	for _, t := range v.tables {
		if rest, ok := strings.CutPrefix(name, t.name+"_"); ok {
			if key, n := newElement(t, rest); n != nil {
				return key, n, nil
			}
		}
	}
	return "", nil, fmt.Errorf("unknown variable; the nearest known one is %s", nearest(name, v.names()))
}

// newElement reads "MY_CORE_TLS_CA" as the key tls.ca of a new element my_core: the longest key
// that the text ends with is split off, what is left is the name.
func newElement(t variable, rest string) (string, *node) {
	var best *node
	var bestKey, bestName string
	t.node.element.walk("", func(key string, n *node) {
		suffix := "_" + strings.TrimPrefix(variableName(key), envPrefix)
		name, ok := strings.CutSuffix(rest, suffix)
		if ok && name != "" && len(key) > len(bestKey) {
			best, bestKey, bestName = n, key, strings.ToLower(name)
		}
	})
	if best == nil || !elementName.MatchString(bestName) {
		return "", nil
	}
	return join(join(t.key, bestName), bestKey), best
}

func (v variables) names() []string {
	names := make([]string, 0, len(v.byName))
	for name := range v.byName {
		names = append(names, name)
	}
	sort.Strings(names)
	return names
}
