package protocol

import (
	"bytes"
	"compress/zlib"
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

func registration(topics int) *RegisterBrokerBody {
	return &RegisterBrokerBody{
		FilterServerList: []string{"10.0.0.1:1"},
		TopicConfigSerializeWrapper: TopicConfigSerializeWrapper{
			DataVersion:      DataVersion{Counter: 3, Timestamp: 1764400000000},
			TopicConfigTable: manyTopics(topics),
			TopicQueueMappingInfoMap: map[string]TopicQueueMappingInfo{
				"s": {BrokerName: "b", CurrIDMap: map[int32]int32{0: 1}, Topic: "s", TotalQueues: 2},
			},
		},
	}
}

func TestRegistrationSurvives(t *testing.T) {
	for _, compressed := range []bool{false, true} {
		want := registration(1000)
		data, err := want.Encode(compressed)
		if err != nil {
			t.Fatal(err)
		}
		got, err := DecodeRegisterBrokerBody(data, compressed, CurrentVersion)
		if err != nil {
			t.Fatal(err)
		}
		for name, c := range got.TopicConfigSerializeWrapper.TopicConfigTable {
			if len(c.Attributes) == 0 { // absent and empty are the same
				c.Attributes = nil
				got.TopicConfigSerializeWrapper.TopicConfigTable[name] = c
			}
		}
		if !reflect.DeepEqual(got, want) {
			t.Errorf("compressed %v: got %+v", compressed, got)
		}
	}
}

func TestRegistrationOfOldBrokers(t *testing.T) {
	got, err := DecodeRegisterBrokerBody([]byte(`{"dataVersion":{"counter":2},"topicConfigTable":{"t":{"topicName":"t","perm":4}}}`), false, Version3_0_11-1)
	if err != nil || got.TopicConfigSerializeWrapper.TopicConfigTable["t"].Perm != 4 || got.TopicConfigSerializeWrapper.DataVersion.Counter != 2 {
		t.Errorf("topic table alone: %+v, %v", got, err)
	}
	if got, err = DecodeRegisterBrokerBody(nil, true, CurrentVersion); err != nil || len(got.TopicConfigSerializeWrapper.TopicConfigTable) != 0 {
		t.Errorf("no body: %+v, %v", got, err)
	}
	// Before 5.0.0 there is no section of static topics, and attributes may be missing.
	got, err = DecodeRegisterBrokerBody(packed(t, `{"counter":1}`, 1, "t 1 2 6 SINGLE_TAG", `[]`), true, Version5_0_0-1)
	want := TopicConfig{TopicName: "t", ReadQueueNums: 1, WriteQueueNums: 2, Perm: 6, TopicFilterType: SingleTag}
	if err != nil || !reflect.DeepEqual(got.TopicConfigSerializeWrapper.TopicConfigTable["t"], want) {
		t.Errorf("4.9: %+v, %v", got, err)
	}
}

// packed compresses sections: texts with their length before them, and numbers.
func packed(t *testing.T, parts ...any) []byte {
	t.Helper()
	var plain []byte
	for _, p := range parts {
		switch p := p.(type) {
		case int:
			plain = binary.BigEndian.AppendUint32(plain, uint32(p))
		case string:
			plain = append(binary.BigEndian.AppendUint32(plain, uint32(len(p))), p...)
		case []byte:
			plain = append(plain, p...)
		}
	}
	var out bytes.Buffer
	z := zlib.NewWriter(&out)
	if _, err := z.Write(plain); err != nil {
		t.Fatal(err)
	}
	if err := z.Close(); err != nil {
		t.Fatal(err)
	}
	return out.Bytes()
}

func TestRegistrationRefuses(t *testing.T) {
	for _, tc := range []struct {
		name, says string
		data       []byte
	}{
		{"not zlib", "zlib", []byte("plain")},
		{"cut stream", "unexpected EOF", packed(t, `{}`, 0, `[]`)[:8]},
		{"nothing", "data version", packed(t)},
		{"long section", "with 2 left", packed(t, 9, []byte("{}"))},
		{"negative section", "-1 bytes", packed(t, -1)},
		{"negative count", "-5 topics", packed(t, `{}`, -5)},
		{"count without topics", "topics in", packed(t, `{}`, 1<<30, "t 1 2 6 SINGLE_TAG")},
		{"short topic", "has 2 parts", packed(t, `{}`, 1, "t 1", `[]`)},
		{"topic without numbers", "invalid syntax", packed(t, `{}`, 1, "t a b c d", `[]`)},
		{"bomb", "unfolds to more", packed(t, make([]byte, 8<<20))},
	} {
		_, err := DecodeRegisterBrokerBody(tc.data, true, CurrentVersion)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: error %v, want one with %q", tc.name, err, tc.says)
		}
	}
	if _, err := DecodeRegisterBrokerBody([]byte(`[`), false, CurrentVersion); err == nil {
		t.Error("a broken JSON body was taken")
	}
	bad := registration(0)
	bad.TopicConfigSerializeWrapper.TopicConfigTable["a b"] = TopicConfig{}
	if _, err := bad.Encode(true); err == nil {
		t.Error("a topic name with a space was packed")
	}
}

func TestBodyCRC32HasNoSign(t *testing.T) {
	// CRC-32 of "123456789" is CBF43926.
	if got := BodyCRC32([]byte("123456789")); got != 0x4BF43926 {
		t.Errorf("%#x", got)
	}
}
