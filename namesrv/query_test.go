package namesrv

import (
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

// TestEncodedRouteFollowsChanges: the kept answer is never an old one.
func TestEncodedRouteFollowsChanges(t *testing.T) {
	rt := NewRouteTable(RouteOptions{})
	encoded := func() string {
		t.Helper()
		var forms []string
		for _, strict := range []bool{true, false} {
			for range 2 { // built, then kept
				body, found, err := rt.EncodedRoute("t1", strict)
				if err != nil {
					t.Fatal(err)
				}
				route, ok := rt.Route("t1")
				if found != ok {
					t.Fatalf("found %v, want %v", found, ok)
				}
				if !found {
					continue
				}
				if want, err := encodeRoute(route, strict); err != nil || string(want) != string(body) {
					t.Errorf("kept %s, now %s (%v)", body, want, err)
				}
				forms = append(forms, string(body))
			}
		}
		return strings.Join(forms, "\n")
	}
	last := encoded()
	m, s := master(&fakeConn{id: 1}), slave(&fakeConn{id: 2})
	change := func(name string, f func()) {
		f()
		now := encoded()
		if now == last {
			t.Errorf("%s: the answer did not change", name)
		}
		last = now
	}
	change("register", func() { mustRegister(t, rt, m) })
	change("slave", func() { mustRegister(t, rt, s) })
	change("filter server", func() { m.Filters = []string{"10.0.0.1:9"}; mustRegister(t, rt, m) })
	change("zone", func() { m.Zone = "z1"; mustRegister(t, rt, m) })
	change("permission", func() { rt.SetWritePerm("broker-a", false) })
	change("queues", func() { m.Topics[0].ReadQueueNums = 1; m.Version.Counter++; mustRegister(t, rt, m) })
	change("static topic", func() {
		m.Mappings = map[string]protocol.TopicQueueMappingInfo{"t1": {Topic: "t1", BrokerName: "broker-a", TotalQueues: 8}}
		m.Version.Counter++
		mustRegister(t, rt, m)
	})
	change("slave gone", func() { rt.ConnClosed(s.Conn) })
	change("deleted", func() { rt.DeleteTopic("t1", "") })
}

func TestFilterZone(t *testing.T) {
	rt := NewRouteTable(RouteOptions{})
	a, b, c := master(&fakeConn{id: 1}), master(&fakeConn{id: 2}), slave(&fakeConn{id: 3})
	a.Zone = "Z1"
	b.Name, b.Addr, b.Zone, b.Filters = "broker-b", "10.0.0.5:10911", "z2", []string{"10.0.0.5:1"}
	c.Name, c.Zone, c.ActingMaster = "broker-c", "z2", protocol.Some(false)
	for _, r := range []*Registration{a, b, c} {
		mustRegister(t, rt, r)
	}
	route, _ := rt.Route("t1")
	filterZone(route, "z1")
	if len(route.BrokerDatas) != 2 || len(route.QueueDatas) != 2 || route.QueueDatas[0].BrokerName != "broker-a" ||
		route.QueueDatas[1].BrokerName != "broker-c" || len(route.FilterServerTable) != 0 {
		t.Errorf("%+v", route)
	}
}

func BenchmarkEncodedRoute(b *testing.B) {
	rt := NewRouteTable(RouteOptions{})
	if _, err := rt.Register(master(&fakeConn{id: 1}), at); err != nil {
		b.Fatal(err)
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, found, err := rt.EncodedRoute("t1", true); !found || err != nil {
			b.Fatal(err)
		}
	}
}
