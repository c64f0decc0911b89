package configs

import (
	"fmt"
	"reflect"
	"strings"
)

// kind is the shape of a value in the configuration tree.
type kind int

const (
	section kind = iota // fixed keys
	table               // keys chosen by the user, all elements alike
	list                // a sequence of sections
	texts               // a sequence of strings
	text
	boolean
	integer
	size
	duration
)

func (k kind) String() string {
	return [...]string{"a section", "a table", "a list", "a list of texts", "a text", "true or false",
		"a whole number", "a size", "a duration"}[k]
}

// A node describes one key of the configuration. The tree of them is read off the Config
// struct and its tags, so that a field is declared in one place.
type node struct {
	name     string
	kind     kind
	keys     []*node // of a section, in the order of the struct
	element  *node   // of a table or a list
	oneof    []string
	only     string // the upstream kind that this key belongs to
	fallback string // the default of a key inside a table, as text; hasFallback tells "" from none
	hasDef   bool
	special  map[string]string // defaults of single upstream kinds, before fallback
	secret   bool
}

// defaultFor is the default of a key in an element of the given kind, as text.
func (n *node) defaultFor(kind string) string {
	if text, ok := n.special[kind]; ok {
		return text
	}
	return n.fallback
}

// wildcard is the name that stands for a table's user-chosen keys in a full key.
const wildcard = "<name>"

// schemaOf builds the tree for a type. It panics on a type that no configuration can have,
// which is a mistake in this package and shows in every test.
func schemaOf(name string, t reflect.Type) *node {
	n := &node{name: name}
	switch {
	case t == reflect.TypeFor[Size]():
		n.kind = size
	case t == reflect.TypeFor[Duration]():
		n.kind = duration
	case t.Kind() == reflect.String:
		n.kind = text
	case t.Kind() == reflect.Bool:
		n.kind = boolean
	case t.Kind() == reflect.Int64:
		n.kind = integer
	case t == reflect.TypeFor[[]string]():
		n.kind = texts
	case t.Kind() == reflect.Slice:
		n.kind, n.element = list, schemaOf("", t.Elem())
	case t.Kind() == reflect.Map:
		n.kind, n.element = table, schemaOf(wildcard, t.Elem())
	case t.Kind() == reflect.Struct:
		n.kind = section
		for i := range t.NumField() {
			if f := t.Field(i); f.IsExported() {
				n.keys = append(n.keys, fieldNode(f))
			}
		}
	default:
		panic(fmt.Sprintf("configs: %s has the type %s", name, t))
	}
	return n
}

func fieldNode(f reflect.StructField) *node {
	n := schemaOf(f.Tag.Get("koanf"), f.Type)
	if values, ok := f.Tag.Lookup("oneof"); ok {
		n.oneof = strings.Split(values, ",")
	}
	n.only = f.Tag.Get("kind")
	n.secret = f.Tag.Get("secret") == "true"
	n.fallback, n.hasDef = f.Tag.Lookup("default")
	for _, kind := range []string{KindRocketMQ, KindNATS} {
		if text, ok := f.Tag.Lookup("default_" + kind); ok {
			if n.special == nil {
				n.special = map[string]string{}
			}
			n.special[kind] = text
		}
	}
	return n
}

// key finds a section's key by name.
func (n *node) key(name string) *node {
	for _, k := range n.keys {
		if k.name == name {
			return k
		}
	}
	return nil
}

// child is the node under the given name: a section's key or a table's element.
func (n *node) child(name string) *node {
	switch n.kind {
	case section:
		return n.key(name)
	case table:
		return n.element
	}
	return nil
}

// leaf tells whether the node holds a value that is set as one: anything but a section and a
// table.
func (n *node) leaf() bool { return n.kind != section && n.kind != table }

// walk calls f for the full key of every node below n, in order, a table's element under the
// wildcard. It does not enter lists, whose elements have no key of their own.
func (n *node) walk(prefix string, f func(key string, n *node)) {
	for _, k := range n.keys {
		key := join(prefix, k.name)
		f(key, k)
		if k.kind == table {
			k.element.walk(join(key, wildcard), f)
		} else {
			k.walk(key, f)
		}
	}
}

func join(prefix, name string) string {
	if prefix == "" {
		return name
	}
	return prefix + "." + name
}

// newSchema is the description of a whole Config.
func newSchema() *node { return schemaOf("", reflect.TypeFor[Config]()) }
