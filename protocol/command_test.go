package protocol

import (
	"encoding/binary"
	"reflect"
	"strings"
	"testing"
)

// jsonFrame is a frame, without its length word, with a JSON header.
func jsonFrame(header string, body ...byte) []byte {
	f := binary.BigEndian.AppendUint32(nil, uint32(len(header)))
	return append(append(f, header...), body...)
}

// decode fails the test when frame, which has a length word, is not right.
func decode(t *testing.T, frame []byte) *Command {
	t.Helper()
	if n := int(binary.BigEndian.Uint32(frame)); n != len(frame)-4 {
		t.Fatalf("length word says %d, %d bytes follow", n, len(frame)-4)
	}
	var c Command
	if err := c.Decode(frame[4:]); err != nil {
		t.Fatal(err)
	}
	return &c
}

func fieldMap(c *Command) map[string]string {
	m := make(map[string]string)
	for _, f := range c.Fields {
		m[string(f.Key)] = string(f.Value)
	}
	return m
}

func TestDecodeApacheExample(t *testing.T) {
	var c Command
	err := c.Decode(jsonFrame(`{"code":105,"extFields":{"topic":"T1"},"flag":0,"language":"JAVA","opaque":7,"serializeTypeCurrentRPC":"JSON","version":479}`))
	if err != nil {
		t.Fatal(err)
	}
	if c.RequestCode() != GetRouteInfoByTopic || c.Opaque != 7 || c.Version != 479 || c.Language != LanguageJava ||
		c.IsResponse() || c.IsOneWay() || c.Remark != "" || c.Body != nil || c.Coding != JSON {
		t.Errorf("got %+v", c)
	}
	var h GetRouteInfoRequest
	if err := c.DecodeHeader(&h); err != nil || h.Topic != "T1" || h.AcceptStandardJSONOnly {
		t.Errorf("header %+v, %v", h, err)
	}
}

func TestCommandRoundTrip(t *testing.T) {
	for _, coding := range []Coding{JSON, Binary} {
		want := &Command{
			Code: 310, Language: LanguageRust, Version: 477, Opaque: -5, Flag: 3, Remark: "say \"no\"\n\x01é",
			Coding: coding, Body: []byte("body"),
		}
		want.AddField("i", "UNIQ_KEY\x01A\x02 \\ \t 日本 🎉")
		want.AddField("", "")
		got := decode(t, want.AppendTo([]byte{}))
		got.scratch, want.scratch, got.shape = nil, nil, nil
		if !reflect.DeepEqual(got, want) {
			t.Errorf("%v: got %+v\nwant %+v", coding, got, want)
		}
		if !reflect.DeepEqual(fieldMap(got.Clone()), fieldMap(want)) {
			t.Errorf("%v: clone differs", coding)
		}
	}
}

func TestDecodeRefusesMalformedJSON(t *testing.T) {
	for _, tc := range []struct{ header, says string }{
		{``, "expected an object"},
		{`{}`, "no code"},
		{`[]`, "got \"[]\""},
		{`null`, "expected an object"},
		{`{"code":1e300}`, "1e300"},
		{`{"code":-1}`, "negative"},
		{`{"code":null}`, "not a 32-bit"},
		{`{"code":"ten"}`, "ten"},
		{`{"code":2147483648}`, "2147483648"},
		{`{"code":1,"extFields":{"a":{"b":1}}}`, "ext field \"a\""},
		{`{"code":1,"extFields":{"a":[1]}}`, "ext field \"a\""},
		{`{"code":1,"extFields":[]}`, "extFields"},
		{`{"code":1}x`, "expected the end"},
		{`{"code":1,}`, "expected a key"},
		{`{"code":1`, "ends at byte"},
		{`{"code":1,"remark":"a`, "without an end"},
		{`{"code":1,"remark":"a\`, "without an end"},
		{`{"code":1,"remark":"\u12`, "hexadecimal"},
		{`{"code":1,"remark":"\x41"}`, "escape"},
		{`{"code":1,"x":` + strings.Repeat("[", 10<<10), "deeper"},
		{`{"code":1,"opaque":99999999999}`, "99999999999"},
		{`{"code":1,"extFields":{` + strings.Repeat(`"a":"",`, 1<<20) + `"b":""}}`, "4096"},
	} {
		var c Command
		err := c.Decode(jsonFrame(tc.header))
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%.60s: error %v, want one with %q", tc.header, err, tc.says)
		}
	}
}

func TestDecodeToleratesJSON(t *testing.T) {
	for _, tc := range []struct {
		header string
		fields map[string]string
	}{
		{`{"code":10}`, map[string]string{}},
		{` { "code" : "10" , "extFields" : null } `, map[string]string{}},
		{`{"extFields":{"a":1,"b":true,"c":null,"d":-1.5e3},"code":10}`, map[string]string{"a": "1", "b": "true", "d": "-1.5e3"}},
		{`{"code":9,"code":10,"extFields":{"z":"1"},"extFields":{"a":"1","a":"2"}}`, map[string]string{"a": "2"}},
		{`{"x":{"y":[{},[],"}",1,null]},"code":10,"language":"FOO","version":99999}`, map[string]string{}},
		{`{"code":10,"extFields":{"\u0061":"\u0001\ud83c\udf89\uD800x\/\v"}}`, map[string]string{"a": "\x01🎉\uFFFDx/\v"}},
	} {
		var c Command
		if err := c.Decode(jsonFrame(tc.header, 'b')); err != nil {
			t.Errorf("%s: %v", tc.header, err)
			continue
		}
		if got := fieldMap(&c); c.Code != 10 || string(c.Body) != "b" || !reflect.DeepEqual(got, tc.fields) {
			t.Errorf("%s: got code %d, fields %q", tc.header, c.Code, got)
		}
	}
}
