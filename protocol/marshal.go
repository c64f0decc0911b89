package protocol

import (
	"cmp"
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"slices"
	"strconv"
)

// Marshal returns v as the JSON body of a command: strict JSON without white
// space, in the order of the struct's fields, map keys sorted, text unescaped
// where JSON allows it. Nil slices and maps are written empty, and nil pointers
// left out, because Java readers trip over null.
//
// The one exception from strictness is a map whose keys are structs, such as
// TopicStatsTable: it is written with raw objects as keys, the only form that
// both Java and Go clients read. Struct tags are those of encoding/json; of
// their options only omitempty has a meaning here. Pointers must not form a
// cycle.
func Marshal(v any) ([]byte, error) { return appendValue(nil, v, false) }

// MarshalFastjson is Marshal in the dialect that Apache's servers write by
// default: integer map keys stand without quotes, {0:"10.0.0.1:10911"}. Peers
// older than Version4_9_4 expect routes in it.
func MarshalFastjson(v any) ([]byte, error) { return appendValue(nil, v, true) }

func appendValue(dst []byte, v any, fastjson bool) ([]byte, error) {
	e := encoder{dst: dst, types: make(schema), fastjson: fastjson}
	if err := e.value(reflect.ValueOf(v)); err != nil {
		return dst, fmt.Errorf("marshal %T: %w", v, err)
	}
	return e.dst, nil
}

type encoder struct {
	dst      []byte
	types    schema
	fastjson bool
}

func (e *encoder) value(v reflect.Value) error {
	if !v.IsValid() {
		e.dst = append(e.dst, "null"...)
		return nil
	}
	if done, err := e.marshaler(v); done {
		return err
	}
	switch v.Kind() {
	case reflect.Pointer, reflect.Interface:
		return e.value(v.Elem())
	case reflect.String:
		e.string(v.String())
	case reflect.Bool:
		e.dst = strconv.AppendBool(e.dst, v.Bool())
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		e.dst = strconv.AppendInt(e.dst, v.Int(), 10)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		e.dst = strconv.AppendUint(e.dst, v.Uint(), 10)
	case reflect.Float32, reflect.Float64:
		if math.IsNaN(v.Float()) || math.IsInf(v.Float(), 0) {
			return fmt.Errorf("%v has no JSON form", v.Float())
		}
		e.dst = strconv.AppendFloat(e.dst, v.Float(), 'f', -1, 64)
	case reflect.Slice, reflect.Array:
		return e.list(v)
	case reflect.Map:
		return e.table(v)
	case reflect.Struct:
		return e.object(v)
	default:
		return fmt.Errorf("a %s has no JSON form", v.Type())
	}
	return nil
}

// marshaler lets types that know their JSON write it.
func (e *encoder) marshaler(v reflect.Value) (done bool, err error) {
	if v.Kind() == reflect.Pointer && v.IsNil() || !v.CanInterface() {
		return false, nil
	}
	var out []byte
	switch m := v.Interface().(type) {
	case json.RawMessage:
		if out = m; len(m) == 0 {
			out = []byte("null")
		}
	case json.Number:
		if out = []byte(m); len(m) == 0 {
			out = []byte("0")
		}
	case json.Marshaler:
		out, err = m.MarshalJSON()
	case encoding.TextMarshaler:
		if out, err = m.MarshalText(); err == nil {
			e.string(string(out))
		}
		return true, err
	default:
		return false, nil
	}
	if err == nil {
		e.dst = append(e.dst, out...)
	}
	return true, err
}

func (e *encoder) string(s string) {
	e.dst = append(appendEscaped(append(e.dst, '"'), s), '"')
}

func (e *encoder) list(v reflect.Value) error {
	if v.Kind() == reflect.Slice && v.Type().Elem().Kind() == reflect.Uint8 {
		e.dst = append(base64.StdEncoding.AppendEncode(append(e.dst, '"'), v.Bytes()), '"')
		return nil
	}
	e.dst = append(e.dst, '[')
	for i := range v.Len() {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		if err := e.value(v.Index(i)); err != nil {
			return err
		}
	}
	e.dst = append(e.dst, ']')
	return nil
}

// table writes a map. Numbers are sorted as numbers, other keys as their text.
func (e *encoder) table(v reflect.Value) error {
	type entry struct {
		key   string // as it is written
		value reflect.Value
	}
	entries := make([]entry, 0, v.Len())
	numeric := v.Type().Key().Kind() >= reflect.Int && v.Type().Key().Kind() <= reflect.Int64
	keys := v.MapKeys()
	if numeric {
		slices.SortFunc(keys, func(a, b reflect.Value) int { return cmp.Compare(a.Int(), b.Int()) })
	}
	for _, k := range keys {
		text, err := e.key(k)
		if err != nil {
			return err
		}
		entries = append(entries, entry{text, v.MapIndex(k)})
	}
	if !numeric {
		slices.SortFunc(entries, func(a, b entry) int { return cmp.Compare(a.key, b.key) })
	}
	e.dst = append(e.dst, '{')
	for i, en := range entries {
		if i > 0 {
			e.dst = append(e.dst, ',')
		}
		e.dst = append(append(e.dst, en.key...), ':')
		if err := e.value(en.value); err != nil {
			return err
		}
	}
	e.dst = append(e.dst, '}')
	return nil
}

// key returns the text of a map key, quoted if that is its form.
func (e *encoder) key(k reflect.Value) (string, error) {
	sub := encoder{types: e.types, fastjson: e.fastjson}
	switch {
	case k.Kind() == reflect.String || k.Kind() == reflect.Struct:
	case k.CanInt() && e.fastjson:
	case k.CanInt():
		sub.string(strconv.FormatInt(k.Int(), 10))
		return string(sub.dst), nil
	default:
		return "", fmt.Errorf("a %s cannot be a key", k.Type())
	}
	err := sub.value(k)
	return string(sub.dst), err
}

func (e *encoder) object(v reflect.Value) error {
	e.dst = append(e.dst, '{')
	first := true
	for _, f := range e.types.of(v.Type()).fields {
		fv, err := v.FieldByIndexErr(f.index)
		if err != nil || f.omitEmpty && isEmpty(fv) || isNilPointer(fv) {
			continue
		}
		if !first {
			e.dst = append(e.dst, ',')
		}
		first = false
		e.string(f.name)
		e.dst = append(e.dst, ':')
		if err := e.value(fv); err != nil {
			return fmt.Errorf("%s: %w", f.name, err)
		}
	}
	e.dst = append(e.dst, '}')
	return nil
}

func isNilPointer(v reflect.Value) bool {
	return (v.Kind() == reflect.Pointer || v.Kind() == reflect.Interface) && v.IsNil()
}

func isEmpty(v reflect.Value) bool {
	switch v.Kind() {
	case reflect.Slice, reflect.Map:
		return v.Len() == 0
	}
	return v.IsZero()
}
