package namesrv

import (
	"encoding/json"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"sync"
	"sync/atomic"
	"unicode/utf8"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool/segment"
)

// orderNamespace holds the order configuration of topics, key: topic.
const orderNamespace = "ORDER_TOPIC_CONFIG"

// maxKVBytes bounds all namespaces, keys and values together.
const maxKVBytes = 8 << 20

// kvTable is namespace → key → value. A published one is never changed.
type kvTable map[string]map[string]string

// kvConfig keeps the key-value settings, in a file when it has one. Readers
// take the present table without a lock; writers publish a new one once it is
// durable.
type kvConfig struct {
	table atomic.Pointer[kvTable]

	mu   sync.Mutex
	file *segment.StateFile // nil: memory only
}

// kvFile is the file's content, as Apache's name server writes it.
type kvFile struct {
	ConfigTable kvTable `json:"configTable"`
}

// openKV loads the file at path, which need not exist. A file that cannot be
// read is an error: it must not be replaced by an empty one.
func openKV(fsys segment.FS, path string, log *slog.Logger) (*kvConfig, error) {
	kv := &kvConfig{}
	kv.table.Store(&kvTable{})
	if path == "" {
		return kv, nil
	}
	if err := fsys.MkdirAll(filepath.Dir(path)); err != nil && !errors.Is(err, os.ErrExist) {
		return nil, fmt.Errorf("load name server settings: %w", err)
	}
	kv.file = segment.NewStateFile(fsys, path)
	_, fallback, err := kv.file.Load(func(data []byte) error {
		var f kvFile
		if err := protocol.Unmarshal(data, &f); err != nil {
			return err
		}
		if f.ConfigTable != nil {
			kv.table.Store(&f.ConfigTable)
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("load name server settings: %w", err)
	}
	if fallback != nil {
		log.Warn("name server settings taken from the backup", "file", path, "err", fallback)
	}
	return kv, nil
}

// get returns one setting.
func (kv *kvConfig) get(namespace, key string) (string, bool) {
	v, ok := (*kv.table.Load())[namespace][key]
	return v, ok
}

// list returns a namespace, which must not be changed; false when there is none.
func (kv *kvConfig) list(namespace string) (map[string]string, bool) {
	m, ok := (*kv.table.Load())[namespace]
	return m, ok
}

// put stores a setting. When it returns nil the setting is durable.
func (kv *kvConfig) put(namespace, key, value string) error {
	if err := errors.Join(checkName("namespace", namespace), checkName("key", key)); err != nil {
		return err
	}
	if len(value) > maxValueLen || !utf8.ValidString(value) {
		return protocol.Errorf(protocol.SystemError, "the value of %s has %d bytes or is no UTF-8, at most %d bytes are allowed",
			quote(key), len(value), maxValueLen)
	}
	return kv.update(func(t kvTable) bool {
		if old, ok := t[namespace][key]; ok && old == value {
			return false
		}
		m := maps.Clone(t[namespace])
		if m == nil {
			m = make(map[string]string, 1)
		}
		m[key] = value
		t[namespace] = m
		return true
	})
}

// remove deletes a setting, if it is there.
func (kv *kvConfig) remove(namespace, key string) error {
	return kv.update(func(t kvTable) bool {
		if _, ok := t[namespace][key]; !ok {
			return false
		}
		m := maps.Clone(t[namespace])
		delete(m, key)
		t[namespace] = m
		return true
	})
}

// update lets change work on a copy whose inner maps are still shared, saves it
// and publishes it.
func (kv *kvConfig) update(change func(kvTable) bool) error {
	kv.mu.Lock()
	defer kv.mu.Unlock()
	next := maps.Clone(*kv.table.Load())
	if !change(next) {
		return nil
	}
	if n := next.bytes(); n > maxKVBytes {
		return protocol.Errorf(protocol.SystemError, "the settings would have %d bytes, at most %d are allowed", n, maxKVBytes)
	}
	if kv.file != nil {
		data, err := json.MarshalIndent(kvFile{next}, "", "\t")
		if err == nil {
			err = kv.file.Save(append(data, '\n'))
		}
		if err != nil {
			return fmt.Errorf("save name server settings: %w", err)
		}
	}
	kv.table.Store(&next)
	return nil
}

func (t kvTable) bytes() int {
	n := 0
	for namespace, m := range t {
		n += len(namespace)
		for k, v := range m {
			n += len(k) + len(v)
		}
	}
	return n
}
