package protocol

import (
	"encoding/json"
	"fmt"
	"net/netip"
	"reflect"
	"strings"
	"testing"
	"time"
)

func TestBodiesSurvive(t *testing.T) {
	seen := make(map[reflect.Type]bool)
	check := func(fresh func() any) {
		if fresh == nil || seen[reflect.TypeOf(fresh())] {
			return
		}
		want := fresh()
		seen[reflect.TypeOf(want)] = true
		n := 0
		fill(reflect.ValueOf(want).Elem(), &n)
		for _, marshal := range []func(any) ([]byte, error){Marshal, MarshalFastjson} {
			text, err := marshal(want)
			if err != nil {
				t.Errorf("%T: %v", want, err)
				continue
			}
			got := fresh()
			if err := Unmarshal(text, got); err != nil {
				t.Errorf("%T: %v in %s", want, err, text)
			} else if !reflect.DeepEqual(got, want) {
				t.Errorf("got  %+v\nwant %+v\nfrom %s", got, want, text)
			}
		}
	}
	for _, s := range catalogue {
		check(s.requestBody)
		check(s.responseBody)
	}
	check(body[RegisterBrokerBody])
	check(body[ResetOffsetList])
	if len(seen) < 25 {
		t.Errorf("only %d kinds of bodies", len(seen))
	}
}

// What encoding/json makes of a strict body must be what this package makes.
func TestMarshalIsStrictJSON(t *testing.T) {
	for _, fresh := range []func() any{
		body[ClusterInfo], body[TopicList], body[HeartbeatData], body[SubscriptionGroupWrapper],
		body[TopicConfigSerializeWrapper], body[ConsumerOffsetSerializeWrapper], body[GetBrokerMemberGroupBody],
	} {
		v, n := fresh(), 0
		fill(reflect.ValueOf(v).Elem(), &n)
		ours, err := Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		theirs, err := json.Marshal(v)
		if err != nil {
			t.Fatal(err)
		}
		var a, b any
		if err := json.Unmarshal(ours, &a); err != nil {
			t.Fatalf("%T: %v in %s", v, err, ours)
		}
		if err := json.Unmarshal(theirs, &b); err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(a, b) {
			t.Errorf("%T:\nours   %s\ntheirs %s", v, ours, theirs)
		}
	}
}

func TestMarshalForms(t *testing.T) {
	queue := MessageQueue{BrokerName: "b", QueueID: 2, Topic: "t<&>"}
	for _, tc := range []struct {
		name     string
		v        any
		fastjson bool
		want     string
	}{
		{"nil slices and maps are empty", TopicRouteData{}, false, `{"brokerDatas":[],"filterServerTable":{},"queueDatas":[]}`},
		{"nil pointers are left out", GetBrokerMemberGroupBody{}, false, `{}`},
		{"strict broker ids in order", map[int64]string{10: "c", 2: "b", 0: "a"}, false, `{"0":"a","2":"b","10":"c"}`},
		{"fastjson broker ids", map[int64]string{10: "c", 2: "b", 0: "a"}, true, `{0:"a",2:"b",10:"c"}`},
		{"queues as keys", ResetOffsetBody{map[MessageQueue]int64{queue: 5}}, false, `{"offsetTable":{{"brokerName":"b","queueId":2,"topic":"t<&>"}:5}}`},
		{"untyped", map[string]any{"a": json.Number("1"), "b": nil, "c": []any{"x"}}, false, `{"a":1,"b":null,"c":["x"]}`},
		{"whole floats", BrokerStatsItem{1, 2, 1e21}, false, `{"avgpt":1,"sum":2,"tps":1000000000000000000000}`},
	} {
		got, err := appendValue(nil, tc.v, tc.fastjson)
		if err != nil || string(got) != tc.want {
			t.Errorf("%s: %s, %v, want %s", tc.name, got, err, tc.want)
		}
	}
	for _, v := range []any{func() {}, map[float64]int{1: 1}, []any{make(chan int)}} {
		if got, err := Marshal(v); err == nil {
			t.Errorf("%T marshals to %s", v, got)
		}
	}
}

func TestRouteForOldClients(t *testing.T) {
	r := TopicRouteData{
		BrokerDatas: []BrokerData{{BrokerAddrs: map[int64]string{0: "10.0.0.1:10911"}, BrokerName: "a", Cluster: "c"}},
		QueueDatas:  []QueueData{{BrokerName: "a", Perm: 6, ReadQueueNums: 4, WriteQueueNums: 4}},
	}
	got, err := r.AppendFastjson([]byte("x"))
	want := `x{"brokerDatas":[{"brokerAddrs":{0:"10.0.0.1:10911"},"brokerName":"a","cluster":"c","enableActingMaster":false}],` +
		`"filterServerTable":{},"queueDatas":[{"brokerName":"a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`
	if err != nil || string(got) != want {
		t.Errorf("got %s, %v", got, err)
	}
}

func TestUnmarshalReadsFastjson(t *testing.T) {
	queue := MessageQueue{BrokerName: "b", QueueID: 0, Topic: "t"}
	for _, tc := range []struct {
		name, text string
		want       any
	}{
		{"integer keys", `{"offsetTable":{"t@g":{0:12,1:3}}}`, &ConsumerOffsetSerializeWrapper{OffsetTable: map[string]map[int32]int64{"t@g": {0: 12, 1: 3}}}},
		{"raw object keys", `{"offsetTable":{{"brokerName":"b","queueId":0,"topic":"t"}:{"maxOffset":1,"x":2}}}`, &TopicStatsTable{OffsetTable: map[MessageQueue]TopicOffset{queue: {MaxOffset: 1}}}},
		{"objects in string keys", `{"offsetTable":{"{\"brokerName\":\"b\",\"queueId\":0,\"topic\":\"t\"}":7}}`, &ResetOffsetBody{map[MessageQueue]int64{queue: 7}}},
		{"pairs", `{"offsetTable":[[{"topic":"t","brokerName":"b","queueId":0},123]]}`, &ResetOffsetBody{map[MessageQueue]int64{queue: 123}}},
		{"quoted numbers and flags", `{"clientID":"c","heartbeatFingerprint":"7","isWithoutSub":"true"}`, &HeartbeatData{ClientID: "c", HeartbeatFingerprint: 7, WithoutSub: true}},
		{"enumeration by number", `{"consumeResult":4,"spentTimeMills":1.0}`, &ConsumeMessageDirectlyResult{ConsumeResult: ConsumeThrowException, SpentTimeMills: 1}},
		{"old name", `{"brokerName":"b","topicSynFlag":3}`, &QueueData{BrokerName: "b", TopicSysFlag: 3}},
		{"references and nulls", `{"counter":null,"$ref":"$.x","timestamp":5,"more":{"deep":[{}]}}`, &DataVersion{Timestamp: 5}},
		{"absent settings", `{"groupName":"g","retryMaxTimes":3,"consumeEnable":false}`, func() *SubscriptionGroupConfig {
			c := NewSubscriptionGroupConfig("g")
			c.RetryMaxTimes, c.ConsumeEnable = 3, false
			return &c
		}()},
		{"absent topic settings", `{"topicName":"t"}`, &TopicConfig{TopicName: "t", Perm: 6, ReadQueueNums: 16, WriteQueueNums: 16, TopicFilterType: SingleTag}},
		{"white space", " {\n\t\"topicList\" : [ \"a\" , \"b\" ] } \n", &TopicList{TopicList: []string{"a", "b"}}},
		{"untyped", `{"a":[1,"x",true,null,{"b":{}}]}`, &map[string]any{"a": []any{json.Number("1"), "x", true, nil, map[string]any{"b": map[string]any{}}}}},
	} {
		got := reflect.New(reflect.TypeOf(tc.want).Elem()).Interface()
		if err := Unmarshal([]byte(tc.text), got); err != nil {
			t.Errorf("%s: %v", tc.name, err)
		} else if !reflect.DeepEqual(got, tc.want) {
			t.Errorf("%s: got %+v, want %+v", tc.name, got, tc.want)
		}
	}
}

func TestUnmarshalRefuses(t *testing.T) {
	deep := strings.Repeat(`{"a":`, 100) + "1" + strings.Repeat("}", 100)
	for _, tc := range []struct {
		text string
		v    any
		says string
	}{
		{``, new(TopicList), "ends at byte 0"},
		{`{`, new(TopicList), "ends at byte 1"},
		{`{}}`, new(TopicList), "expected the end"},
		{`[]`, new(TopicList), "expected an object"},
		{`{"topicList":{}}`, new(TopicList), "topicList: expected a list"},
		{`{"topicList":["a" "b"]}`, new(TopicList), "','"},
		{`{"counter":1.5}`, new(DataVersion), "counter"},
		{`{"topicPutTps":"NaN"}`, new(TopicStatsTable), "no number"},
		{`{"perm":4294967296}`, new(TopicConfig), "perm"},
		{`{"consumeType":9}`, new(ConsumerData), "ConsumeType"},
		{`{"brokerAddrs":{"x":"y"}}`, new(BrokerData), "brokerAddrs"},
		{deep, new(map[string]any), "nested deeper"},
		{`{"unknown":` + strings.Repeat("[", 10<<20), new(TopicList), "nested deeper"},
		{`{"brokerDatas":[` + strings.Repeat("{},", 1<<20) + `{}]}`, new(TopicRouteData), "unfold"},
		{`{}`, TopicList{}, "not a pointer"},
	} {
		err := Unmarshal([]byte(tc.text), tc.v)
		if err == nil || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%.60s: error %v, want one with %q", tc.text, err, tc.says)
		}
	}
}

// A large registration as real brokers send it stays well within the bound on
// growth.
func TestUnmarshalTakesManyTopics(t *testing.T) {
	b := RegisterBrokerBody{TopicConfigSerializeWrapper: TopicConfigSerializeWrapper{TopicConfigTable: manyTopics(20000)}}
	text, err := Marshal(&b)
	if err != nil {
		t.Fatal(err)
	}
	var got RegisterBrokerBody
	if err := Unmarshal(text, &got); err != nil || len(got.TopicConfigSerializeWrapper.TopicConfigTable) != 20000 {
		t.Errorf("%d topics, %v", len(got.TopicConfigSerializeWrapper.TopicConfigTable), err)
	}
}

func manyTopics(n int) map[string]TopicConfig {
	m := make(map[string]TopicConfig, n)
	for i := range n {
		c := TopicConfig{TopicName: fmt.Sprintf("topic-%d", i), ReadQueueNums: 8, WriteQueueNums: 4, Perm: 6, TopicFilterType: SingleTag}
		if i%7 == 0 {
			c.Attributes = map[string]string{"message.type": "NORMAL", "note": "a b"}
		}
		m[c.TopicName] = c
	}
	return m
}

// Types that know their own text keep it.
func TestCodecLeavesTypesTheirText(t *testing.T) {
	type mixed struct {
		Addr  netip.AddrPort `json:"addr"`
		Time  time.Time      `json:"time"`
		Raw   RawBody        `json:"raw"`
		Bits  []byte         `json:"bits"`
		Model MessageModel   `json:"model"`
		Kind  ConsumeType    `json:"kind"`
		Skip  int            `json:"-"`
		Plain uint16
	}
	const text = `{"addr":"[::1]:9","time":"2026-01-02T03:04:05Z","raw":{"a":[1]},"bits":"AQI=","model":"CLUSTERING","kind":"CONSUME_POP","Plain":7}`
	var got mixed
	numbered := strings.NewReplacer(`"CLUSTERING"`, "1", `"CONSUME_POP"`, "2").Replace(text)
	if err := Unmarshal([]byte(numbered), &got); err != nil {
		t.Fatal(err)
	}
	if again, err := Marshal(got); err != nil || string(again) != text {
		t.Errorf("%s, %v", again, err)
	}
}

func TestDataVersionOrder(t *testing.T) {
	v := DataVersion{Counter: 5, StateVersion: 1, Timestamp: 9}
	for _, tc := range []struct {
		w    DataVersion
		want int
	}{
		{v, 0}, {v.Next(9), -1}, {DataVersion{Counter: 9, StateVersion: 0, Timestamp: 10}, 1}, {DataVersion{Counter: 5, StateVersion: 1, Timestamp: 8}, 1},
	} {
		if got := v.Compare(tc.w); got != tc.want {
			t.Errorf("%v against %v is %d", v, tc.w, got)
		}
	}
}
