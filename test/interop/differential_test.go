//go:build interop

package interop

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// A question is one request that is put to Apache's servers and to ours.
type question struct {
	name    string
	to      string // "namesrv" or "broker"
	code    protocol.RequestCode
	fields  map[string]string
	body    []byte
	version int32           // the asker's; 0: the current one
	coding  protocol.Coding // of the header
}

// differ are the questions that are answered differently on purpose, and the
// difference; docs/PROTOCOL.md gives the reasons. It is an error, too,
// when one of them is answered alike.
var differ = map[string]string{
	// Nobody reads Apache's static topics and retry policies.
	"all topic configs": "body lacks [.mappingDataVersion .mappingDataVersion.counter .mappingDataVersion.stateVersion .mappingDataVersion.timestamp " +
		".topicQueueMappingDetailMap .topicQueueMappingInfoMap], has beyond Apache's []",
	"group config": "body lacks [.groupRetryPolicy .groupRetryPolicy.type], has beyond Apache's []",
	"all groups":   "body lacks [.subscriptionGroupTable.*.groupRetryPolicy .subscriptionGroupTable.*.groupRetryPolicy.type], has beyond Apache's []",

	// An answer comes in the coding of its question.
	"route in binary": "coding ROCKETMQ, Apache's is JSON",

	"cluster":             "strict JSON where Apache writes fastjson's dialect",
	"members of a broker": "strict JSON where Apache writes fastjson's dialect",

	// The unique key is the producer's own: there is no need to send it back.
	"send":                            noTransactionID,
	"send to any queue":               noTransactionID,
	"send to new topic":               noTransactionID,
	"send batch":                      noTransactionID,
	"send to retry topic of no group": noTransactionID,

	// A refusal has what clients need not to stumble: one field.
	"send to no queue":                  oneField,
	"send to topic that cannot be made": oneField,
	"send to illegal topic":             oneField,
	"send to forbidden topic":           oneField,
	"send long properties":              oneField,
	"send long body":                    oneField,

	// Apache's code has no answer to these: it fails on a null or at the end of a buffer.
	"send without body": "code SUCCESS, Apache's is SYSTEM_ERROR",
	"send broken batch": "code MESSAGE_ILLEGAL, Apache's is SYSTEM_ERROR",

	// A wrong name or queue is said to be wrong.
	"max offset of no topic":    "code TOPIC_NOT_EXIST, Apache's is SUCCESS",
	"earliest time of no queue": "code INVALID_PARAMETER, Apache's is SUCCESS",
	"pull by illegal group":     "code INVALID_PARAMETER, Apache's is SUBSCRIPTION_GROUP_NOT_EXIST",

	// Fields that only Apache's proxy looks at; and a refused pull has the same fields as any other.
	"pull of no subscriber":     pullHeader,
	"pull from the end":         pullHeader,
	"pull beyond the end":       pullHeader,
	"pull by new group":         pullHeader,
	"pull from no topic":        refusedPull,
	"pull from no queue":        refusedPull,
	"pull without subscription": refusedPull,
}

const (
	noTransactionID = "fields [MSG_REGION TRACE_ON msgId queueId queueOffset], Apache's are [MSG_REGION TRACE_ON msgId queueId queueOffset transactionId]"
	oneField        = "fields [MSG_REGION], Apache's are [MSG_REGION TRACE_ON]"
	pullHeader      = "fields [maxOffset minOffset nextBeginOffset suggestWhichBrokerId], " +
		"Apache's are [groupSysFlag maxOffset minOffset nextBeginOffset suggestWhichBrokerId topicSysFlag]"
	refusedPull = "fields [maxOffset minOffset nextBeginOffset suggestWhichBrokerId], Apache's are []"
)

// The same questions, in the same order, to fresh servers of both kinds: the
// answers must have the same code, fields and shape of body.
func TestAnswersAreApaches(t *testing.T) {
	apache, ours := startApache(t), startSluiceCluster(t)
	for _, q := range questions() {
		t.Run(q.name, func(t *testing.T) {
			want, got := ask(t, apache, q), ask(t, ours, q)
			difference := compareAnswers(want, got)
			if known := differ[q.name]; difference != known {
				t.Errorf("difference %q, known is %q\napache: %s\n  ours: %s", difference, known, describe(want), describe(got))
			}
		})
	}
}

// ask puts q over a connection of its own, as it is.
func ask(t *testing.T, c *cluster, q question) *protocol.Command {
	t.Helper()
	addr := c.namesrv
	if q.to == "broker" {
		addr = c.brokerAddr(t)
	}
	req := protocol.NewRequest(q.code, nil, q.body)
	req.Opaque, req.Version, req.Coding = 7, protocol.CurrentVersion, q.coding
	if q.version != 0 {
		req.Version = q.version
	}
	for _, key := range slices.Sorted(maps.Keys(q.fields)) {
		req.AddField(key, q.fields[key])
	}
	conn, err := net.DialTimeout("tcp", addr, 3*time.Second)
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	_ = conn.SetDeadline(time.Now().Add(10 * time.Second))
	if _, err := conn.Write(req.AppendTo(nil)); err != nil {
		t.Fatal(err)
	}
	for {
		var length [4]byte
		if _, err := io.ReadFull(conn, length[:]); err != nil {
			t.Fatalf("%s: no answer: %v", addr, err)
		}
		frame := make([]byte, binary.BigEndian.Uint32(length[:]))
		if _, err := io.ReadFull(conn, frame); err != nil {
			t.Fatal(err)
		}
		var resp protocol.Command
		if err := resp.Decode(frame); err != nil {
			t.Fatal(err)
		}
		if resp.IsResponse() { // a broker may ask or tell something meanwhile
			return resp.Clone()
		}
	}
}

// brokerAddr asks the name server for the broker's address.
func (c *cluster) brokerAddr(t *testing.T) string {
	t.Helper()
	resp, err := call(t.Context(), c.namesrv, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: "TBW102"})
	if err != nil {
		t.Fatal(err)
	}
	var route protocol.TopicRouteData
	if err := protocol.Unmarshal(resp.Body, &route); err != nil {
		t.Fatal(err)
	}
	return route.BrokerDatas[0].BrokerAddrs[0]
}

func describe(c *protocol.Command) string {
	return fmt.Sprintf("%v %q %v %.600s", c.ResponseCode(), c.Remark, fieldsOf(c), c.Body)
}

func fieldsOf(c *protocol.Command) map[string]string {
	m := map[string]string{}
	for _, f := range c.Fields {
		m[string(f.Key)] = string(f.Value)
	}
	return m
}

// compareAnswers says how two answers differ in what a client can rely on: the
// code, which fields there are, the values of those that are not particular to a
// server, and the shape of a JSON body.
func compareAnswers(want, got *protocol.Command) string {
	if want.Code != got.Code {
		return fmt.Sprintf("code %v, Apache's is %v", got.ResponseCode(), want.ResponseCode())
	}
	if want.Coding != got.Coding {
		return fmt.Sprintf("coding %v, Apache's is %v", got.Coding, want.Coding)
	}
	if want.Opaque != got.Opaque {
		return "no response to this request"
	}
	a, b := fieldsOf(want), fieldsOf(got)
	if x, y := slices.Sorted(maps.Keys(a)), slices.Sorted(maps.Keys(b)); !slices.Equal(x, y) {
		return fmt.Sprintf("fields %v, Apache's are %v", y, x)
	}
	for key, v := range a {
		switch key {
		case "msgId", "transactionId", "timestamp", "version", "queueId", "totalTopicNum", "totalGroupNum", "wipeTopicCount", "addTopicCount":
		default:
			if b[key] != v {
				return fmt.Sprintf("field %s is %q, Apache's is %q", key, b[key], v)
			}
		}
	}
	if (len(want.Body) == 0) != (len(got.Body) == 0) {
		return fmt.Sprintf("body of %d bytes, Apache's has %d", len(got.Body), len(want.Body))
	}
	return compareShapes(want.Body, got.Body)
}

// compareShapes compares which members JSON bodies have; the members of tables
// keyed by names count as one.
func compareShapes(want, got []byte) string {
	var a, b any
	if json.Unmarshal(want, &a) != nil {
		if json.Unmarshal(got, &b) == nil && bytes.HasPrefix(want, []byte("{")) {
			return "strict JSON where Apache writes fastjson's dialect"
		}
		return ""
	}
	if err := json.Unmarshal(got, &b); err != nil {
		return fmt.Sprintf("no strict JSON: %v", err)
	}
	x, y := map[string]bool{}, map[string]bool{}
	shape(a, "", x)
	shape(b, "", y)
	var missing, more []string
	for _, path := range slices.Sorted(maps.Keys(x)) {
		if !y[path] {
			missing = append(missing, path)
		}
	}
	for _, path := range slices.Sorted(maps.Keys(y)) {
		if !x[path] {
			more = append(more, path)
		}
	}
	if len(missing)+len(more) > 0 {
		return fmt.Sprintf("body lacks %v, has beyond Apache's %v", missing, more)
	}
	return ""
}

func shape(v any, path string, into map[string]bool) {
	switch v := v.(type) {
	case map[string]any:
		table := strings.HasSuffix(path, "Table") || strings.HasSuffix(path, "Map") || strings.HasSuffix(path, "Addrs") || path == ".table"
		for key, member := range v {
			if table {
				key = "*"
			}
			into[path+"."+key] = true
			shape(member, path+"."+key, into)
		}
	case []any:
		for _, e := range v {
			shape(e, path+"[]", into)
		}
	}
}

func sendFields(topic string, queue int, more map[string]string) map[string]string {
	m := map[string]string{
		"producerGroup": "p", "topic": topic, "defaultTopic": "TBW102", "defaultTopicQueueNums": "4", "queueId": strconv.Itoa(queue),
		"sysFlag": "0", "bornTimestamp": "1700000000000", "flag": "0", "properties": "KEYS\x01k\x02UNIQ_KEY\x0101020304\x02", "reconsumeTimes": "0",
		"unitMode": "false", "batch": "false",
	}
	maps.Copy(m, more)
	return m
}

func pullFields(group, topic string, queue, offset int) map[string]string {
	return map[string]string{
		"consumerGroup": group, "topic": topic, "queueId": strconv.Itoa(queue), "queueOffset": strconv.Itoa(offset), "maxMsgNums": "32",
		"sysFlag": "4", "commitOffset": "0", "suspendTimeoutMillis": "0", "subscription": "*", "subVersion": "0", "expressionType": "TAG",
	}
}

func queue(topic string, id int, more map[string]string) map[string]string {
	m := map[string]string{"topic": topic, "queueId": strconv.Itoa(id)}
	maps.Copy(m, more)
	return m
}

func topicFields(name string, queues int) map[string]string {
	n := strconv.Itoa(queues)
	return map[string]string{
		"topic": name, "defaultTopic": "TBW102", "readQueueNums": n, "writeQueueNums": n, "perm": "6", "topicFilterType": "SINGLE_TAG",
		"topicSysFlag": "0", "order": "false",
	}
}

func batchBody(n int) []byte {
	var body []byte
	for i := range n {
		body, _ = message.AppendBatchEntry(body, &message.Message{Body: fmt.Appendf(nil, "b%d", i), Properties: []byte("UNIQ_KEY\x01" + strconv.Itoa(i) + "0\x02")})
	}
	return body
}

// questions are in an order in which later ones depend on earlier ones.
func questions() []question {
	heartbeat := []byte(`{"clientID":"c1","consumerDataSet":[{"consumeFromWhere":"CONSUME_FROM_FIRST_OFFSET","consumeType":"CONSUME_PASSIVELY",` +
		`"groupName":"g","messageModel":"CLUSTERING","subscriptionDataSet":[{"classFilterMode":false,"codeSet":[],"expressionType":"TAG",` +
		`"subString":"*","subVersion":1,"tagsSet":[],"topic":"T"}],"unitMode":false}],"producerDataSet":[{"groupName":"p"}],"heartbeatFingerprint":0}`)
	many := strings.Repeat("x", 33_000)
	return []question{
		{name: "create topic", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("T", 2)},
		{name: "create topic of one queue", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("One", 1)},
		{name: "create topic again", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("T", 2)},
		{name: "create illegal topic", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("a/b", 2)},
		{name: "create long topic", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields(strings.Repeat("t", 128), 2)},
		{name: "create system topic", to: "broker", code: protocol.UpdateAndCreateTopic, fields: topicFields("TBW102", 2)},
		{name: "topic config", to: "broker", code: protocol.GetTopicConfig, fields: map[string]string{"topic": "T"}},
		{name: "topic config of none", to: "broker", code: protocol.GetTopicConfig, fields: map[string]string{"topic": "None"}},
		{name: "all topic configs", to: "broker", code: protocol.GetAllTopicConfig},
		{name: "create group", to: "broker", code: protocol.UpdateAndCreateSubscriptionGroup, body: []byte(`{"groupName":"g","consumeEnable":true,"consumeFromMinEnable":true,"retryQueueNums":1,"retryMaxTimes":16,"brokerId":0,"whichBrokerWhenConsumeSlowly":1,"consumeBroadcastEnable":true,"notifyConsumerIdsChangedEnable":true}`)},
		{name: "create illegal group", to: "broker", code: protocol.UpdateAndCreateSubscriptionGroup, body: []byte(`{"groupName":"a/b"}`)},
		{name: "group config", to: "broker", code: protocol.GetSubscriptionGroupConfig, fields: map[string]string{"group": "g"}},
		{name: "all groups", to: "broker", code: protocol.GetAllSubscriptionGroupConfig},

		{name: "route", to: "namesrv", code: protocol.GetRouteInfoByTopic, fields: map[string]string{"topic": "T"}},
		{name: "route for old clients", to: "namesrv", code: protocol.GetRouteInfoByTopic, fields: map[string]string{"topic": "T"}, version: 317},
		{name: "route in binary", to: "namesrv", code: protocol.GetRouteInfoByTopic, fields: map[string]string{"topic": "T"}, coding: protocol.Binary},
		{name: "route of none", to: "namesrv", code: protocol.GetRouteInfoByTopic, fields: map[string]string{"topic": "None"}},
		{name: "cluster", to: "namesrv", code: protocol.GetBrokerClusterInfo},
		{name: "topics", to: "namesrv", code: protocol.GetAllTopicListFromNameServer},
		{name: "topics by cluster", to: "namesrv", code: protocol.GetTopicsByCluster, fields: map[string]string{"cluster": "DefaultCluster"}},
		{name: "topics by no cluster", to: "namesrv", code: protocol.GetTopicsByCluster, fields: map[string]string{"cluster": "None"}},
		{name: "system topics", to: "namesrv", code: protocol.GetSystemTopicListFromNS},
		{name: "put setting", to: "namesrv", code: protocol.PutKVConfig, fields: map[string]string{"namespace": "n", "key": "k", "value": "v"}},
		{name: "get setting", to: "namesrv", code: protocol.GetKVConfig, fields: map[string]string{"namespace": "n", "key": "k"}},
		{name: "get no setting", to: "namesrv", code: protocol.GetKVConfig, fields: map[string]string{"namespace": "n", "key": "none"}},
		{name: "settings", to: "namesrv", code: protocol.GetKVListByNamespace, fields: map[string]string{"namespace": "n"}},
		{name: "settings of none", to: "namesrv", code: protocol.GetKVListByNamespace, fields: map[string]string{"namespace": "none"}},
		{name: "delete setting", to: "namesrv", code: protocol.DeleteKVConfig, fields: map[string]string{"namespace": "n", "key": "k"}},
		{name: "members of a broker", to: "namesrv", code: protocol.GetBrokerMemberGroup, fields: map[string]string{"clusterName": "DefaultCluster", "brokerName": "broker-a"}},
		{name: "unknown code to name server", to: "namesrv", code: 9999},
		{name: "unknown code to broker", to: "broker", code: 9999},

		{name: "send", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 0, nil), body: []byte("one")},
		{name: "send to any queue", to: "broker", code: protocol.SendMessage, fields: sendFields("One", -1, nil), body: []byte("two")},
		{name: "send to no queue", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 9, nil), body: []byte("x")},
		{name: "send to new topic", to: "broker", code: protocol.SendMessage, fields: sendFields("New", 0, nil), body: []byte("x")},
		{name: "send to topic that cannot be made", to: "broker", code: protocol.SendMessage, fields: sendFields("New2", 0, map[string]string{"defaultTopic": "T"}), body: []byte("x")},
		{name: "send to illegal topic", to: "broker", code: protocol.SendMessage, fields: sendFields("a/b", 0, nil), body: []byte("x")},
		{name: "send to forbidden topic", to: "broker", code: protocol.SendMessage, fields: sendFields("SCHEDULE_TOPIC_XXXX", 0, nil), body: []byte("x")},
		{name: "send long properties", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 0, map[string]string{"properties": "a\x01" + many + "\x02"}), body: []byte("x")},
		{name: "send long body", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 0, nil), body: make([]byte, 4<<20+1)},
		{name: "send without body", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 0, nil)},
		{name: "send batch", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 1, map[string]string{"batch": "true"}), body: batchBody(3)},
		{name: "send broken batch", to: "broker", code: protocol.SendMessage, fields: sendFields("T", 1, map[string]string{"batch": "true"}), body: []byte("no batch")},
		{name: "send to retry topic of no group", to: "broker", code: protocol.SendMessage, fields: sendFields("%RETRY%none", 0, nil), body: []byte("x")},

		{name: "max offset", to: "broker", code: protocol.GetMaxOffset, fields: queue("T", 1, nil)},
		{name: "max offset of no topic", to: "broker", code: protocol.GetMaxOffset, fields: queue("None", 0, nil)},
		{name: "min offset", to: "broker", code: protocol.GetMinOffset, fields: queue("T", 1, nil)},
		{name: "offset by time", to: "broker", code: protocol.SearchOffsetByTimestamp, fields: queue("T", 1, map[string]string{"timestamp": "0"})},
		{name: "offset by late time", to: "broker", code: protocol.SearchOffsetByTimestamp, fields: queue("T", 1, map[string]string{"timestamp": "9999999999999"})},
		{name: "earliest time", to: "broker", code: protocol.GetEarliestMsgStoreTime, fields: queue("T", 1, nil)},
		{name: "earliest time of no queue", to: "broker", code: protocol.GetEarliestMsgStoreTime, fields: queue("T", 7, nil)},

		{name: "pull of no subscriber", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "T", 1, 0)},
		{name: "pull from the end", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "T", 1, 3)},
		{name: "pull beyond the end", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "T", 1, 99)},
		{name: "pull from no topic", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "None", 0, 0)},
		{name: "pull from no queue", to: "broker", code: protocol.PullMessage, fields: pullFields("g", "T", 9, 0)},
		{name: "pull by new group", to: "broker", code: protocol.PullMessage, fields: pullFields("g2", "T", 1, 0)},
		{name: "pull by illegal group", to: "broker", code: protocol.PullMessage, fields: pullFields("a/b", "T", 1, 0)},
		{name: "pull without subscription", to: "broker", code: protocol.PullMessage, fields: func() map[string]string { m := pullFields("g", "T", 1, 0); m["sysFlag"] = "0"; return m }()},
		{name: "lite pull", to: "broker", code: protocol.LitePullMessage, fields: pullFields("g", "T", 1, 0)},

		{name: "offset of none", to: "broker", code: protocol.QueryConsumerOffset, fields: queue("T", 0, map[string]string{"consumerGroup": "g"})},
		{name: "offset of none, not zero", to: "broker", code: protocol.QueryConsumerOffset, fields: queue("T", 0, map[string]string{"consumerGroup": "g", "setZeroIfNotFound": "false"})},
		{name: "commit", to: "broker", code: protocol.UpdateConsumerOffset, fields: queue("T", 0, map[string]string{"consumerGroup": "g", "commitOffset": "1"})},
		{name: "committed", to: "broker", code: protocol.QueryConsumerOffset, fields: queue("T", 0, map[string]string{"consumerGroup": "g"})},
		{name: "commit for no topic", to: "broker", code: protocol.UpdateConsumerOffset, fields: queue("None", 0, map[string]string{"consumerGroup": "g", "commitOffset": "1"})},

		{name: "members of none", to: "broker", code: protocol.GetConsumerListByGroup, fields: map[string]string{"consumerGroup": "none"}},
		{name: "heartbeat", to: "broker", code: protocol.Heartbeat, body: heartbeat},
		{name: "unregister", to: "broker", code: protocol.UnregisterClient, fields: map[string]string{"clientID": "c1", "consumerGroup": "g"}},
		{name: "broker config", to: "broker", code: protocol.GetBrokerConfig},
		{name: "runtime info", to: "broker", code: protocol.GetBrokerRuntimeInfo},
		{name: "wipe write permission", to: "namesrv", code: protocol.WipeWritePermOfBroker, fields: map[string]string{"brokerName": "broker-a"}},
		{name: "add write permission", to: "namesrv", code: protocol.AddWritePermOfBroker, fields: map[string]string{"brokerName": "broker-a"}},
		{name: "delete group", to: "broker", code: protocol.DeleteSubscriptionGroup, fields: map[string]string{"groupName": "g", "cleanOffset": "true"}},
		{name: "delete topic", to: "broker", code: protocol.DeleteTopicInBroker, fields: map[string]string{"topic": "T"}},
		{name: "delete system topic", to: "broker", code: protocol.DeleteTopicInBroker, fields: map[string]string{"topic": "TBW102"}},
		{name: "delete topic of name server", to: "namesrv", code: protocol.DeleteTopicInNameServer, fields: map[string]string{"topic": "T"}},
	}
}
