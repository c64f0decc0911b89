package spool

import (
	"encoding/binary"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"sort"
	"strconv"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
)

// checkStore reads the files of a store that nobody has open, by code of its
// own, and demands that log and queues fit together: every record is whole and
// says its own place; the units of a queue are contiguous, ascend in the log
// and each point at a record of that queue and offset. With complete, every
// record of the log also has its unit. It returns the bodies per queue.
func checkStore(t testing.TB, dir string, entries int64, complete bool) map[string][]string {
	t.Helper()
	log, dead := checkLog(t, dir)
	units := checkUnits(t, dir, entries, log)
	out := make(map[string][]string)
	for key, recs := range log {
		for _, off := range sortedOffsets(recs) {
			r := recs[off]
			if r.phys < dead[key.topic] {
				continue
			}
			if complete && !units[key][r.phys] {
				t.Errorf("%s queue %d: record %d at %d has no unit", key.topic, key.id, off, r.phys)
			}
			name := fmt.Sprintf("%s/%d", key.topic, key.id)
			out[name] = append(out[name], r.body)
		}
	}
	return out
}

type queueKey struct {
	topic string
	id    int32
}

type logRecord struct {
	phys int64
	size int32
	tags int64
	body string
}

func sortedOffsets(m map[int64]logRecord) []int64 {
	var offs []int64
	for o := range m {
		offs = append(offs, o)
	}
	sort.Slice(offs, func(i, j int) bool { return offs[i] < offs[j] })
	return offs
}

// deletedAt reads from which log offset on the records of a topic count.
func deletedAt(t testing.TB, dir string) map[string]int64 {
	t.Helper()
	data, err := os.ReadFile(filepath.Join(dir, "deleted.json"))
	if os.IsNotExist(err) {
		return nil
	}
	var file struct{ Deleted map[string]int64 }
	if err := errors.Join(err, json.Unmarshal(data, &file)); err != nil {
		t.Fatal(err)
	}
	return file.Deleted
}

// checkLog walks the log. A queue's newest record of an offset counts: before
// it, the topic may have been deleted.
func checkLog(t testing.TB, dir string) (map[queueKey]map[int64]logRecord, map[string]int64) {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "commitlog", "*"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no log files in %s: %v", dir, err)
	}
	sort.Strings(files)
	log := make(map[queueKey]map[int64]logRecord)
	last := make(map[queueKey]int64)
	dead := deletedAt(t, dir)
	next, ended := int64(-1), false
	for _, name := range files {
		base, err := strconv.ParseInt(filepath.Base(name), 10, 64)
		if err != nil || next >= 0 && base != next {
			t.Fatalf("log file %s: want offset %d", name, next)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		next = base + int64(len(data))
		pos, rolled := walkFile(t, data, base, func(m *message.Message) {
			if ended {
				t.Fatalf("record at %d after the log's end", m.PhysicalOffset)
			}
			if m.SysFlag.Transaction() == message.TransactionRollback {
				return
			}
			k := queueKey{m.Topic, m.QueueID}
			if log[k] == nil {
				log[k] = make(map[int64]logRecord)
			} else if want := last[k] + 1; m.QueueOffset == 0 {
				log[k] = make(map[int64]logRecord)
			} else if m.QueueOffset != want {
				t.Errorf("%v: offset %d at %d, want %d", k, m.QueueOffset, m.PhysicalOffset, want)
			}
			last[k] = m.QueueOffset
			tags, _ := message.Property(m.Properties, "TAGS")
			log[k][m.QueueOffset] = logRecord{m.PhysicalOffset, m.StoreSize, message.TagHash(tags), string(m.Body)}
		})
		if !rolled {
			ended = true
			if binary.BigEndian.Uint64(data[pos-base:]) != 0 {
				t.Errorf("no zeros at the log's end %d", pos)
			}
		}
	}
	return log, dead
}

func walkFile(t testing.TB, data []byte, base int64, f func(*message.Message)) (pos int64, rolled bool) {
	t.Helper()
	for at := 0; ; {
		size, magic, ok := message.Head(data[at:])
		if ok && magic == message.MagicBlank && int(size) == len(data)-at {
			return base + int64(at), true
		}
		if size == 0 {
			return base + int64(at), false
		}
		var m message.Message
		if err := message.Verify(data[at:]); err != nil {
			t.Fatalf("record at %d: %v", base+int64(at), err)
		}
		if err := message.Decode(data[at:], &m); err != nil {
			t.Fatalf("record at %d: %v", base+int64(at), err)
		}
		if m.PhysicalOffset != base+int64(at) {
			t.Fatalf("record at %d says it is at %d", base+int64(at), m.PhysicalOffset)
		}
		f(&m)
		at += int(m.StoreSize)
	}
}

// checkUnits compares all queue files with the log and returns which records
// have a unit.
func checkUnits(t testing.TB, dir string, entries int64, log map[queueKey]map[int64]logRecord) map[queueKey]map[int64]bool {
	t.Helper()
	files, err := filepath.Glob(filepath.Join(dir, "consumequeue", "*", "*", "*"))
	if err != nil {
		t.Fatal(err)
	}
	sort.Strings(files)
	have := make(map[queueKey]map[int64]bool)
	lastPhys := make(map[queueKey]int64)
	for _, name := range files {
		id, _ := strconv.Atoi(filepath.Base(filepath.Dir(name)))
		k := queueKey{filepath.Base(filepath.Dir(filepath.Dir(name))), int32(id)}
		base, err := strconv.ParseInt(filepath.Base(name), 10, 64)
		if err != nil || base%(entries*unitSize) != 0 {
			t.Fatalf("queue file %s", name)
		}
		data, err := os.ReadFile(name)
		if err != nil || int64(len(data)) != entries*unitSize {
			t.Fatalf("queue file %s has %d bytes: %v", name, len(data), err)
		}
		if have[k] == nil {
			have[k] = make(map[int64]bool)
			lastPhys[k] = -1
		}
		ended := false
		for i := int64(0); i < entries; i++ {
			u := parseUnit(data[i*unitSize:])
			off := base/unitSize + i
			if !u.valid() {
				ended = true
				if u != (unit{}) {
					t.Errorf("%v: unit %d is neither valid nor zero: %+v", k, off, u)
				}
				continue
			}
			if ended {
				t.Errorf("%v: unit %d behind the end of the queue: %+v", k, off, u)
			}
			checkUnit(t, k, off, u, log[k], lastPhys[k])
			if !u.gap() {
				have[k][u.phys] = true
				lastPhys[k] = u.phys
			}
		}
	}
	return have
}

func checkUnit(t testing.TB, k queueKey, off int64, u unit, recs map[int64]logRecord, last int64) {
	t.Helper()
	if u.gap() {
		return
	}
	if u.phys <= last {
		t.Errorf("%v: unit %d at %d does not ascend from %d", k, off, u.phys, last)
	}
	r, ok := recs[off]
	if !ok {
		for _, r := range recs {
			if r.phys <= u.phys {
				t.Errorf("%v: unit %d points at %d, where no such record is", k, off, u.phys)
				return
			}
		}
		return // its record was deleted with its segment
	}
	if r.phys != u.phys || r.size != u.size || r.tags != u.tags {
		t.Errorf("%v: unit %d is %+v, its record %d bytes at %d tags %d", k, off, u, r.size, r.phys, r.tags)
	}
}
