package message

import (
	"bytes"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"
)

// The properties text: name 0x01 value 0x02, again and again (RocketMQ message
// model, "Properties encoding"). Old clients leave out the last 0x02.
const (
	nameSeparator = 0x01
	pairSeparator = 0x02
)

// ErrBadProperty means that a name or a value cannot be encoded.
var ErrBadProperty = errors.New("bad property")

// cutPair splits the first pair off a properties text. ok is false for what
// the parser drops: no separator, no name or no value.
func cutPair(props []byte) (name, value, rest []byte, ok bool) {
	pair := props
	if i := bytes.IndexByte(props, pairSeparator); i >= 0 {
		pair, rest = props[:i], props[i+1:]
	}
	i := bytes.IndexByte(pair, nameSeparator)
	if i <= 0 || i == len(pair)-1 {
		return nil, nil, rest, false
	}
	return pair[:i], pair[i+1:], rest, true
}

// Property returns the value of a property, which aliases props, and whether
// it is there. Of several with one name the last counts. It does not allocate.
func Property(props []byte, name string) (value []byte, ok bool) {
	for len(props) > 0 {
		pair := props
		if i := bytes.IndexByte(props, pairSeparator); i >= 0 {
			pair, props = props[:i], props[i+1:]
		} else {
			props = nil
		}
		n := len(name)
		if n > 0 && len(pair) > n+1 && pair[n] == nameSeparator && string(pair[:n]) == name {
			value, ok = pair[n+1:], true
		}
	}
	return value, ok
}

// EachProperty calls f for every pair in the order of the text until f answers
// false. Duplicates are all passed: the last counts.
func EachProperty(props []byte, f func(name, value []byte) bool) {
	for len(props) > 0 {
		name, value, rest, ok := cutPair(props)
		if ok && !f(name, value) {
			return
		}
		props = rest
	}
}

// AppendProperty appends one pair to a properties text, after the separator
// that an old client may have left out. The caller makes sure that neither
// name nor value contains 0x01 or 0x02; FormatProperties checks it. A pair
// without name or value is not appended: no parser would see it.
func AppendProperty(dst []byte, name, value string) []byte {
	if name == "" || value == "" {
		return dst
	}
	if len(dst) > 0 && dst[len(dst)-1] != pairSeparator {
		dst = append(dst, pairSeparator)
	}
	dst = append(dst, name...)
	dst = append(dst, nameSeparator)
	dst = append(dst, value...)
	return append(dst, pairSeparator)
}

// AppendPropertiesWithout appends the pairs of props to dst, all but those of
// one name.
func AppendPropertiesWithout(dst, props []byte, name string) []byte {
	EachProperty(props, func(n, v []byte) bool {
		if string(n) != name {
			dst = append(dst, n...)
			dst = append(dst, nameSeparator)
			dst = append(dst, v...)
			dst = append(dst, pairSeparator)
		}
		return true
	})
	return dst
}

// ParseProperties returns the pairs as a map.
func ParseProperties(props []byte) map[string]string {
	m := make(map[string]string)
	EachProperty(props, func(name, value []byte) bool {
		m[string(name)] = string(value)
		return true
	})
	return m
}

// FormatProperties encodes a map, sorted by name. Pairs with an empty value
// are left out. It refuses empty names, separators inside names or values, and
// a text longer than MaxPropertiesLen.
func FormatProperties(m map[string]string) ([]byte, error) {
	var dst []byte
	for _, name := range slices.Sorted(maps.Keys(m)) {
		value := m[name]
		if name == "" {
			return nil, fmt.Errorf("%w: empty name", ErrBadProperty)
		}
		if strings.ContainsAny(name, "\x01\x02") || strings.ContainsAny(value, "\x01\x02") {
			return nil, fmt.Errorf("%w: %s contains 0x01 or 0x02", ErrBadProperty, quote(name))
		}
		dst = AppendProperty(dst, name, value)
	}
	if len(dst) > MaxPropertiesLen {
		return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrPropertiesTooLong, len(dst), MaxPropertiesLen)
	}
	return dst, nil
}
