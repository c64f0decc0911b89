package protocol

import (
	"encoding/binary"
	"reflect"
	"testing"
)

// Whatever decodes must survive its own encoding, in both codings.
func FuzzDecodeCommand(f *testing.F) {
	f.Add(loadFrame())
	f.Add(pullFrame())
	for _, coding := range []Coding{JSON, Binary} {
		f.Add(appendSendResponse(nil, coding, []byte("id\x01"))[4:])
	}
	f.Add(jsonFrame(`{"extFields":{"a":null,"b":1,"\ud83c\udf89":"\u0000"},"x":[{}],"code":"10"}`))
	f.Add([]byte{0, 0, 0, 2, '{', '}'})
	f.Fuzz(func(t *testing.T, frame []byte) {
		var c Command
		if c.Decode(frame) != nil {
			return
		}
		first := c.Clone()
		if !reflect.DeepEqual(first.Fields, append(Fields{}, c.Fields...)) {
			t.Fatal("clone differs")
		}
		again := c.AppendTo(nil)
		if n := int(binary.BigEndian.Uint32(again)); n != len(again)-4 {
			t.Fatalf("length word %d of %d", n, len(again))
		}
		var d Command
		if err := d.Decode(again[4:]); err != nil {
			t.Fatalf("%v in %q from %q", err, again, frame)
		}
		if d.Code != c.Code || d.Opaque != c.Opaque || d.Flag != c.Flag || len(d.Fields) != len(c.Fields) || string(d.Body) != string(c.Body) {
			t.Fatalf("%+v became %+v", c, d)
		}
		var send SendMessageRequest
		_ = send.DecodeSend(&c)
		if s, ok := catalogue[c.RequestCode()]; ok && s.request != nil {
			_ = c.DecodeHeader(s.request())
		}
	})
}

func FuzzFastjson(f *testing.F) {
	f.Add([]byte(`{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":1}}}`))
	f.Add([]byte(`{"brokerDatas":[{"brokerAddrs":{0:"a",1:"b"},"cluster":null}],"queueDatas":[{"perm":"6"}]}`))
	f.Add([]byte(`{"offsetTable":[[{"topic":"t"},1]],"consumerDataSet":[{"consumeType":1,"subscriptionDataSet":[{"codeSet":[1]}]}]}`))
	f.Fuzz(func(t *testing.T, text []byte) {
		for _, fresh := range []func() any{body[TopicStatsTable], body[TopicRouteData], body[HeartbeatData], body[ConsumerRunningInfo], body[map[string]any]} {
			v := fresh()
			if Unmarshal(text, v) != nil {
				continue
			}
			for _, marshal := range []func(any) ([]byte, error){Marshal, MarshalFastjson} {
				again, err := marshal(v)
				if err != nil {
					continue // infinities have no form
				}
				if err := Unmarshal(again, fresh()); err != nil {
					t.Fatalf("%T: %v in %q from %q", v, err, again, text)
				}
			}
		}
	})
}

func FuzzRegisterBody(f *testing.F) {
	for _, compressed := range []bool{false, true} {
		data, err := registration(20).Encode(compressed)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(data, compressed, int32(CurrentVersion))
		f.Add(data[:len(data)/2], compressed, int32(Version5_0_0-1))
	}
	f.Fuzz(func(t *testing.T, data []byte, compressed bool, version int32) {
		b, err := DecodeRegisterBrokerBody(data, compressed, version)
		if err == nil && b == nil {
			t.Fatal("neither a body nor an error")
		}
	})
}

// The sections inside the compression, where a fuzzer cannot get by itself.
func FuzzRegisterSections(f *testing.F) {
	plain, err := registration(5).appendSections(nil)
	if err != nil {
		f.Fatal(err)
	}
	f.Add(plain)
	f.Fuzz(func(t *testing.T, plain []byte) {
		var b RegisterBrokerBody
		if b.decodeSections(&sections{plain}, CurrentVersion) != nil {
			return
		}
		if n := len(b.TopicConfigSerializeWrapper.TopicConfigTable); n > len(plain)/4 {
			t.Fatalf("%d topics from %d bytes", n, len(plain))
		}
	})
}
