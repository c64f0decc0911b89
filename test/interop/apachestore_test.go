package interop

import (
	"archive/tar"
	"compress/gzip"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// A storedRecord is what Apache's decoder says about one record of a store.
type storedRecord struct {
	Topic          string
	QueueID        int32 `json:"queueId"`
	QueueOffset    int64
	PhysicalOffset int64
	Size           int32
	UniqKey        string
	TagsCode       int64
	BodyCRC        uint32 `json:"bodyCrc"`
}

// The spool opens the stores that Apache's broker left behind, stopped in good
// order and killed, finds every record where Apache put it, and goes on behind
// the last one. Unlike the rest of this package this needs no Java: the stores
// are test data, with files of sizes of their own.
func TestSpoolOpensApachesStores(t *testing.T) {
	for _, name := range []string{"clean", "killed"} {
		t.Run(name, func(t *testing.T) {
			golden := filepath.Join("..", "..", "spool", "testdata", "apache")
			dir := t.TempDir()
			unpack(t, filepath.Join(golden, name+".tar.gz"), dir)
			var want []storedRecord
			text, err := os.ReadFile(filepath.Join(golden, name+".json"))
			if err != nil {
				t.Fatal(err)
			}
			if err := json.Unmarshal(text, &want); err != nil || len(want) < 200 {
				t.Fatalf("%d records, %v", len(want), err)
			}
			s, err := spool.Open(spool.Options{Dir: filepath.Join(dir, "store"), SegmentBytes: 65536, QueueFileEntries: 20})
			if err != nil {
				t.Fatal(err)
			}
			ctx, cancel := context.WithCancel(t.Context())
			ended := make(chan error, 1)
			go func() { ended <- s.Run(ctx) }()
			defer func() {
				cancel()
				if err := <-ended; err != nil && !errors.Is(err, context.Canceled) {
					t.Error(err)
				}
			}()
			checkStore(t, ctx, s, want)
		})
	}
}

func checkStore(t *testing.T, ctx context.Context, s *spool.Spool, want []storedRecord) {
	t.Helper()
	var records spool.Records
	defer records.Release()
	ends := map[*spool.Queue]int64{}
	var first storedRecord // of a queue that has a tag
	for _, w := range want {
		q := s.LookupQueue([]byte(w.Topic), w.QueueID)
		if q == nil {
			t.Fatalf("no queue %s/%d", w.Topic, w.QueueID)
		}
		if err := q.Wait(ctx, w.QueueOffset); err != nil {
			t.Fatal(err)
		}
		records.Release()
		filter := func(code int64) bool { return code == w.TagsCode }
		r := s.Read(q, w.QueueOffset, spool.Limit{Messages: 1, Bytes: 1 << 20}, filter, &records)
		if r.Status != spool.Found || records.Len() != 1 {
			t.Fatalf("%+v: %v, %d records", w, r.Status, records.Len())
		}
		records.Each(func(record []byte) bool {
			if difference := differs(record, w); difference != "" {
				t.Errorf("%+v: %s", w, difference)
			}
			return true
		})
		ends[q], first = max(ends[q], w.QueueOffset+1), w
	}
	for q, end := range ends {
		if q.Min() != 0 || q.Max() != end {
			t.Errorf("queue %s/%d has %d to %d, Apache's 0 to %d", q.Topic(), q.ID(), q.Min(), q.Max(), end)
		}
	}
	q := s.LookupQueue([]byte(first.Topic), first.QueueID)
	var b spool.Batch
	if _, err := b.Add(q, &message.Message{Body: []byte("behind Apache's")}); err != nil {
		t.Fatal(err)
	}
	if err := s.Append(&b); err != nil {
		t.Fatal(err)
	}
	last := want[len(want)-1]
	if r := b.Result(0); r.QueueOffset != ends[q] || r.PhysicalOffset < last.PhysicalOffset+int64(last.Size) {
		t.Errorf("the next message is stored as %+v, behind queue offset %d and %+v", r, ends[q], last)
	}
}

// differs says in what a record is not the one that Apache stored.
func differs(record []byte, w storedRecord) string {
	if err := message.Verify(record); err != nil {
		return err.Error()
	}
	var m message.Message
	if err := message.Decode(record, &m); err != nil {
		return err.Error()
	}
	key, _ := m.Property(message.PropertyUniqueKey)
	got := storedRecord{m.Topic, m.QueueID, m.QueueOffset, m.PhysicalOffset, m.StoreSize, key, w.TagsCode, m.BodyCRC}
	if got != w {
		return fmt.Sprintf("read %+v", got)
	}
	return ""
}

// unpack extracts a compressed archive of plain files and directories.
func unpack(t *testing.T, archive, dir string) {
	t.Helper()
	f, err := os.Open(archive)
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	z, err := gzip.NewReader(f)
	if err != nil {
		t.Fatal(err)
	}
	for r := tar.NewReader(z); ; {
		h, err := r.Next()
		if errors.Is(err, io.EOF) {
			return
		}
		if err != nil {
			t.Fatal(err)
		}
		path := filepath.Join(dir, filepath.FromSlash(h.Name))
		if h.FileInfo().IsDir() {
			if err := os.MkdirAll(path, 0o755); err != nil {
				t.Fatal(err)
			}
			continue
		}
		data, err := io.ReadAll(r)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, data, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}
