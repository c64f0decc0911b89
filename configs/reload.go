package configs

import (
	"fmt"
	"reflect"
	"strings"
)

// reloadable lists the keys that may change while the process runs. "*" stands for one name.
// A key is here only when the part that it configures takes the new value without losing
// what is under way.
var reloadable = []string{
	"log.level",
	"sidecar.lanes.topics",
	"sidecar.lanes.upstream",
}

// A RefusedError is a reload that would change what cannot change while running. Nothing of
// the new configuration has been applied.
type RefusedError struct {
	Key       string // the first such key
	Kept      string // the running value, as shown
	Asked     string // the refused value, as shown; "" when the key is gone
	Origin    Origin // of the refused value
	AlsoFixed int    // how many further keys would have been refused
}

// Error names the key, both values and the way out.
func (e *RefusedError) Error() string {
	asked := e.Asked
	if asked == "" {
		asked = "nothing"
	}
	more := ""
	if e.AlsoFixed > 0 {
		more = fmt.Sprintf(" (and %d more keys)", e.AlsoFixed)
	}
	return fmt.Sprintf("%s: %s: cannot change from %s to %s while running%s; restart to apply", e.Origin, e.Key, e.Kept, asked, more)
}

// Changes lists the keys whose values differ, in the order of the new configuration, those
// that are gone last. Secrets count, though they are shown masked.
func Changes(old, new *Config) []string {
	var keys []string
	before, after := old.values(), new.values()
	for _, s := range new.Settings() {
		if v, ok := before[s.Key]; !ok || !reflect.DeepEqual(v, after[s.Key]) {
			keys = append(keys, s.Key)
		}
	}
	for _, s := range old.Settings() {
		if _, ok := after[s.Key]; !ok {
			keys = append(keys, s.Key)
		}
	}
	return keys
}

func (c *Config) values() map[string]any {
	values := map[string]any{}
	c.each(func(key string, _ *node, v reflect.Value) { values[key] = v.Interface() })
	return values
}

// CheckReload tells whether a running process may take the new configuration: nil, or a
// RefusedError.
func CheckReload(old, new *Config) error {
	var fixed []string
	for _, key := range Changes(old, new) {
		if !mayChange(key) {
			fixed = append(fixed, key)
		}
	}
	if len(fixed) == 0 {
		return nil
	}
	e := &RefusedError{Key: fixed[0], Origin: new.nearestOrigin(fixed[0]), AlsoFixed: len(fixed) - 1, Kept: "nothing"}
	for _, s := range old.Settings() {
		if s.Key == e.Key {
			e.Kept = s.Value
		}
	}
	for _, s := range new.Settings() {
		if s.Key == e.Key {
			e.Asked = s.Value
		}
	}
	return e
}

func mayChange(key string) bool {
	for _, pattern := range reloadable {
		if matchesKey(pattern, key) {
			return true
		}
	}
	return false
}

// matchesKey compares name by name; "*" takes any one name, and indexes of lists are ignored.
func matchesKey(pattern, key string) bool {
	want, have := strings.Split(pattern, "."), strings.Split(key, ".")
	if len(want) != len(have) {
		return false
	}
	for i := range want {
		name, _, _ := strings.Cut(have[i], "[")
		if want[i] != "*" && want[i] != name {
			return false
		}
	}
	return true
}
