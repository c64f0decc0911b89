package message

import (
	"bytes"
	"encoding/json"
	"net/netip"
	"os"
	"path/filepath"
	"reflect"
	"testing"
)

// A goldenRecord is what Apache's own decoder says about a record that Apache's
// broker stored; test/vectors records both.
type goldenRecord struct {
	File                      string
	Topic                     string
	QueueID                   int32 `json:"queueId"`
	QueueOffset               int64
	PhysicalOffset            int64
	Size                      int32
	SysFlag                   SysFlag
	Flag                      int32
	BornTimestamp             int64
	BornHost                  netip.AddrPort
	StoreTimestamp            int64
	StoreHost                 netip.AddrPort
	ReconsumeTimes            int32
	PreparedTransactionOffset int64
	BodyCRC                   uint32 `json:"bodyCrc"`
	BodyLength                int
	OffsetMsgID               string `json:"offsetMsgId"`
	Tags                      string
	TagsCode                  int64
	Properties                map[string]string
	Run                       string
}

func goldenRecords(t *testing.T) map[string]goldenRecord {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", "records", "index.json"))
	if err != nil {
		t.Fatal(err)
	}
	var list []goldenRecord
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	all := map[string]goldenRecord{}
	for _, r := range list {
		all[r.File] = r
	}
	if len(all) < 60 {
		t.Fatalf("only %d golden records: the directory is incomplete", len(all))
	}
	return all
}

func eachGoldenRecord(t *testing.T, f func(t *testing.T, record []byte, want goldenRecord)) {
	t.Helper()
	for name, want := range goldenRecords(t) {
		t.Run(name, func(t *testing.T) {
			record, err := os.ReadFile(filepath.Join("testdata", "records", name))
			if err != nil {
				t.Fatal(err)
			}
			f(t, record, want)
		})
	}
}

func TestDecodeReadsWhatApacheStored(t *testing.T) {
	eachGoldenRecord(t, func(t *testing.T, record []byte, want goldenRecord) {
		if err := Verify(record); err != nil {
			t.Fatalf("Verify: %v", err)
		}
		var m Message
		if err := Decode(record, &m); err != nil {
			t.Fatalf("Decode: %v", err)
		}
		got := goldenRecord{
			File: want.File, Run: want.Run, Topic: m.Topic, QueueID: m.QueueID, QueueOffset: m.QueueOffset,
			PhysicalOffset: m.PhysicalOffset, Size: m.StoreSize, SysFlag: m.SysFlag, Flag: m.Flag,
			BornTimestamp: m.BornTimestamp, BornHost: m.BornHost, StoreTimestamp: m.StoreTimestamp, StoreHost: m.StoreHost,
			ReconsumeTimes: m.ReconsumeTimes, PreparedTransactionOffset: m.PreparedTransactionOffset,
			BodyCRC: m.BodyCRC, BodyLength: len(m.Body),
			OffsetMsgID: OffsetID(m.StoreHost, m.PhysicalOffset), Properties: ParseProperties(m.Properties),
		}
		tag, _ := Property(m.Properties, PropertyTags)
		got.Tags, got.TagsCode = string(tag), TagHash(tag)
		// The record CRC is part of the stored properties for Apache; here it is
		// part of the record's form.
		delete(want.Properties, PropertyCRC32)
		if !reflect.DeepEqual(got, want) {
			t.Errorf("decoded %+v\n   want %+v", got, want)
		}
	})
}

func TestAppendRecordWritesWhatApacheStored(t *testing.T) {
	eachGoldenRecord(t, func(t *testing.T, record []byte, want goldenRecord) {
		var m Message
		if err := Decode(record, &m); err != nil {
			t.Fatal(err)
		}
		withCRC := want.Run == "crc"
		again, err := AppendRecord(nil, &m, withCRC)
		if err != nil {
			t.Fatal(err)
		}
		Seal(again, m.QueueOffset, m.PhysicalOffset, m.StoreTimestamp)
		if !bytes.Equal(again, record) {
			t.Errorf("encoded again:\n got %x\nwant %x", again, record)
		}
		if size := RecordSize(&m, withCRC); size != len(record) {
			t.Errorf("RecordSize %d, stored %d", size, len(record))
		}
	})
}

// The same record after Seal has moved it and moved it back is Apache's again.
func TestSealMovesApachesRecord(t *testing.T) {
	eachGoldenRecord(t, func(t *testing.T, record []byte, want goldenRecord) {
		moved := bytes.Clone(record)
		Seal(moved, want.QueueOffset+1, want.PhysicalOffset+4096, want.StoreTimestamp+1000)
		if bytes.Equal(moved, record) {
			t.Fatal("Seal changed nothing")
		}
		if err := Verify(moved); err != nil {
			t.Errorf("Verify after Seal: %v", err)
		}
		Seal(moved, want.QueueOffset, want.PhysicalOffset, want.StoreTimestamp)
		if !bytes.Equal(moved, record) {
			t.Errorf("sealed back:\n got %x\nwant %x", moved, record)
		}
	})
}

// A record stored with a CRC and stripped of it decodes to the same message.
func TestAppendStrippedOfApachesRecord(t *testing.T) {
	eachGoldenRecord(t, func(t *testing.T, record []byte, want goldenRecord) {
		stripped := AppendStripped(nil, record)
		wantLen := len(record)
		if want.Run == "crc" {
			wantLen -= CRCSuffixLen
		}
		if len(stripped) != wantLen {
			t.Fatalf("%d bytes, want %d", len(stripped), wantLen)
		}
		var a, b Message
		if err := Decode(record, &a); err != nil {
			t.Fatal(err)
		}
		if err := Decode(stripped, &b); err != nil {
			t.Fatal(err)
		}
		b.StoreSize = a.StoreSize
		if !reflect.DeepEqual(a, b) {
			t.Errorf("stripped %+v\n    want %+v", b, a)
		}
	})
}

func TestIDAndMagicOfApachesRecord(t *testing.T) {
	eachGoldenRecord(t, func(t *testing.T, record []byte, want goldenRecord) {
		var m Message
		if err := Decode(record, &m); err != nil {
			t.Fatal(err)
		}
		store, offset, err := ParseOffsetID(want.OffsetMsgID)
		if err != nil || store != want.StoreHost || offset != want.PhysicalOffset {
			t.Errorf("ParseOffsetID(%s) = %v, %d, %v", want.OffsetMsgID, store, offset, err)
		}
		if (len(want.Topic) > MaxTopicNameLen) != bytes.Equal(record[4:8], []byte{0xDA, 0xA3, 0x20, 0xAB}) {
			t.Errorf("topic of %d bytes has magic %x", len(want.Topic), record[4:8])
		}
	})
}
