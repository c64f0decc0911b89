package namesrv

import (
	"fmt"
	"maps"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// fakeConn is a connection that only counts how often it was closed.
type fakeConn struct {
	id     uint64
	closed int
}

func (c *fakeConn) ID() uint64 { return c.id }
func (c *fakeConn) Close()     { c.closed++ }

// at is when everything in the table tests happens.
var at = time.Now()

// master is a registration of a master with two topics.
func master(conn Conn) *Registration {
	return &Registration{
		Cluster: "c1", Name: "broker-a", Addr: "10.0.0.1:10911", ID: 0, HAAddr: "10.0.0.1:10912",
		Version: protocol.DataVersion{Counter: 1, Timestamp: 5},
		Topics:  []protocol.TopicConfig{config("t1", 4, 6), config("t2", 8, 6)}, Conn: conn,
	}
}

// slave is the registration of its slave.
func slave(conn Conn) *Registration {
	r := master(conn)
	r.Addr, r.ID, r.HAAddr = "10.0.0.2:10911", 1, "10.0.0.2:10912"
	return r
}

func config(topic string, queues, perm int32) protocol.TopicConfig {
	return protocol.TopicConfig{TopicName: topic, ReadQueueNums: queues, WriteQueueNums: queues, Perm: perm}
}

func mustRegister(t *testing.T, rt *RouteTable, r *Registration) Registered {
	t.Helper()
	res, err := rt.Register(r, at)
	if err != nil {
		t.Fatal(err)
	}
	checkInvariants(t, rt)
	return res
}

// checkInvariants holds every table against the others.
func checkInvariants(t *testing.T, rt *RouteTable) {
	t.Helper()
	queues, addrs := 0, 0
	for name, tp := range rt.topics {
		queues += len(tp.queues)
		for brokerName := range tp.queues {
			if rt.brokers[brokerName] == nil {
				t.Errorf("topic %s is served by %s, which does not exist", name, brokerName)
			}
		}
		if len(tp.queues) == 0 {
			t.Errorf("topic %s has no queues", name)
		}
	}
	if queues != rt.queues {
		t.Errorf("%d queue data are counted, %d are there", rt.queues, queues)
	}
	for name, b := range rt.brokers {
		addrs += len(b.addrs)
		if _, ok := rt.clusters[b.cluster][name]; !ok || len(b.addrs) == 0 {
			t.Errorf("broker %s: in its cluster %v, addresses %v", name, ok, b.addrs)
		}
		for id, addr := range b.addrs {
			if l := rt.live[member{b.cluster, addr}]; l == nil || l.name != name || l.id != id {
				t.Errorf("broker %s id %d at %s has the live entry %+v", name, id, addr, l)
			}
		}
	}
	if addrs != len(rt.live) {
		t.Errorf("%d addresses, %d live entries", addrs, len(rt.live))
	}
	for cluster, names := range rt.clusters {
		for name := range names {
			if rt.brokers[name] == nil {
				t.Errorf("cluster %s holds broker %s, which does not exist", cluster, name)
			}
		}
	}
}

// summary writes the route of a topic as "broker queues perm @addresses".
func summary(rt *RouteTable, topic string) string {
	route, found := rt.Route(topic)
	if !found {
		return "none"
	}
	var parts []string
	for _, q := range route.QueueDatas {
		parts = append(parts, fmt.Sprintf("%s %d perm %d", q.BrokerName, q.WriteQueueNums, q.Perm))
	}
	for _, b := range route.BrokerDatas {
		parts = append(parts, fmt.Sprint(b.BrokerAddrs))
	}
	return strings.Join(parts, ", ")
}

func wantRoute(t *testing.T, rt *RouteTable, topic, want string) {
	t.Helper()
	if got := summary(rt, topic); got != want {
		t.Errorf("route of %s: %s, want %s", topic, got, want)
	}
}

func TestRegisterMasterAndSlave(t *testing.T) {
	rt := NewRouteTable(RouteOptions{})
	if res := mustRegister(t, rt, master(&fakeConn{id: 1})); res != (Registered{New: true, Changed: true}) {
		t.Errorf("master: %+v", res)
	}
	res := mustRegister(t, rt, slave(&fakeConn{id: 2}))
	if res.MasterAddr != "10.0.0.1:10911" || res.HAAddr != "10.0.0.1:10912" {
		t.Errorf("slave: %+v", res)
	}
	wantRoute(t, rt, "t1", "broker-a 4 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]")
	if res := mustRegister(t, rt, master(&fakeConn{id: 1})); res != (Registered{}) {
		t.Errorf("the same once more: %+v", res)
	}
	info := rt.Clusters()
	if !reflect.DeepEqual(info.ClusterAddrTable, map[string][]string{"c1": {"broker-a"}}) ||
		info.BrokerAddrTable["broker-a"].Cluster != "c1" {
		t.Errorf("clusters %+v", info)
	}
	topics, addr := rt.SystemTopics()
	if !reflect.DeepEqual(topics, []string{"broker-a", "c1"}) || addr != "10.0.0.1:10911" {
		t.Errorf("system topics %v of %s", topics, addr)
	}
	if !reflect.DeepEqual(rt.Topics(), []string{"t1", "t2"}) || !reflect.DeepEqual(rt.TopicsOfCluster("c1"), []string{"t1", "t2"}) ||
		len(rt.TopicsOfCluster("c2")) != 0 {
		t.Errorf("topics %v, of c1 %v", rt.Topics(), rt.TopicsOfCluster("c1"))
	}
	if !maps.Equal(rt.Members("broker-a"), map[int64]string{0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}) || len(rt.Members("x")) != 0 {
		t.Errorf("members %v", rt.Members("broker-a"))
	}
}

// TestRegisterSteps walks the algorithm: what a second registration changes.
func TestRegisterSteps(t *testing.T) {
	yes := protocol.Some(true)
	for _, c := range []struct {
		name   string
		change func(*Registration) // of a master's registration, after master and slave are in
		from   func(Conn) *Registration
		want   string // route of t1
		t2     string
	}{
		{"same data version keeps topics", func(r *Registration) { r.Topics = []protocol.TopicConfig{config("t1", 16, 4), config("t2", 16, 4)} },
			master, "broker-a 4 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]", "broker-a 8 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]"},
		{"new data version applies topics", func(r *Registration) {
			r.Topics = []protocol.TopicConfig{config("t1", 16, 4)}
			r.Version.Counter++
		}, master, "broker-a 16 perm 4, map[0:10.0.0.1:10911 1:10.0.0.2:10911]", "broker-a 8 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]"},
		{"same version, topic not there yet", func(r *Registration) { r.Topics = append(r.Topics, config("t3", 1, 6)) },
			master, "broker-a 4 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]", "broker-a 8 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]"},
		{"a slave's topics do not count", func(r *Registration) {
			r.Topics = []protocol.TopicConfig{config("t1", 1, 4), config("t2", 1, 4)}
			r.Version.Counter++
		}, slave, "broker-a 4 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]", "broker-a 8 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]"},
		{"slave becomes master", func(r *Registration) { r.ID = 0 },
			slave, "broker-a 4 perm 6, map[0:10.0.0.2:10911]", "broker-a 8 perm 6, map[0:10.0.0.2:10911]"},
		{"new address, same state version", func(r *Registration) { r.Addr = "10.0.0.3:10911" },
			master, "broker-a 4 perm 6, map[0:10.0.0.3:10911 1:10.0.0.2:10911]", "broker-a 8 perm 6, map[0:10.0.0.3:10911 1:10.0.0.2:10911]"},
		{"acting master leaves a present master alone", func(r *Registration) { r.ActingMaster = yes; r.Version.Counter++ },
			slave, "broker-a 4 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]", "broker-a 8 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]"},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt := NewRouteTable(RouteOptions{})
			mustRegister(t, rt, master(&fakeConn{id: 1}))
			mustRegister(t, rt, slave(&fakeConn{id: 2}))
			r := c.from(&fakeConn{id: 3})
			c.change(r)
			mustRegister(t, rt, r)
			wantRoute(t, rt, "t1", c.want)
			wantRoute(t, rt, "t2", c.t2)
		})
	}
}

func TestNewerStateKeepsItsID(t *testing.T) {
	rt := NewRouteTable(RouteOptions{})
	first := master(&fakeConn{id: 1})
	first.Version.StateVersion = 7
	mustRegister(t, rt, first)
	other := master(&fakeConn{id: 2})
	other.Addr, other.Version.StateVersion = "10.0.0.9:10911", 6
	if res := mustRegister(t, rt, other); !res.Conflict || res.MasterAddr != "" {
		t.Errorf("older state: %+v", res)
	}
	wantRoute(t, rt, "t1", "broker-a 4 perm 6, map[0:10.0.0.1:10911]")
	other.Version.StateVersion = 8
	mustRegister(t, rt, other)
	wantRoute(t, rt, "t1", "broker-a 4 perm 6, map[0:10.0.0.9:10911]")
}

// TestActingMaster: the slave with the smallest id stands in for a master, for
// reading only.
func TestActingMaster(t *testing.T) {
	acting := func(conn Conn) *Registration {
		r := slave(conn)
		r.ActingMaster = protocol.Some(true)
		return r
	}
	t.Run("slave first", func(t *testing.T) {
		rt := NewRouteTable(RouteOptions{})
		mustRegister(t, rt, acting(&fakeConn{id: 1}))
		wantRoute(t, rt, "t1", "broker-a 4 perm 4, map[1:10.0.0.2:10911]")
	})
	t.Run("master leaves", func(t *testing.T) {
		rt := NewRouteTable(RouteOptions{})
		m := master(&fakeConn{id: 1})
		m.ActingMaster = protocol.Some(true)
		mustRegister(t, rt, m)
		mustRegister(t, rt, acting(&fakeConn{id: 2}))
		rt.ConnClosed(m.Conn)
		checkInvariants(t, rt)
		wantRoute(t, rt, "t1", "broker-a 4 perm 4, map[1:10.0.0.2:10911]")
		mustRegister(t, rt, m)
		wantRoute(t, rt, "t1", "broker-a 4 perm 6, map[0:10.0.0.1:10911 1:10.0.0.2:10911]")
	})
}

func TestSlaveWithoutActingMasterKeepsWritePermission(t *testing.T) { // fault F65
	rt := NewRouteTable(RouteOptions{})
	m := master(&fakeConn{id: 1})
	mustRegister(t, rt, m)
	s := slave(&fakeConn{id: 2})
	s.ActingMaster = protocol.Some(false)
	mustRegister(t, rt, s)
	rt.ConnClosed(m.Conn)
	wantRoute(t, rt, "t1", "broker-a 4 perm 6, map[1:10.0.0.2:10911]")
	s.Version.Counter++
	mustRegister(t, rt, s)
	wantRoute(t, rt, "t1", "broker-a 4 perm 6, map[1:10.0.0.2:10911]")
}

func TestSingleTopicBeforeTheFullRegistration(t *testing.T) { // fault F65
	rt := NewRouteTable(RouteOptions{})
	r := master(&fakeConn{id: 1})
	full := r.Topics
	r.Topics = full[:1]
	if _, err := rt.Register(r, at); protocol.AsError(err) == nil || protocol.AsError(err).Remark != "register broker failed" {
		t.Errorf("one topic: %v", err)
	}
	checkInvariants(t, rt)
	if len(rt.brokers)+len(rt.live)+len(rt.clusters)+len(rt.topics) != 0 {
		t.Error("half a broker is left")
	}
	r.Topics = full
	mustRegister(t, rt, r)
	r.Topics = []protocol.TopicConfig{config("t3", 1, 6)}
	r.Version.Counter++
	mustRegister(t, rt, r)
	wantRoute(t, rt, "t3", "broker-a 1 perm 6, map[0:10.0.0.1:10911]")
	wantRoute(t, rt, "t1", "broker-a 4 perm 6, map[0:10.0.0.1:10911]")
}

// TestTopicDeletedOnOneBroker (fault F65): its next complete registration takes
// the topic out of that broker's route only.
func TestTopicDeletedOnOneBroker(t *testing.T) {
	rt := NewRouteTable(RouteOptions{DeleteTopics: true})
	a, b := master(&fakeConn{id: 1}), master(&fakeConn{id: 2})
	b.Name, b.Addr = "broker-b", "10.0.0.5:10911"
	mustRegister(t, rt, a)
	mustRegister(t, rt, b)
	a.Topics = []protocol.TopicConfig{config("t2", 8, 6), config("t9", 8, 6)}
	mustRegister(t, rt, a)
	wantRoute(t, rt, "t1", "broker-a 4 perm 6, broker-b 4 perm 6, map[0:10.0.0.1:10911], map[0:10.0.0.5:10911]")
	a.Version.Counter++
	mustRegister(t, rt, a)
	wantRoute(t, rt, "t1", "broker-b 4 perm 6, map[0:10.0.0.5:10911]")
}

// TestLateFarewell: what arrives for a registration that has been replaced does
// nothing to the new one.
func TestLateFarewell(t *testing.T) {
	gone := "none"
	stays := "broker-a 4 perm 6, map[0:10.0.0.1:10911]"
	farewell := func(conn Conn) Unregistration {
		return Unregistration{Cluster: "c1", Name: "broker-a", Addr: "10.0.0.1:10911", ID: 0, Conn: conn}
	}
	old, fresh, later := &fakeConn{id: 1}, &fakeConn{id: 2}, &fakeConn{id: 3}
	for _, c := range []struct {
		name string
		do   func(*RouteTable)
		want string
	}{
		{"unregister by the old connection", func(rt *RouteTable) { rt.Unregister(farewell(old)) }, stays},
		{"close of the old connection", func(rt *RouteTable) { rt.ConnClosed(old) }, stays},
		{"unregister by its own connection", func(rt *RouteTable) { rt.Unregister(farewell(fresh)) }, gone},
		{"unregister by a later connection", func(rt *RouteTable) { rt.Unregister(farewell(later)) }, gone},
		{"close of its own connection", func(rt *RouteTable) { rt.ConnClosed(fresh) }, gone},
		{"unregister of another name", func(rt *RouteTable) {
			u := farewell(fresh)
			u.Name = "broker-z"
			rt.Unregister(u)
		}, stays},
		{"unregister of another address", func(rt *RouteTable) {
			u := farewell(fresh)
			u.Addr = "10.0.0.7:10911"
			rt.Unregister(u)
		}, stays},
		{"expiry by the old registration's clock", func(rt *RouteTable) { rt.Expire(at.Add(DefaultBrokerTimeout)) }, stays},
		{"expiry", func(rt *RouteTable) { rt.Expire(at.Add(2*DefaultBrokerTimeout + 1)) }, gone},
	} {
		t.Run(c.name, func(t *testing.T) {
			rt := NewRouteTable(RouteOptions{})
			mustRegister(t, rt, master(old))
			if _, err := rt.Register(master(fresh), at.Add(DefaultBrokerTimeout)); err != nil {
				t.Fatal(err)
			}
			c.do(rt)
			checkInvariants(t, rt)
			wantRoute(t, rt, "t1", c.want)
			if c.want == gone && len(rt.clusters)+len(rt.topics) != 0 {
				t.Errorf("left: clusters %v, topics %v", rt.clusters, rt.topics)
			}
		})
	}
}

// TestExpireClosesIdleConnectionsOnly: one process may register several brokers
// by one connection.
func TestExpireClosesIdleConnectionsOnly(t *testing.T) {
	rt := NewRouteTable(RouteOptions{})
	conn := &fakeConn{id: 1}
	a, b := master(conn), master(conn)
	b.Name, b.Addr, b.Timeout = "broker-b", "10.0.0.5:10911", 2*DefaultBrokerTimeout
	mustRegister(t, rt, a)
	mustRegister(t, rt, b)
	lost := rt.Expire(at.Add(DefaultBrokerTimeout + time.Second))
	if len(lost) != 1 || lost[0].Name != "broker-a" || lost[0].Silent != DefaultBrokerTimeout+time.Second || conn.closed != 0 {
		t.Errorf("lost %+v, closed %d times", lost, conn.closed)
	}
	rt.Touch("c1", "10.0.0.5:10911", at.Add(3*DefaultBrokerTimeout))
	if lost := rt.Expire(at.Add(4 * DefaultBrokerTimeout)); len(lost) != 0 {
		t.Errorf("lost %+v although it gave a sign of life", lost)
	}
	rt.Expire(at.Add(6 * DefaultBrokerTimeout))
	if conn.closed != 1 || len(rt.live) != 0 {
		t.Errorf("closed %d times, %d alive", conn.closed, len(rt.live))
	}
	checkInvariants(t, rt)
}

func TestRenamedBrokerLeavesNoTrace(t *testing.T) {
	rt := NewRouteTable(RouteOptions{})
	mustRegister(t, rt, master(&fakeConn{id: 1}))
	r := master(&fakeConn{id: 2})
	r.Name = "broker-new"
	mustRegister(t, rt, r)
	wantRoute(t, rt, "t1", "broker-new 4 perm 6, map[0:10.0.0.1:10911]")
	r = master(&fakeConn{id: 3})
	r.Name, r.Cluster = "broker-new", "c2"
	mustRegister(t, rt, r)
	if info := rt.Clusters(); !reflect.DeepEqual(info.ClusterAddrTable, map[string][]string{"c2": {"broker-new"}}) {
		t.Errorf("clusters %v", info.ClusterAddrTable)
	}
	r = slave(&fakeConn{id: 4})
	r.Name = "broker-new" // in c1
	if _, err := rt.Register(r, at); err == nil {
		t.Error("one broker name in two clusters")
	}
	checkInvariants(t, rt)
}

func TestWritePermAndDeletedTopics(t *testing.T) {
	rt := NewRouteTable(RouteOptions{})
	a, b := master(&fakeConn{id: 1}), master(&fakeConn{id: 2})
	b.Name, b.Addr, b.Cluster = "broker-b", "10.0.0.5:10911", "c2"
	mustRegister(t, rt, a)
	mustRegister(t, rt, b)
	if n := rt.SetWritePerm("broker-a", false); n != 2 {
		t.Errorf("%d topics", n)
	}
	wantRoute(t, rt, "t1", "broker-a 4 perm 4, broker-b 4 perm 6, map[0:10.0.0.1:10911], map[0:10.0.0.5:10911]")
	mustRegister(t, rt, a) // the same version: the change stays
	wantRoute(t, rt, "t1", "broker-a 4 perm 4, broker-b 4 perm 6, map[0:10.0.0.1:10911], map[0:10.0.0.5:10911]")
	if n := rt.SetWritePerm("broker-a", true); n != 2 {
		t.Errorf("%d topics", n)
	}
	wantRoute(t, rt, "t2", "broker-a 8 perm 6, broker-b 8 perm 6, map[0:10.0.0.1:10911], map[0:10.0.0.5:10911]")
	rt.DeleteTopic("t1", "c1")
	wantRoute(t, rt, "t1", "broker-b 4 perm 6, map[0:10.0.0.5:10911]")
	rt.DeleteTopic("t1", "c9")
	wantRoute(t, rt, "t1", "broker-b 4 perm 6, map[0:10.0.0.5:10911]")
	rt.DeleteTopic("t2", "")
	wantRoute(t, rt, "t2", "none")
	checkInvariants(t, rt)
}

func TestRegisterTopicOfKnownBrokersOnly(t *testing.T) {
	rt := NewRouteTable(RouteOptions{})
	mustRegister(t, rt, master(&fakeConn{id: 1}))
	known := protocol.QueueData{BrokerName: "broker-a", ReadQueueNums: 2, WriteQueueNums: 2, Perm: 6}
	if rt.RegisterTopic("t9", []protocol.QueueData{known, {BrokerName: "broker-z"}}) {
		t.Error("registered for an unknown broker")
	}
	wantRoute(t, rt, "t9", "none")
	if !rt.RegisterTopic("t9", []protocol.QueueData{known}) {
		t.Error("refused")
	}
	wantRoute(t, rt, "t9", "broker-a 2 perm 6, map[0:10.0.0.1:10911]")
	checkInvariants(t, rt)
}

// TestTableIsBounded: what hostile brokers register has an end, and what fits
// keeps working.
func TestTableIsBounded(t *testing.T) {
	rt := NewRouteTable(RouteOptions{MaxBrokers: 2, MaxTopics: 3})
	mustRegister(t, rt, master(&fakeConn{id: 1}))
	b := master(&fakeConn{id: 2})
	b.Name, b.Addr = "broker-b", "10.0.0.5:10911"
	if res := mustRegister(t, rt, b); res.Rejected != 1 {
		t.Errorf("%+v", res)
	}
	c := master(&fakeConn{id: 3})
	c.Name, c.Addr = "broker-c", "10.0.0.6:10911"
	if _, err := rt.Register(c, at); err == nil {
		t.Error("a third broker was registered")
	}
	mustRegister(t, rt, b)
	checkInvariants(t, rt)
}
