package protocol

import (
	"reflect"
	"strings"
)

// A schema is what the JSON codec knows about the struct types it has met. One
// lives as long as one Marshal or Unmarshal.
type schema map[reflect.Type]*structType

type structType struct {
	fields   []structField
	byName   map[string]int
	defaults bool // the pointer has a method defaults
}

type structField struct {
	name      string
	index     []int
	omitEmpty bool
}

// A defaulter has fields that are not zero when their key is absent.
type defaulter interface{ defaults() }

var (
	defaulterType = reflect.TypeFor[defaulter]()
	ordinalType   = reflect.TypeFor[ordinal]()
)

// of describes struct type t: exported fields under their json names; names in
// an alias tag are read as well but never written.
func (s schema) of(t reflect.Type) *structType {
	if st := s[t]; st != nil {
		return st
	}
	st := &structType{byName: make(map[string]int), defaults: reflect.PointerTo(t).Implements(defaulterType)}
	for _, f := range reflect.VisibleFields(t) {
		tag, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		if !f.IsExported() || tag == "-" || f.Anonymous && tag == "" {
			continue
		}
		if tag == "" {
			tag = f.Name
		}
		st.byName[tag] = len(st.fields)
		if alias := f.Tag.Get("alias"); alias != "" {
			st.byName[alias] = len(st.fields)
		}
		st.fields = append(st.fields, structField{tag, f.Index, strings.Contains(options, "omitempty")})
	}
	s[t] = st
	return st
}
