package clients_test

import (
	"errors"
	"fmt"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/broker/clients"
	"github.com/sluicemq/sluice/protocol"
)

func TestHeartbeatListsClients(t *testing.T) {
	table := clients.New(clients.Options{})
	one, two := newConn(1), newConn(2)
	hb := heartbeat("c2", consumer("g", sub("t", "a || b", 1)))
	hb.ProducerDataSet = []protocol.ProducerData{{GroupName: "p"}}
	beat(t, table, two, hb)
	beat(t, table, one, heartbeat("c1", consumer("g", sub("t", "a || b", 1))))

	if got := fmt.Sprint(table.Members("g")); got != "[c1 c2]" {
		t.Errorf("members %s", got)
	}
	if table.Members("none") != nil || table.Producers("none") == nil && len(table.Producers("none")) != 0 {
		t.Error("members of a group that nobody is in")
	}
	c, ok := table.Consumers("g")
	if !ok || len(c.ConnectionSet) != 2 || c.MessageModel != protocol.Clustering || c.ConsumeType != protocol.ConsumePassively ||
		c.ConsumeFromWhere != protocol.ConsumeFromLastOffset || c.SubscriptionTable["t"].SubString != "a || b" {
		t.Errorf("consumers %+v", c)
	}
	if first := c.ConnectionSet[0]; first != (protocol.Connection{ClientID: "c1", ClientAddr: "10.0.0.1:40000", Language: "JAVA", Version: 479}) {
		t.Errorf("connection %+v", first)
	}
	if p := table.Producers("p"); len(p) != 1 || p[0].ClientID != "c2" {
		t.Errorf("producers %+v", p)
	}
	if got := fmt.Sprint(table.Groups("t")); got != "[g]" {
		t.Errorf("groups of t: %s", got)
	}
	if s, ok := table.Subscription("g", "t"); !ok || s.SubString != "a || b" {
		t.Errorf("subscription %+v", s)
	}
	if _, ok := table.Subscription("g", "other"); ok {
		t.Error("a subscription that nobody has")
	}
	if got := table.Stats(); got != (clients.Stats{Connections: 2, ConsumerGroups: 1, Consumers: 2, ProducerGroups: 1, Producers: 1}) {
		t.Errorf("stats %+v", got)
	}
}

func TestLeaving(t *testing.T) {
	join := func(t *testing.T) (*clients.Table, *fakeConn) {
		table, c := clients.New(clients.Options{}), newConn(1)
		hb := heartbeat("c", consumer("g", sub("t", "*", 1)), consumer("h", sub("t", "*", 1)))
		hb.ProducerDataSet = []protocol.ProducerData{{GroupName: "p"}}
		beat(t, table, c, hb)
		return table, c
	}
	t.Run("unregister", func(t *testing.T) {
		table, c := join(t)
		table.Unregister(c, "", "g")
		table.Unregister(c, "", "never joined")
		if table.Members("g") != nil || table.Members("h") == nil || len(table.Producers("p")) != 1 {
			t.Errorf("left: %+v", table.Stats())
		}
		table.Unregister(c, "p", "h")
		if s := table.Stats(); s != (clients.Stats{}) {
			t.Errorf("left: %+v", s)
		}
	})
	t.Run("connection ends", func(t *testing.T) {
		table, c := join(t)
		c.end(table)
		if s := table.Stats(); s != (clients.Stats{}) {
			t.Errorf("left: %+v", s)
		}
		if _, ok := table.Consumers("g"); ok {
			t.Error("an empty group is listed")
		}
	})
	t.Run("heartbeat behind the end", func(t *testing.T) {
		table, c := join(t)
		c.end(table)
		if _, err := table.Heartbeat(c, java, heartbeat("c", consumer("g", sub("t", "*", 1)))); err != nil {
			t.Error(err)
		}
		if s := table.Stats(); s != (clients.Stats{}) {
			t.Errorf("a dead connection is registered: %+v", s)
		}
	})
}

// A client connects again before its old connection is found dead; the end of
// the old one must not take the client away.
func TestReconnectKeepsTheClient(t *testing.T) {
	table := clients.New(clients.Options{})
	before, after := newConn(1), newConn(2)
	hb := heartbeat("c", consumer("g", sub("t", "*", 1)))
	hb.ProducerDataSet = []protocol.ProducerData{{GroupName: "p"}}
	beat(t, table, before, hb)
	beat(t, table, after, hb)
	if got := fmt.Sprint(table.Members("g")); got != "[c]" {
		t.Errorf("members %s, want the client once", got)
	}
	before.end(table)
	if got := fmt.Sprint(table.Members("g")); got != "[c]" {
		t.Errorf("members %s after the old connection ended", got)
	}
	if c, _ := table.Consumers("g"); len(c.ConnectionSet) != 1 || c.ConnectionSet[0].ClientAddr != after.RemoteAddr().String() {
		t.Errorf("connections %+v", c.ConnectionSet)
	}
	if p := table.Producers("p"); len(p) != 1 || p[0].ClientID != "c" {
		t.Errorf("producers %+v", p)
	}
}

func TestTablesReturnToBaseline(t *testing.T) {
	table := clients.New(clients.Options{})
	for i := range 10_000 {
		c, name := newConn(uint64(i)), fmt.Sprintf("x%d", i)
		hb := heartbeat(name, consumer("g"+name, sub("t", "*", 1)))
		hb.ProducerDataSet = []protocol.ProducerData{{GroupName: "p" + name}}
		beat(t, table, c, hb)
		c.end(table)
	}
	if s := table.Stats(); s != (clients.Stats{}) {
		t.Errorf("left: %+v", s)
	}
}

func TestAnotherClientIDOnTheSameConnectionReplacesTheFirst(t *testing.T) {
	table, c := clients.New(clients.Options{}), newConn(1)
	for _, id := range []string{"a", "b"} {
		hb := heartbeat(id, consumer("g", sub("t", "*", 1)))
		hb.ProducerDataSet = []protocol.ProducerData{{GroupName: "p"}}
		beat(t, table, c, hb)
	}
	if got := fmt.Sprint(table.Members("g")); got != "[b]" {
		t.Errorf("members %s", got)
	}
	if p := table.Producers("p"); len(p) != 1 || p[0].ClientID != "b" {
		t.Errorf("producers %+v", p)
	}
}

func TestTwoLiveConnectionsOfOneClientIDAreWarnedAboutOnce(t *testing.T) {
	const text = "two connections use one client id"
	var log logged
	table := clients.New(clients.Options{Logger: log.logger()})
	one, two := newConn(1), newConn(2)
	hb := heartbeat("c", consumer("g", sub("t", "*", 1)))
	beat(t, table, one, hb)
	beat(t, table, two, hb)
	beat(t, table, two, hb)
	if log.count(text) != 0 {
		t.Error("a client that connected again is taken for two")
	}
	for range 3 {
		beat(t, table, one, hb)
		beat(t, table, two, hb)
	}
	if n := log.count(text); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}
}

func TestHeartbeatLimits(t *testing.T) {
	table, c := clients.New(clients.Options{MaxGroups: 2}), newConn(1)
	_, err := table.Heartbeat(c, java, produce("c", "a", "b", "c"))
	if !errors.Is(err, clients.ErrTooManyGroups) {
		t.Errorf("error %v", err)
	}
	if s := table.Stats(); s.Producers != 2 {
		t.Errorf("%d registrations, want 2", s.Producers)
	}
	if _, err := table.Heartbeat(c, java, produce("c", "a", "b")); err != nil {
		t.Errorf("what is registered is refused: %v", err)
	}
	for _, hb := range []*protocol.HeartbeatData{
		produce("", "a"), produce("c", "../x"), produce("c", strings.Repeat("x", 256)), heartbeat("c", consumer("a/b")),
	} {
		_, err := table.Heartbeat(newConn(9), java, hb)
		var e *protocol.Error
		if !errors.As(err, &e) || e.Code != protocol.InvalidParameter {
			t.Errorf("%+v: error %v", hb, err)
		}
	}
	if s := table.Stats(); s.Connections != 1 {
		t.Errorf("stats %+v", s)
	}
}

func TestLookupsDoNotAllocate(t *testing.T) {
	table, c := clients.New(clients.Options{}), newConn(1)
	beat(t, table, c, heartbeat("c", consumer("g", sub("t", "*", 1))))
	group, topic := []byte("g"), []byte("t")
	if n := testing.AllocsPerRun(100, func() {
		g, ok := table.GroupBytes(group)
		if _, found := g.SubscriptionBytes(topic); !ok || !found {
			t.Fatal("missing")
		}
	}); n != 0 {
		t.Errorf("%v allocations", n)
	}
}
