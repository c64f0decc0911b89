package protocol

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"strings"
	"testing"
)

// fill sets every field of a header or body to a value that is not zero.
func fill(v reflect.Value, n *int) {
	*n++
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		fill(v.Elem(), n)
	case reflect.Struct:
		for i := range v.NumField() {
			fill(v.Field(i), n)
		}
	case reflect.Slice:
		if v.Type() == reflect.TypeFor[RawBody]() {
			v.SetBytes([]byte(`{"any":[1]}`))
			return
		}
		if v.Type().Elem().Kind() == reflect.Uint8 {
			v.SetBytes(fmt.Appendf(nil, "b%d\x01é", *n))
			return
		}
		v.Set(reflect.MakeSlice(v.Type(), 2, 2))
		fill(v.Index(0), n)
		fill(v.Index(1), n)
	case reflect.Map:
		v.Set(reflect.MakeMap(v.Type()))
		for range 2 {
			k, e := reflect.New(v.Type().Key()).Elem(), reflect.New(v.Type().Elem()).Elem()
			fill(k, n)
			fill(e, n)
			v.SetMapIndex(k, e)
		}
	case reflect.String:
		v.SetString(fmt.Sprintf("s%d \"\x02", *n))
	case reflect.Bool:
		v.SetBool(true)
	case reflect.Float64:
		v.SetFloat(float64(*n) + 0.5)
	default:
		v.SetInt(int64(-*n))
	}
}

func eachHeader(t *testing.T, f func(t *testing.T, fresh func() Header)) {
	for code, s := range catalogue {
		for _, fresh := range []func() Header{s.request, s.response} {
			if fresh != nil {
				t.Run(fmt.Sprintf("%v/%T", code, fresh()), func(t *testing.T) { f(t, fresh) })
			}
		}
	}
}

func TestHeadersSurviveBothCodings(t *testing.T) {
	eachHeader(t, func(t *testing.T, fresh func() Header) {
		n := 0
		filled := fresh()
		fill(reflect.ValueOf(filled).Elem(), &n)
		for _, want := range []Header{filled, fresh()} {
			for _, coding := range []Coding{JSON, Binary} {
				c := NewRequest(SendMessage, want, nil)
				c.Coding = coding
				// A used header must not keep anything.
				dirty := fresh()
				fill(reflect.ValueOf(dirty).Elem(), &n)
				got := decode(t, c.AppendTo(nil))
				if err := got.DecodeHeader(dirty); err != nil {
					t.Fatal(err)
				}
				equalHeaders(t, dirty, want)

				w := BeginFrame([]byte("before"), coding, 10, 0, 1, "")
				w.Header(want)
				frame := w.End(w.BeginBody())
				if !reflect.DeepEqual(fieldMap(decode(t, frame[len("before"):])), fieldMap(c)) {
					t.Errorf("%v: FrameWriter and Command differ", coding)
				}
			}
		}
	})
}

// equalHeaders compares headers; absent and empty bytes are the same.
func equalHeaders(t *testing.T, got, want Header) {
	t.Helper()
	if g, w := fmt.Sprintf("%+v", got), fmt.Sprintf("%+v", want); g != w {
		t.Errorf("got  %s\nwant %s", g, w)
	}
}

func TestDecodeHeaderNamesTheFault(t *testing.T) {
	for _, tc := range []struct {
		name   string
		h      Header
		fields string
		says   string
	}{
		{"missing", new(GetRouteInfoRequest), ``, "<topic> is missing"},
		{"not a number", new(GetMinOffsetRequest), `"topic":"t","queueId":"x"`, `<queueId> is "x"`},
		{"33 bits", new(GetMinOffsetRequest), `"topic":"t","queueId":"4294967296"`, "32-bit"},
		{"65 bits", new(OffsetResponse), `"offset":"9223372036854775808"`, "64-bit"},
		{"empty required number", new(OffsetResponse), `"offset":""`, "<offset>"},
		{"optional number", new(CreateTopicRequest), `"topic":"t","defaultTopic":"d","readQueueNums":"1","writeQueueNums":"1","perm":"6","topicFilterType":"SINGLE_TAG","topicSysFlag":"-"`, "<topicSysFlag>"},
		{"send without topic", new(SendMessageRequestV2), `"a":"g"`, "<b> is missing"},
		{"pull with bad offset", new(PullMessageRequest), `"consumerGroup":"g","topic":"t","queueId":"0","queueOffset":"1.5"`, "<queueOffset>"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			var c Command
			if err := c.Decode(jsonFrame(`{"code":1,"extFields":{` + tc.fields + `}}`)); err != nil {
				t.Fatal(err)
			}
			err := c.DecodeHeader(tc.h)
			var e *Error
			if !errors.As(err, &e) || e.Code != InvalidParameter || !strings.Contains(e.Remark, tc.says) {
				t.Errorf("error %v, want INVALID_PARAMETER with %q", err, tc.says)
			}
		})
	}
}

// The one-pass decoders must agree with the description in bind, whatever comes.
func TestOnePassDecodersAgreeWithBind(t *testing.T) {
	rnd := rand.New(rand.NewPCG(1, 2))
	values := []string{"", "0", "7", "-1", "x", "true", "TRUE", "4294967296", "1764400000000", "g", "1.0"}
	for _, fresh := range []func() Header{header[SendMessageRequestV2], header[PullMessageRequest]} {
		n := 0
		full := fresh()
		fill(reflect.ValueOf(full).Elem(), &n)
		base := NewRequest(SendMessageV2, full, nil).Fields
		accepted := 0
		for range 20000 {
			fields := append(Fields(nil), base...)
			for range rnd.IntN(4) {
				i := rnd.IntN(len(fields))
				switch rnd.IntN(4) {
				case 0:
					fields = append(fields[:i], fields[i+1:]...)
				case 1:
					fields = append(fields, Field{fields[i].Key, []byte(values[rnd.IntN(len(values))])})
				case 2:
					fields[i].Value = []byte(values[rnd.IntN(len(values))])
				case 3:
					fields = append(fields, Field{[]byte("other"), []byte("1")})
				}
			}
			fast, slow := fresh(), fresh()
			errFast := fast.(interface{ decode(Fields) *Error }).decode(fields)
			b := binder{from: fields}
			slow.bind(&b)
			if (errFast == nil) != (b.err == nil) || errFast != nil && *errFast != *b.err {
				t.Fatalf("%q: one pass says %v, bind %v", fields, errFast, b.err)
			}
			if errFast == nil {
				accepted++
				equalHeaders(t, fast, slow)
			}
		}
		if accepted < 1000 {
			t.Errorf("%T: only %d inputs were good", full, accepted)
		}
	}
}

func TestDecodeSendPicksNamesByCode(t *testing.T) {
	want := SendMessageRequest{
		ProducerGroup: []byte("g"), Topic: []byte("t"), DefaultTopic: []byte("TBW102"), DefaultTopicQueueNums: 4,
		QueueID: 3, SysFlag: 1, BornTimestamp: 1764400000000, Flag: 9, Properties: []byte("TAGS\x01a\x02"),
		MaxReconsumeTimes: Some[int32](0), Batch: true,
	}
	for code, h := range map[RequestCode]Header{
		SendMessage: &want, SendMessageV2: (*SendMessageRequestV2)(&want), SendBatchMessage: (*SendMessageRequestV2)(&want),
		SendReplyMessage: &want, SendReplyMessageV2: (*SendMessageRequestV2)(&want),
	} {
		var got SendMessageRequest
		if err := got.DecodeSend(decode(t, NewRequest(code, h, nil).AppendTo(nil))); err != nil {
			t.Fatalf("%v: %v", code, err)
		}
		equalHeaders(t, &got, &want)
	}
}
