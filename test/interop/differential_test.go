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
	"strings"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
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
	"lite pull":                 pullHeader,
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
