package main

import (
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"net/netip"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/sluicemq/sluice/protocol/message"
)

// storeFiles writes a store as a stopped broker leaves it: two segments, the first one ended by
// a blank record, and the queue orders/0 whose offset 1 has no message.
type storeFiles struct {
	t        *testing.T
	dir      string
	segments map[int64][]byte
	units    []byte
}

const testSegment = 4096

func newStoreFiles(t *testing.T) *storeFiles {
	t.Helper()
	s := &storeFiles{t: t, dir: t.TempDir(), segments: map[int64][]byte{}}
	host := netip.MustParseAddrPort("127.0.0.1:10911")
	offset := int64(0)
	for i := range 8 {
		m := message.Message{Topic: "orders", QueueOffset: int64(i), PhysicalOffset: offset, Body: []byte(fmt.Sprintf("%0600d", i)),
			StoreTimestamp: 1_700_000_000_000 + int64(i), BornHost: host, StoreHost: host}
		m.SetProperty(message.PropertyTags, "new")
		base := offset / testSegment * testSegment
		if room := base + testSegment - offset; int64(message.RecordSize(&m, true)+message.BlankLen) > room {
			s.segments[base] = message.BlankRecord(s.segments[base], int32(room))
			offset, base = base+testSegment, base+testSegment
			m.PhysicalOffset = offset
		}
		record, err := message.AppendRecord(nil, &m, true)
		if err != nil {
			t.Fatal(err)
		}
		message.Seal(record, m.QueueOffset, m.PhysicalOffset, m.StoreTimestamp)
		if i == 1 {
			s.unit(0, gapSize)
		} else {
			s.unit(offset, int32(len(record)))
		}
		s.segments[base] = append(s.segments[base], record...)
		offset += int64(len(record))
	}
	s.save()
	return s
}

func (s *storeFiles) unit(offset int64, size int32) {
	s.units = binary.BigEndian.AppendUint64(s.units, uint64(offset))
	s.units = binary.BigEndian.AppendUint32(s.units, uint32(size))
	s.units = binary.BigEndian.AppendUint64(s.units, 0)
}

func (s *storeFiles) save() {
	s.t.Helper()
	for base, data := range s.segments {
		s.write(filepath.Join("commitlog", fmt.Sprintf("%020d", base)), append(data, make([]byte, testSegment-len(data))...))
	}
	s.write(filepath.Join("consumequeue", "orders", "0", fmt.Sprintf("%020d", 0)), append(s.units, make([]byte, 2000)...))
	s.write("lock", nil)
	s.write("cursors.json", []byte(`{"cursors":[{"name":"core","topic":"orders","queue":0,"offset":5}]}`))
}

func (s *storeFiles) write(name string, data []byte) {
	s.t.Helper()
	path := filepath.Join(s.dir, name)
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		s.t.Fatal(err)
	}
	if err := os.WriteFile(path, data, 0o600); err != nil {
		s.t.Fatal(err)
	}
}

// snapshot is every file of a directory, to show that nothing changed.
func (s *storeFiles) snapshot() map[string]string {
	s.t.Helper()
	files := map[string]string{}
	err := filepath.WalkDir(s.dir, func(path string, d os.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		data, err := os.ReadFile(path)
		files[path] = string(data)
		return err
	})
	if err != nil {
		s.t.Fatal(err)
	}
	return files
}

func TestSpoolStat(t *testing.T) {
	s := newStoreFiles(t)
	before := s.snapshot()
	r := call(t, nil, "spool", "stat", "--verify", s.dir)
	text := strings.Join(strings.Fields(r.out), " ")
	for _, want := range []string{"last stop clean", "segments 2", "records 8", "orders 0 0 8 8", "core orders 0 5 3", "2023-11-14T22:13:20.000Z to 2023-11-14T22:13:20.007Z"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, r.out)
		}
	}
	if r.code != exitOK {
		t.Errorf("exit %d: %s", r.code, r.err)
	}
	s.write("abort", nil)
	if r := call(t, nil, "spool", "stat", s.dir); !strings.Contains(r.out, "crash") {
		t.Errorf("got %s", r.out)
	}
	os.Remove(filepath.Join(s.dir, "abort"))
	if after := s.snapshot(); len(after) != len(before) {
		t.Errorf("%d files before, %d after", len(before), len(after))
	} else {
		for path, data := range before {
			if after[path] != data {
				t.Errorf("%s changed", path)
			}
		}
	}
}

func TestSpoolStatFindsDamage(t *testing.T) {
	s := newStoreFiles(t)
	s.segments[0][300] ^= 1 // in the first body
	s.save()
	if r := call(t, nil, "spool", "stat", s.dir); r.code != exitOK {
		t.Errorf("without --verify: exit %d, %s", r.code, r.err)
	}
	r := call(t, nil, "spool", "stat", "--verify", s.dir)
	if r.code != exitFailure || !strings.Contains(r.err, "log offset 0") {
		t.Errorf("exit %d, %q", r.code, r.err)
	}
}

func TestSpoolDump(t *testing.T) {
	s := newStoreFiles(t)
	tests := []struct {
		args []string
		want []int64 // queue offsets
	}{
		{nil, []int64{0, 1, 2, 3, 4, 5, 6, 7}},
		{[]string{"--count", "2"}, []int64{0, 1}},
		{[]string{"--from", "6"}, []int64{6, 7}},
		{[]string{"--queue", "orders/0"}, []int64{0, 2, 3, 4, 5, 6, 7}},
		{[]string{"--queue", "orders/0", "--from", "1", "--count", "5"}, []int64{2, 3, 4, 5, 6}},
		{[]string{"--queue", "orders/0", "--from", "100"}, nil},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			r := call(t, nil, append([]string{"spool", "dump", s.dir}, tt.args...)...)
			if r.code != exitOK {
				t.Fatalf("exit %d: %s", r.code, r.err)
			}
			decoder := json.NewDecoder(strings.NewReader(r.out))
			var got []int64
			for {
				var line struct {
					Offset    int64
					Body, Tag string
				}
				if err := decoder.Decode(&line); err == io.EOF {
					break
				} else if err != nil {
					t.Fatal(err)
				}
				if line.Body != fmt.Sprintf("%0600d", line.Offset) || line.Tag != "new" {
					t.Errorf("offset %d: %+v", line.Offset, line)
				}
				got = append(got, line.Offset)
			}
			if fmt.Sprint(got) != fmt.Sprint(tt.want) {
				t.Errorf("got offsets %v, want %v", got, tt.want)
			}
		})
	}
}

func TestSpoolRefuses(t *testing.T) {
	s := newStoreFiles(t)
	for _, tt := range []struct {
		args []string
		code int
		err  string
	}{
		{[]string{"stat", t.TempDir()}, exitFailure, "is no store"},
		{[]string{"dump", s.dir, "--queue", "orders"}, exitUsage, "is not TOPIC/NUMBER"},
		{[]string{"dump", s.dir, "--queue", "../x/0"}, exitUsage, "is not TOPIC/NUMBER"},
		{[]string{"dump", s.dir, "--queue", "orders/7"}, exitFailure, "no queue orders/7"},
		{[]string{"dump", s.dir, "--count", "-1"}, exitUsage, "want 0 or more"},
	} {
		r := call(t, nil, append([]string{"spool"}, tt.args...)...)
		if r.code != tt.code || !strings.Contains(r.err, tt.err) {
			t.Errorf("%v: exit %d, %q", tt.args, r.code, r.err)
		}
	}
}

// TestSpoolRefusesAStoreInUse locks the store as a running spool does.
func TestSpoolRefusesAStoreInUse(t *testing.T) {
	s := newStoreFiles(t)
	f, err := os.OpenFile(filepath.Join(s.dir, "lock"), os.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	if err := unix.FcntlFlock(f.Fd(), unix.F_OFD_SETLK, &unix.Flock_t{Type: unix.F_WRLCK, Whence: io.SeekStart, Len: 1}); err != nil {
		t.Fatal(err)
	}
	r := call(t, nil, "spool", "stat", s.dir)
	if r.code != exitFailure || !strings.Contains(r.err, "in use by a running process") {
		t.Errorf("exit %d, %q", r.code, r.err)
	}
}
