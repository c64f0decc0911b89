package namesrv

import (
	"bytes"
	"context"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start runs a name server on a free port until the test ends.
func start(t *testing.T, o Options) *NameServer {
	t.Helper()
	o.Listen = "127.0.0.1:0"
	n, err := New(o)
	if err != nil {
		t.Fatal(err)
	}
	run(t, n.Run)
	return n
}

func run(t *testing.T, f func(context.Context) error) (stop func()) {
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- f(ctx) }()
	stopped := false
	stop = func() {
		if stopped {
			return
		}
		stopped = true
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	}
	t.Cleanup(stop)
	return stop
}

// A peer is a broker or client with a connection of its own.
type peer struct {
	t    *testing.T
	c    *remoting.Client
	addr string
	stop func()
}

func connect(t *testing.T, n *NameServer) *peer {
	t.Helper()
	c := remoting.NewClient(remoting.ClientOptions{})
	return &peer{t: t, c: c, addr: n.Addr().String(), stop: run(t, c.Run)}
}

func (p *peer) send(cmd *protocol.Command) *protocol.Command {
	p.t.Helper()
	ctx, cancel := context.WithTimeout(p.t.Context(), 10*time.Second)
	defer cancel()
	resp, err := p.c.Call(ctx, p.addr, cmd)
	if err != nil {
		p.t.Fatal(err)
	}
	return resp
}

func (p *peer) call(code protocol.RequestCode, h protocol.Header, body string) *protocol.Command {
	p.t.Helper()
	return p.send(protocol.NewRequest(code, h, []byte(body)))
}

// must is call for a request that has to succeed.
func (p *peer) must(code protocol.RequestCode, h protocol.Header, body string) *protocol.Command {
	p.t.Helper()
	resp := p.call(code, h, body)
	if err := resp.Err(); err != nil {
		p.t.Fatalf("%v: %v", code, err)
	}
	return resp
}

func (p *peer) want(code protocol.ResponseCode, remark string, resp *protocol.Command) {
	p.t.Helper()
	if resp.ResponseCode() != code || !strings.Contains(resp.Remark, remark) {
		p.t.Errorf("answer %v %q, want %v %q", resp.ResponseCode(), resp.Remark, code, remark)
	}
}

func header(name, addr string) *protocol.RegisterBrokerRequest {
	return &protocol.RegisterBrokerRequest{BrokerName: name, BrokerAddr: addr, ClusterName: "c1", HAServerAddr: "10.0.0.1:10912"}
}

// topicsBody is a registration body as Java brokers write it.
func topicsBody(counter int, topics ...string) string {
	var table []string
	for _, t := range topics {
		table = append(table, fmt.Sprintf(`%q:{"attributes":{},"order":false,"perm":6,"readQueueNums":4,`+
			`"topicFilterType":"SINGLE_TAG","topicName":%q,"topicSysFlag":0,"writeQueueNums":4}`, t, t))
	}
	return fmt.Sprintf(`{"filterServerList":[],"topicConfigSerializeWrapper":{"dataVersion":{"counter":%d,"stateVersion":0,`+
		`"timestamp":1700000000000},"topicConfigTable":{%s}}}`, counter, strings.Join(table, ","))
}

func (p *peer) route(topic string, version int32, standard bool) *protocol.Command {
	p.t.Helper()
	q := protocol.NewRequest(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: topic, AcceptStandardJSONOnly: standard}, nil)
	q.Version = version
	return p.send(q)
}

func (p *peer) wantNoRoute(topic string) {
	p.t.Helper()
	resp := p.route(topic, protocol.CurrentVersion, false)
	p.want(protocol.TopicNotExist, "No topic route info in name server for the topic: "+topic+
		"\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details.", resp)
}

func TestNameServerEndToEnd(t *testing.T) {
	n := start(t, Options{KVPath: filepath.Join(t.TempDir(), "kvConfig.json")})
	broker, client := connect(t, n), connect(t, n)
	client.wantNoRoute("t1")

	broker.must(protocol.RegisterBroker, header("broker-a", "10.0.0.1:10911"), topicsBody(1, "t1", "t2"))
	const strict = `{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"broker-a","cluster":"c1","enableActingMaster":false}],` +
		`"filterServerTable":{},"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":4,"topicSysFlag":0,"writeQueueNums":4}]}`
	if got := string(client.route("t1", protocol.CurrentVersion, false).Body); got != strict {
		t.Errorf("route\n got %s\nwant %s", got, strict)
	}

	slave := header("broker-a", "10.0.0.2:10911")
	slave.BrokerID = 1
	var reg protocol.RegisterBrokerResponse
	resp := broker.must(protocol.RegisterBroker, slave, topicsBody(1, "t1", "t2"))
	if err := resp.DecodeHeader(&reg); err != nil || reg.MasterAddr != "10.0.0.1:10911" || reg.HAServerAddr != "10.0.0.1:10912" || len(resp.Body) != 0 {
		t.Errorf("slave's answer %+v %q %v", reg, resp.Body, err)
	}

	for _, c := range []struct {
		code   protocol.RequestCode
		header protocol.Header
		body   string
		want   string
	}{
		{protocol.GetBrokerClusterInfo, nil, "", `{"brokerAddrTable":{"broker-a":{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},` +
			`"brokerName":"broker-a","cluster":"c1","enableActingMaster":false}},"clusterAddrTable":{"c1":["broker-a"]}}`},
		{protocol.GetAllTopicListFromNameServer, nil, "", `{"topicList":["t1","t2"]}`},
		{protocol.GetTopicsByCluster, &protocol.GetTopicsByClusterRequest{Cluster: "c1"}, "", `{"topicList":["t1","t2"]}`},
		{protocol.GetTopicsByCluster, &protocol.GetTopicsByClusterRequest{Cluster: "none"}, "", `{"topicList":[]}`},
		{protocol.GetSystemTopicListFromNS, nil, "", `{"brokerAddr":"10.0.0.1:10911","topicList":["broker-a","c1"]}`},
		{protocol.GetBrokerMemberGroup, &protocol.GetBrokerMemberGroupRequest{ClusterName: "c1", BrokerName: "broker-a"}, "",
			`{"brokerMemberGroup":{"brokerAddrs":{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"},"brokerName":"broker-a","cluster":"c1"}}`},
		{protocol.QueryDataVersion, &protocol.QueryDataVersionRequest{BrokerName: "broker-a", BrokerAddr: "10.0.0.1:10911", ClusterName: "c1"},
			`{"counter":1,"timestamp":1700000000000}`, `{"counter":1,"stateVersion":0,"timestamp":1700000000000}`},
		{protocol.BrokerHeartbeat, &protocol.BrokerHeartbeatRequest{ClusterName: "c1", BrokerAddr: "10.0.0.1:10911", BrokerName: "broker-a"}, "", ""},
		{protocol.WipeWritePermOfBroker, &protocol.WritePermOfBrokerRequest{BrokerName: "broker-a"}, "", ""},
		{protocol.AddWritePermOfBroker, &protocol.WritePermOfBrokerRequest{BrokerName: "broker-a"}, "", ""},
		{protocol.RegisterTopicInNameServer, &protocol.RegisterTopicRequest{Topic: "t3"},
			`{"queueDatas":[{"brokerName":"broker-a","perm":6,"readQueueNums":1,"writeQueueNums":1}]}`, ""},
		{protocol.DeleteTopicInNameServer, &protocol.DeleteTopicFromNameServerRequest{Topic: "t1"}, "", ""},
		{protocol.GetAllTopicListFromNameServer, nil, "", `{"topicList":["t2","t3"]}`},
	} {
		if got := string(client.must(c.code, c.header, c.body).Body); got != c.want {
			t.Errorf("%v\n got %s\nwant %s", c.code, got, c.want)
		}
	}
	client.want(protocol.RequestCodeNotSupported, "request type 318 not supported", client.call(protocol.UpdateNameServerConfig, nil, ""))

	broker.must(protocol.UnregisterBroker, &protocol.UnregisterBrokerRequest{BrokerName: "broker-a", BrokerAddr: "10.0.0.1:10911", ClusterName: "c1"}, "")
	var route protocol.TopicRouteData
	if err := protocol.Unmarshal(client.route("t2", protocol.CurrentVersion, false).Body, &route); err != nil || len(route.BrokerDatas) != 1 ||
		route.BrokerDatas[0].BrokerAddrs[1] != "10.0.0.2:10911" || len(route.BrokerDatas[0].BrokerAddrs) != 1 {
		t.Errorf("route %+v, %v", route, err)
	}
}

func TestQueryDataVersionSaysWhatChanged(t *testing.T) {
	n := start(t, Options{})
	p := connect(t, n)
	query := func(body string) bool {
		t.Helper()
		q := &protocol.QueryDataVersionRequest{BrokerName: "broker-a", BrokerAddr: "10.0.0.1:10911", ClusterName: "c1"}
		var h protocol.QueryDataVersionResponse
		if err := p.must(protocol.QueryDataVersion, q, body).DecodeHeader(&h); err != nil {
			t.Fatal(err)
		}
		return h.Changed
	}
	const same = `{"counter":1,"stateVersion":0,"timestamp":1700000000000}`
	if !query(same) {
		t.Error("an unknown broker need not register")
	}
	p.must(protocol.RegisterBroker, header("broker-a", "10.0.0.1:10911"), topicsBody(1, "t1", "t2"))
	if query(same) || !query(strings.Replace(same, "1,", "2,", 1)) || !query("") {
		t.Error("changed is wrong for a known broker")
	}
}

func TestKVOverTheWire(t *testing.T) {
	n := start(t, Options{KVPath: filepath.Join(t.TempDir(), "kvConfig.json"), OrderMessages: true})
	p := connect(t, n)
	key := &protocol.KVConfigRequest{Namespace: orderNamespace, Key: "t1"}
	p.want(protocol.QueryNotFound, "No config item, Namespace: ORDER_TOPIC_CONFIG Key: t1", p.call(protocol.GetKVConfig, key, ""))
	p.want(protocol.QueryNotFound, "No config item", p.call(protocol.GetKVListByNamespace, &protocol.GetKVListByNamespaceRequest{Namespace: orderNamespace}, ""))
	p.must(protocol.PutKVConfig, &protocol.PutKVConfigRequest{Namespace: orderNamespace, Key: "t1", Value: "broker-a:2"}, "")
	p.want(protocol.SystemError, "namespace", p.call(protocol.PutKVConfig, &protocol.PutKVConfigRequest{Namespace: "../x", Key: "k", Value: "v"}, ""))
	var h protocol.GetKVConfigResponse
	if err := p.must(protocol.GetKVConfig, key, "").DecodeHeader(&h); err != nil || h.Value != "broker-a:2" {
		t.Errorf("%+v %v", h, err)
	}
	const table = `{"table":{"t1":"broker-a:2"}}`
	list := p.must(protocol.GetKVListByNamespace, &protocol.GetKVListByNamespaceRequest{Namespace: orderNamespace}, "")
	reg := p.must(protocol.RegisterBroker, header("broker-a", "10.0.0.1:10911"), topicsBody(1, "t1", "t2"))
	if string(list.Body) != table || string(reg.Body) != table {
		t.Errorf("list %s, registration %s", list.Body, reg.Body)
	}
	if body := p.route("t1", protocol.CurrentVersion, false).Body; !bytes.Contains(body, []byte(`"orderTopicConf":"broker-a:2"`)) {
		t.Errorf("route %s", body)
	}
	p.must(protocol.DeleteKVConfig, key, "")
	if body := p.route("t1", protocol.CurrentVersion, false).Body; bytes.Contains(body, []byte("orderTopicConf")) {
		t.Errorf("route %s", body)
	}
}

// TestClosedConnectionUnregisters: at once, but not what another connection
// has registered since.
func TestClosedConnectionUnregisters(t *testing.T) {
	n := start(t, Options{})
	old, fresh, client := connect(t, n), connect(t, n), connect(t, n)
	h := header("broker-a", "10.0.0.1:10911")
	client.wantNoRoute("t1") // connects, as the next two do
	old.must(protocol.RegisterBroker, h, topicsBody(1, "t1", "t2"))
	fresh.must(protocol.RegisterBroker, h, topicsBody(1, "t1", "t2"))
	unregister := protocol.NewRequest(protocol.UnregisterBroker,
		&protocol.UnregisterBrokerRequest{BrokerName: "broker-a", BrokerAddr: "10.0.0.1:10911", ClusterName: "c1"}, nil)
	if err := old.send(unregister).Err(); err != nil {
		t.Error(err)
	}
	old.stop()
	eventually(t, func() bool { return n.server.Conns() == 2 })
	if resp := client.route("t1", protocol.CurrentVersion, false); resp.Err() != nil {
		t.Errorf("the old connection took the new registration with it: %v", resp.Err())
	}
	fresh.stop()
	eventually(t, func() bool { _, found := n.routes.Route("t1"); return !found })
	client.wantNoRoute("t1")
}

func eventually(t *testing.T, ok func() bool) {
	t.Helper()
	tick := time.NewTicker(time.Millisecond)
	defer tick.Stop()
	deadline := time.NewTimer(10 * time.Second)
	defer deadline.Stop()
	for !ok() {
		select {
		case <-tick.C:
		case <-deadline.C:
			t.Fatal("did not happen in 10 s")
		}
	}
}

func TestPortInUse(t *testing.T) {
	n := start(t, Options{})
	if _, err := New(Options{Listen: n.Addr().String()}); err == nil || !strings.Contains(err.Error(), n.Addr().String()) {
		t.Errorf("%v", err)
	}
}
