package broker

import (
	"context"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

// nameServer hears what brokers say to it.
type nameServer struct {
	t          *testing.T
	addr       string
	registered chan registration
	left       chan protocol.UnregisterBrokerRequest
	silent     atomic.Bool // hears registrations and does not answer them
}

type registration struct {
	header protocol.RegisterBrokerRequest
	body   *protocol.RegisterBrokerBody
}

// serveNames starts a name server at an address; port 0 takes a free one.
func serveNames(t *testing.T, listen string) *nameServer {
	t.Helper()
	n := &nameServer{t: t, registered: make(chan registration, 1024), left: make(chan protocol.UnregisterBrokerRequest, 16)}
	server, err := remoting.NewServer(remoting.ServerOptions{Listen: listen}, remoting.Table{
		protocol.RegisterBroker: {Handler: n.register}, protocol.UnregisterBroker: {Handler: n.unregister},
	})
	if err != nil {
		t.Fatal(err)
	}
	n.addr = server.Addr().String()
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = server.Run(ctx) })
	t.Cleanup(func() { cancel(); running.Wait() })
	return n
}

func (n *nameServer) register(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var r registration
	if err := req.DecodeHeader(&r.header); err != nil {
		return nil, err
	}
	if got := protocol.BodyCRC32(req.Body); got != r.header.BodyCRC32 {
		n.t.Errorf("the body's CRC is %d, the header says %d", got, r.header.BodyCRC32)
	}
	var err error
	if r.body, err = protocol.DecodeRegisterBrokerBody(req.Body, r.header.Compressed, req.Version); err != nil {
		return nil, err
	}
	n.registered <- r
	if n.silent.Load() {
		return nil, nil
	}
	return protocol.NewResponse(protocol.Success, "", &protocol.RegisterBrokerResponse{}, nil), nil
}

func (n *nameServer) unregister(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.UnregisterBrokerRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	n.left <- h
	return protocol.NewResponse(protocol.Success, "", nil, nil), nil
}

// awaitTopic waits for a registration that has the topic, or no longer has it.
func (n *nameServer) awaitTopic(name string, there bool) registration {
	n.t.Helper()
	for {
		r := receive(n.t, n.registered, "registration with the change of "+name)
		if _, ok := r.body.TopicConfigSerializeWrapper.TopicConfigTable[name]; ok == there {
			return r
		}
	}
}

// unusedAddr is an address that nobody listens on.
func unusedAddr(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	return l.Addr().String()
}

// TestRegistration (faults F30 and F66): every name server hears of the broker
// at once and of each change of its topics when it happens, with table and
// version of one moment; one that is down delays nobody and is registered with
// when it is there; at the end the registrations are taken back.
func TestRegistration(t *testing.T) {
	up, late := serveNames(t, "127.0.0.1:0"), unusedAddr(t)
	e := start(t, t.TempDir(), func(o *Options, _ *spool.Options) {
		o.NameServers = []string{late, up.addr}
		o.Name, o.Cluster, o.Advertise = "edge-7", "Edge", "127.0.0.2:10911"
	})
	first := receive(t, up.registered, "registration")
	if h := first.header; h.BrokerName != "edge-7" || h.ClusterName != "Edge" || h.BrokerID != 0 || h.BrokerAddr != "127.0.0.2:10911" {
		t.Errorf("registered as %+v", h)
	}
	for _, topic := range []string{"TBW102", "Edge", "edge-7"} {
		if _, ok := first.body.TopicConfigSerializeWrapper.TopicConfigTable[topic]; !ok {
			t.Errorf("topic %s is not registered", topic)
		}
	}
	e.createTopic("made", 3)
	if got := up.awaitTopic("made", true).body.TopicConfigSerializeWrapper.TopicConfigTable["made"]; got.ReadQueueNums != 3 || got.Perm != 6 {
		t.Errorf("the new topic is registered as %+v", got)
	}
	e.mustSend("automatic", 0, "", "x")
	up.awaitTopic("automatic", true)
	e.heartbeat("c", "g")
	up.awaitTopic("%RETRY%g", true)
	e.must(protocol.DeleteTopicInBroker, &protocol.TopicRequest{Topic: "made"}, nil)
	up.awaitTopic("made", false)

	second := serveNames(t, late)
	e.createTopic("other", 1)
	r := second.awaitTopic("other", true)
	table, version := e.broker.topics.Snapshot()
	if r.body.TopicConfigSerializeWrapper.DataVersion != version || len(r.body.TopicConfigSerializeWrapper.TopicConfigTable) != len(table) {
		t.Errorf("registered %d topics as of %+v, the broker has %d as of %+v",
			len(r.body.TopicConfigSerializeWrapper.TopicConfigTable), r.body.TopicConfigSerializeWrapper.DataVersion, len(table), version)
	}
	e.stop()
	for _, n := range []*nameServer{up, second} {
		if h := receive(t, n.left, "end of a registration"); h.BrokerName != "edge-7" || h.BrokerAddr != "127.0.0.2:10911" || h.ClusterName != "Edge" {
			t.Errorf("unregistered as %+v", h)
		}
	}
}

// TestStopDuringRegistration: a registration that is under way when the broker
// stops, or was never answered, is taken back too.
func TestStopDuringRegistration(t *testing.T) {
	n := serveNames(t, "127.0.0.1:0")
	n.silent.Store(true)
	e := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.NameServers = []string{n.addr} })
	receive(t, n.registered, "registration")
	e.stop()
	receive(t, n.left, "end of a registration")
}

// TestRegisteredTablesMatchTheirVersions (fault F30): while topics come and go,
// one version always means one table.
func TestRegisteredTablesMatchTheirVersions(t *testing.T) {
	n := serveNames(t, "127.0.0.1:0")
	e := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.NameServers = []string{n.addr} })
	var changing sync.WaitGroup
	for _, name := range []string{"a", "b"} {
		p := e.join(t)
		changing.Go(func() {
			for range 15 {
				p.createTopic(name, 1)
				p.must(protocol.DeleteTopicInBroker, &protocol.TopicRequest{Topic: name}, nil)
			}
		})
	}
	changing.Wait()
	e.createTopic("last", 1)
	seen := map[protocol.DataVersion]int{}
	for done := false; !done; {
		table := receive(t, n.registered, "registration").body.TopicConfigSerializeWrapper
		if before, ok := seen[table.DataVersion]; ok && before != len(table.TopicConfigTable) {
			t.Errorf("version %+v: %d topics, and %d", table.DataVersion, before, len(table.TopicConfigTable))
		}
		seen[table.DataVersion] = len(table.TopicConfigTable)
		_, done = table.TopicConfigTable["last"]
	}
}

// TestAdvertisedAddress (fault F68): clients are told an address that they can
// reach, or the broker does not start and says what to do; message ids carry
// the same address.
func TestAdvertisedAddress(t *testing.T) {
	for name, c := range map[string]struct{ listen, advertise, want, err string }{
		"as listened on":      {"127.0.0.1:0", "", "127.0.0.1:", ""},
		"another":             {"127.0.0.1:0", "192.0.2.7:10911", "192.0.2.7:10911", ""},
		"everywhere":          {"0.0.0.0:0", "", "", "advertise"},
		"everywhere, v6":      {"[::]:0", "", "", "advertise"},
		"everywhere but said": {"0.0.0.0:0", "127.0.0.1:10911", "127.0.0.1:10911", ""},
		"v6":                  {"127.0.0.1:0", "[2001:db8::1]:10911", "[2001:db8::1]:10911", ""},
		"host name":           {"127.0.0.1:0", "localhost:10911", ":10911", ""},
		"without port":        {"127.0.0.1:0", "192.0.2.7", "", "192.0.2.7"},
		"nowhere":             {"127.0.0.1:0", "0.0.0.0:10911", "", "advertise"},
		"port 0":              {"127.0.0.1:0", "192.0.2.7:0", "", "advertise"},
	} {
		t.Run(name, func(t *testing.T) {
			b, err := newAt(t, c.listen, c.advertise)
			if c.err != "" {
				if err == nil || !strings.Contains(err.Error(), c.err) {
					t.Fatalf("error is %v, want one that names %q", err, c.err)
				}
				return
			}
			if err != nil {
				t.Fatal(err)
			}
			b.Close()
			if !strings.Contains(b.Advertised(), c.want) || strings.HasSuffix(b.Advertised(), ":0") {
				t.Errorf("advertised is %s, want %s", b.Advertised(), c.want)
			}
		})
	}
	e := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.Advertise = "192.0.2.7:10911" })
	sent := e.mustSend("t", 0, "", "x")
	e.awaitMax("t", 0, 1)
	host, _, err := message.ParseOffsetID(sent.MsgID)
	if err != nil || host.String() != "192.0.2.7:10911" {
		t.Errorf("id %s: host %v (%v)", sent.MsgID, host, err)
	}
	if m := e.pullAll("t", 0, 0)[0]; m.StoreHost != host || !m.BornHost.Addr().IsLoopback() {
		t.Errorf("the record's hosts are %v and %v", m.StoreHost, m.BornHost)
	}
}

// newAt makes a broker that is not run, on a store that is closed at the end.
func newAt(t *testing.T, listen, advertise string) (*Broker, error) {
	t.Helper()
	dir := t.TempDir()
	sp, err := spool.Open(spool.Options{Dir: dir, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		if err := sp.Close(); err != nil {
			t.Error(err)
		}
	})
	return New(Options{Listen: listen, Advertise: advertise, Dir: dir}, sp)
}

// TestPortInUse: a broker that cannot listen says so and leaves nothing running.
func TestPortInUse(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	if _, err := newAt(t, e.addr, ""); err == nil || !strings.Contains(err.Error(), e.addr) {
		t.Errorf("error is %v, want one that names %s", err, e.addr)
	}
	for _, change := range []func(*Options){
		func(o *Options) { o.Name = "../x" }, func(o *Options) { o.Cluster = "a b" },
	} {
		o := Options{Dir: t.TempDir()}
		change(&o)
		if _, err := New(o, nil); err == nil {
			t.Errorf("name %q, cluster %q: no error", o.Name, o.Cluster)
		}
	}
}
