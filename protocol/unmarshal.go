package protocol

import (
	"encoding"
	"encoding/base64"
	"encoding/json"
	"fmt"
	"math"
	"reflect"
	"strconv"
)

const (
	// maxDepth bounds how deep a body may nest.
	maxDepth = 64
	// Decoded slices and maps may take this many times the bytes of the body,
	// and a little more: a list of "{}" must not turn 16 MiB into gigabytes.
	maxGrowth  = 16
	freeGrowth = 1 << 20
)

// An ordinal is an enumeration that some peers write as its number.
type ordinal interface{ names() []string }

// Unmarshal reads a JSON body into v, a pointer. It reads strict JSON and what
// Java peers make of it with fastjson: integer keys without quotes, objects as
// map keys (raw, in a string, or as Gson's list of pairs), numbers and booleans
// in quotes, enumerations by number. Unknown keys, among them $ref, are ignored;
// null leaves a value as it is. Nesting and the memory taken are bounded by the
// size of data. v keeps no reference to data.
func Unmarshal(data []byte, v any) error {
	p := reflect.ValueOf(v)
	if p.Kind() != reflect.Pointer || p.IsNil() {
		return fmt.Errorf("unmarshal into %T, not a pointer", v)
	}
	d := decoder{types: make(schema), budget: maxGrowth*len(data) + freeGrowth}
	d.s.b = data
	err := d.value(p.Elem(), 0)
	if err == nil && (d.s.peek() != 0 || d.s.i < len(data)) {
		err = d.s.expected("the end")
	}
	if err != nil {
		return fmt.Errorf("unmarshal %T: %w", v, err)
	}
	return nil
}

type decoder struct {
	s      jsonScanner
	types  schema
	budget int // bytes that slices and maps may still take
}

func (d *decoder) value(v reflect.Value, depth int) error {
	if depth > maxDepth {
		return fmt.Errorf("nested deeper than %d at byte %d", maxDepth, d.s.i)
	}
	c := d.s.peek()
	if c == 'n' {
		return d.s.skip()
	}
	if done, err := d.unmarshaler(v); done {
		return err
	}
	switch v.Kind() {
	case reflect.Pointer:
		if err := d.spend(int(v.Type().Elem().Size())); err != nil {
			return err
		}
		if v.IsNil() {
			v.Set(reflect.New(v.Type().Elem()))
		}
		return d.value(v.Elem(), depth)
	case reflect.Struct:
		return d.object(v, depth)
	case reflect.Map:
		return d.table(v, depth)
	case reflect.Slice:
		if c == '"' && v.Type().Elem().Kind() == reflect.Uint8 {
			return d.base64(v)
		}
		return d.list(v, depth)
	case reflect.Interface:
		return d.anything(v, depth)
	}
	at := d.s.i
	text, _, err := d.s.scalar()
	if err != nil {
		return err
	}
	if err := setScalar(v, text); err != nil {
		return fmt.Errorf("at byte %d: %w", at, err)
	}
	return nil
}

// spend takes n bytes from the budget.
func (d *decoder) spend(n int) error {
	if d.budget -= n; d.budget < 0 {
		return fmt.Errorf("%d bytes of JSON unfold to more than %d bytes", len(d.s.b), maxGrowth*len(d.s.b)+freeGrowth)
	}
	return nil
}

// unmarshaler hands the value to a type that reads itself.
func (d *decoder) unmarshaler(v reflect.Value) (done bool, err error) {
	if !v.CanAddr() {
		return false, nil
	}
	switch u := v.Addr().Interface().(type) {
	case *json.RawMessage:
		raw, err := d.raw()
		*u = raw
		return true, err
	case json.Unmarshaler:
		raw, err := d.raw()
		if err == nil {
			err = u.UnmarshalJSON(raw)
		}
		return true, err
	case encoding.TextUnmarshaler:
		text, _, err := d.s.scalar()
		if err == nil {
			err = u.UnmarshalText(text)
		}
		return true, err
	}
	return false, nil
}

// raw returns a copy of the text of one value.
func (d *decoder) raw() ([]byte, error) {
	from := d.s.i
	if err := d.s.skip(); err != nil {
		return nil, err
	}
	return append([]byte(nil), d.s.b[from:d.s.i]...), nil
}

func (d *decoder) object(v reflect.Value, depth int) error {
	if d.s.peek() != '{' {
		return d.s.expected("an object")
	}
	d.s.i++
	st := d.types.of(v.Type())
	if st.defaults {
		v.Addr().Interface().(defaulter).defaults()
	}
	for first := true; ; first = false {
		more, err := d.next('}', first)
		if err != nil || !more {
			return err
		}
		name, err := d.name()
		if err != nil {
			return err
		}
		i, known := st.byName[string(name)]
		if !known {
			if err := d.s.skip(); err != nil {
				return fmt.Errorf("%.40s: %w", name, err)
			}
			continue
		}
		field, err := v.FieldByIndexErr(st.fields[i].index)
		if err != nil {
			return err
		}
		if err := d.value(field, depth+1); err != nil {
			return fmt.Errorf("%s: %w", st.fields[i].name, err)
		}
	}
}

// next moves to the next member of an object or list; more is false behind its
// end.
func (d *decoder) next(end byte, first bool) (more bool, err error) {
	c := d.s.peek()
	if c == end {
		d.s.i++
		return false, nil
	}
	if !first {
		if c != ',' {
			return false, d.s.expected("',' or '" + string(end) + "'")
		}
		d.s.i++
	}
	return true, nil
}

// name reads a key with or without quotes, and the colon.
func (d *decoder) name() ([]byte, error) {
	text, err := d.keyText()
	if err != nil {
		return nil, err
	}
	return text, d.colon()
}

func (d *decoder) keyText() ([]byte, error) {
	if c := d.s.peek(); c == '"' {
		return d.s.str()
	}
	from := d.s.i
	for d.s.i < len(d.s.b) && (isWord(d.s.b[d.s.i]) || d.s.b[d.s.i] == '_' || d.s.b[d.s.i] == '$') {
		d.s.i++
	}
	if d.s.i == from {
		return nil, d.s.expected("a key")
	}
	return d.s.b[from:d.s.i], nil
}

func (d *decoder) colon() error {
	if d.s.peek() != ':' {
		return d.s.expected("':'")
	}
	d.s.i++
	return nil
}

func (d *decoder) table(v reflect.Value, depth int) error {
	t := v.Type()
	keyed := t.Key().Kind() == reflect.Struct
	end := byte('}')
	switch c := d.s.peek(); {
	case c == '{':
	case c == '[' && keyed:
		end = ']'
	default:
		return d.s.expected("an object")
	}
	d.s.i++
	if v.IsNil() {
		v.Set(reflect.MakeMap(t))
	}
	for first := true; ; first = false {
		more, err := d.next(end, first)
		if err != nil || !more {
			return err
		}
		if err := d.spend(int(t.Key().Size() + t.Elem().Size())); err != nil {
			return err
		}
		key, value := reflect.New(t.Key()).Elem(), reflect.New(t.Elem()).Elem()
		if end == ']' {
			err = d.pair(key, value, depth+1)
		} else if err = d.key(key, depth+1); err == nil {
			if err = d.colon(); err == nil {
				err = d.value(value, depth+1)
			}
		}
		if err != nil {
			return err
		}
		v.SetMapIndex(key, value)
	}
}

// pair reads Gson's form of a map entry with a complex key: [key, value].
func (d *decoder) pair(key, value reflect.Value, depth int) error {
	if d.s.peek() != '[' {
		return d.s.expected("a pair")
	}
	d.s.i++
	if err := d.value(key, depth); err != nil {
		return err
	}
	if d.s.peek() != ',' {
		return d.s.expected("','")
	}
	d.s.i++
	if err := d.value(value, depth); err != nil {
		return err
	}
	if d.s.peek() != ']' {
		return d.s.expected("']'")
	}
	d.s.i++
	return nil
}

// key reads the key of a map entry.
func (d *decoder) key(key reflect.Value, depth int) error {
	if key.Kind() == reflect.Struct && d.s.peek() == '{' {
		return d.value(key, depth)
	}
	text, err := d.keyText()
	if err != nil {
		return err
	}
	if key.Kind() != reflect.Struct {
		return setScalar(key, text)
	}
	inner := decoder{types: d.types, budget: d.budget}
	inner.s.b = text
	return inner.value(key, depth)
}

func (d *decoder) list(v reflect.Value, depth int) error {
	if d.s.peek() != '[' {
		return d.s.expected("a list")
	}
	d.s.i++
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for n := 0; ; n++ {
		more, err := d.next(']', n == 0)
		if err != nil || !more {
			return err
		}
		if err := d.spend(int(v.Type().Elem().Size())); err != nil {
			return err
		}
		v.Grow(1)
		v.SetLen(n + 1)
		if err := d.value(v.Index(n), depth+1); err != nil {
			return fmt.Errorf("element %d: %w", n, err)
		}
	}
}

func (d *decoder) base64(v reflect.Value) error {
	text, err := d.s.str()
	if err != nil {
		return err
	}
	data, err := base64.StdEncoding.AppendDecode(nil, text)
	if err != nil {
		return err
	}
	v.SetBytes(data)
	return nil
}

// anything reads a value without a type: map[string]any, []any, string, bool or
// json.Number.
func (d *decoder) anything(v reflect.Value, depth int) error {
	if v.NumMethod() > 0 {
		return fmt.Errorf("a %s cannot be read", v.Type())
	}
	if err := d.spend(int(v.Type().Size())); err != nil {
		return err
	}
	switch c := d.s.peek(); c {
	case '{':
		var m map[string]any
		defer func() { v.Set(reflect.ValueOf(m)) }()
		return d.table(reflect.ValueOf(&m).Elem(), depth)
	case '[':
		var l []any
		defer func() { v.Set(reflect.ValueOf(l)) }()
		return d.list(reflect.ValueOf(&l).Elem(), depth)
	default:
		text, _, err := d.s.scalar()
		switch {
		case err != nil:
			return err
		case c == '"':
			v.Set(reflect.ValueOf(string(text)))
		case c == 't' || c == 'f':
			v.Set(reflect.ValueOf(c == 't'))
		default:
			v.Set(reflect.ValueOf(json.Number(text)))
		}
	}
	return nil
}

// setScalar sets v from text, which may have stood in quotes.
func setScalar(v reflect.Value, text []byte) error {
	switch v.Kind() {
	case reflect.String:
		if i, ok := parseInt(text); ok && v.Type().Implements(ordinalType) {
			names := v.Interface().(ordinal).names()
			if i < 0 || i >= int64(len(names)) {
				return fmt.Errorf("%d is no %s", i, v.Type().Name())
			}
			text = []byte(names[i])
		}
		v.SetString(string(text))
	case reflect.Bool:
		v.SetBool(parseBool(text) || string(text) == "1")
	case reflect.Int, reflect.Int8, reflect.Int16, reflect.Int32, reflect.Int64:
		i, ok := parseWhole(text)
		if !ok || v.OverflowInt(i) {
			return fmt.Errorf("%.40q is no %s", text, v.Type())
		}
		v.SetInt(i)
	case reflect.Uint, reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		i, ok := parseWhole(text)
		if !ok || i < 0 || v.OverflowUint(uint64(i)) {
			return fmt.Errorf("%.40q is no %s", text, v.Type())
		}
		v.SetUint(uint64(i))
	case reflect.Float32, reflect.Float64:
		f, err := strconv.ParseFloat(string(text), 64)
		if err != nil || math.IsNaN(f) || math.IsInf(f, 0) {
			return fmt.Errorf("%.40q is no number", text)
		}
		v.SetFloat(f)
	default:
		return fmt.Errorf("a %s cannot be read", v.Type())
	}
	return nil
}

// parseWhole is parseInt that also takes 1.0 and 1e3, and empty text as 0.
func parseWhole(text []byte) (int64, bool) {
	if len(text) == 0 {
		return 0, true
	}
	if i, ok := parseInt(text); ok {
		return i, true
	}
	f, err := strconv.ParseFloat(string(text), 64)
	if err != nil || f != math.Trunc(f) || math.Abs(f) > 1<<53 {
		return 0, false
	}
	return int64(f), true
}
