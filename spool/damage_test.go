package spool

import (
	"encoding/binary"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// F02, F12: one changed byte anywhere in a record is found; the messages
// before it stay; nothing is read beyond the segment.
func TestDamagedRecord(t *testing.T) {
	for _, where := range []string{"size", "size huge", "size negative", "magic", "queue offset", "body", "topic length", "properties length", "crc"} {
		for _, last := range []bool{true, false} {
			t.Run(fmt.Sprintf("%s/last=%v", where, last), func(t *testing.T) {
				o := testOptions(t, t.TempDir())
				want := fillStore(t, o, 60, true)
				file, at, size := lastRecords(t, o.Dir, 4)
				i := 3
				if !last {
					i = 1
				}
				damage(t, file, at[i], size[i], where)
				// Message 59-(3-i) goes; the ones behind it stay in their places.
				s := mustOpen(t, o)
				defer s.Close()
				gone := 59 - (3 - i)
				for id := range 2 {
					q, name := s.Queue("TopicTest", int32(id)), fmt.Sprintf("TopicTest/%d", id)
					exp := slices.Clone(want[name])
					if gone%2 == id {
						exp = slices.Delete(exp, gone/2, gone/2+1)
					}
					if got := bodies(t, s, q); !slices.Equal(got, exp) {
						t.Errorf("%s: got %d messages, want %d", name, len(got), len(exp))
					}
				}
				if st := s.Stats(); st.DamagedBytes == 0 || st.Quarantined != 1 {
					t.Errorf("damage not reported: %+v", st)
				}
				if q := globSorted(t, o.Dir, "quarantine", "*"); len(q) != 1 {
					t.Errorf("quarantine holds %v", q)
				}
				next := put(t, s, s.Queue("TopicTest", int32(gone%2)), "next")
				if last && next.QueueOffset != int64(gone/2) || !last && next.QueueOffset != 30 {
					t.Errorf("next offset %d", next.QueueOffset)
				}
				end := s.Stats().MaxOffset
				s.Close()
				s = mustOpen(t, o)
				defer s.Close()
				if st := s.Stats(); st.MaxOffset != end || st.DamagedBytes != 0 {
					t.Errorf("second recovery found more: %+v, end was %d", st, end)
				}
			})
		}
	}
}

func damage(t *testing.T, file string, at, size int, where string) {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	rec := data[at : at+size]
	body := int(binary.BigEndian.Uint32(rec[84:]))
	flip := map[string]int{"size": 3, "magic": 5, "queue offset": 27, "body": 90, "topic length": 88 + body, "crc": size - 3,
		"properties length": 88 + body + 1 + int(rec[88+body]) + 1}
	b := []byte{0x7f, 0xff, 0xff, 0xff}
	switch p, ok := flip[where]; {
	case ok:
		overwrite(t, file, at+p, []byte{rec[p] ^ 0x10})
	case where == "size negative":
		b[0] = 0xff
		fallthrough
	default:
		overwrite(t, file, at, b)
	}
}

// Damage at a segment's start and over its end, and a segment that is gone.
func TestDamageAcrossSegments(t *testing.T) {
	tests := map[string]func(t *testing.T, files []string){
		"first bytes of a segment": func(t *testing.T, f []string) { overwrite(t, f[2], 0, make([]byte, 8)) },
		"a whole segment":          func(t *testing.T, f []string) { overwrite(t, f[1], 0, make([]byte, 64<<10)) },
		"end of one, start of the next": func(t *testing.T, f []string) {
			overwrite(t, f[1], 50<<10, []byte(strings.Repeat("x", 14<<10)))
			overwrite(t, f[2], 0, []byte(strings.Repeat("x", 1000)))
		},
		"segment missing": func(t *testing.T, f []string) {
			if err := os.Remove(f[1]); err != nil {
				t.Fatal(err)
			}
		},
	}
	for name, f := range tests {
		t.Run(name, func(t *testing.T) {
			o := testOptions(t, t.TempDir())
			fillStore(t, o, 400, true)
			files := globSorted(t, o.Dir, "commitlog", "*")
			f(t, files)
			// The whole log is walked when the queues have to be made anew.
			if err := os.RemoveAll(filepath.Join(o.Dir, "consumequeue")); err != nil {
				t.Fatal(err)
			}
			s := mustOpen(t, o)
			q := s.Queue("TopicTest", 0)
			if q.Max() != 200 || s.Stats().Gaps == 0 {
				t.Errorf("queue ends at %d: %+v", q.Max(), s.Stats())
			}
			got := bodies(t, s, q)
			if len(got) >= 200 || len(got) < 80 || !strings.HasPrefix(got[len(got)-1], "message 0398") {
				t.Errorf("%d messages left, the last %.20s", len(got), got[len(got)-1])
			}
			s.Close()
			checkHoles(t, o)
		})
	}
}

// checkHoles demands that a second recovery finds nothing left to mend.
func checkHoles(t *testing.T, o Options) {
	t.Helper()
	if err := os.RemoveAll(filepath.Join(o.Dir, "consumequeue")); err != nil {
		t.Fatal(err)
	}
	s := mustOpen(t, o)
	defer s.Close()
	if st := s.Stats(); st.DamagedBytes != 0 || s.Queue("TopicTest", 0).Max() != 200 {
		t.Errorf("second recovery: %+v", st)
	}
}
