package clients_test

import (
	"fmt"
	"maps"
	"slices"
	"testing"

	"github.com/sluicemq/sluice/broker/clients"
	"github.com/sluicemq/sluice/protocol"
)

// have lists a group's subscriptions as "topic:expression".
func have(table *clients.Table, group string) string {
	c, _ := table.Consumers(group)
	var list []string
	for _, topic := range slices.Sorted(maps.Keys(c.SubscriptionTable)) {
		list = append(list, topic+":"+c.SubscriptionTable[topic].SubString)
	}
	return fmt.Sprint(list)
}

func TestSubscriptionsFollowHeartbeats(t *testing.T) {
	type step struct {
		conn uint64 // its client id is "c" and this number; 0 with subs nil: conn 1 ends
		subs []protocol.SubscriptionData
		want string
	}
	one := func(s ...protocol.SubscriptionData) []protocol.SubscriptionData { return s }
	tests := map[string][]step{
		"a newer version replaces": {
			{1, one(sub("t", "a", 1)), "[t:a]"},
			{1, one(sub("t", "b", 2)), "[t:b]"},
		},
		"a topic that is left out goes": {
			{1, one(sub("t", "a", 1), sub("u", "*", 1)), "[t:a u:*]"},
			{1, one(sub("u", "*", 1)), "[u:*]"},
		},
		"the newest of two members counts": {
			{1, one(sub("t", "new", 5)), "[t:new]"},
			{2, one(sub("t", "old", 4)), "[t:new]"},
			{1, one(sub("t", "new", 5)), "[t:new]"},
			{2, one(sub("t", "newer", 6)), "[t:newer]"},
			{1, one(sub("t", "new", 5)), "[t:newer]"},
		},
		"a client whose clock went back is heard": {
			{1, one(sub("t", "a", 9000)), "[t:a]"},
			{1, one(sub("t", "b", 5)), "[t:b]"},
		},
		"a version from the future leaves with its client": {
			{1, one(sub("t", "a", 9000)), "[t:a]"},
			{2, one(sub("t", "b", 5)), "[t:a]"},
			{0, nil, "[t:a]"},
			{2, one(sub("t", "b", 5)), "[t:b]"},
		},
		"members with other topics keep theirs": {
			{1, one(sub("t", "*", 1)), "[t:*]"},
			{2, one(sub("u", "*", 2)), "[t:* u:*]"},
			{1, one(sub("t", "*", 1)), "[t:* u:*]"},
			{0, nil, "[t:* u:*]"},
			{2, one(sub("u", "*", 2)), "[u:*]"},
		},
	}
	for name, steps := range tests {
		t.Run(name, func(t *testing.T) {
			table := clients.New(clients.Options{})
			conns := map[uint64]*fakeConn{1: newConn(1), 2: newConn(2)}
			for i, s := range steps {
				if s.conn == 0 {
					conns[1].end(table)
				} else {
					beat(t, table, conns[s.conn], heartbeat(fmt.Sprint("c", s.conn), consumer("g", s.subs...)))
				}
				if got := have(table, "g"); got != s.want {
					t.Fatalf("step %d: subscriptions %s, want %s", i, got, s.want)
				}
			}
		})
	}
}

func TestDisagreementIsWarnedAboutOnce(t *testing.T) {
	const text = "subscribe differently"
	var log logged
	table := clients.New(clients.Options{Logger: log.logger()})
	one, two := newConn(1), newConn(2)
	for range 3 {
		beat(t, table, one, heartbeat("c1", consumer("g", sub("t", "a", 1))))
	}
	if log.count(text) != 0 {
		t.Error("warned about one member")
	}
	for range 3 {
		beat(t, table, two, heartbeat("c2", consumer("g", sub("t", "b", 2))))
		beat(t, table, one, heartbeat("c1", consumer("g", sub("t", "a", 1))))
	}
	if n := log.count(text); n != 1 {
		t.Errorf("warned %d times, want once", n)
	}
}

// Views that were handed out do not change under their reader.
func TestGroupViewIsImmutable(t *testing.T) {
	table, c := clients.New(clients.Options{}), newConn(1)
	beat(t, table, c, heartbeat("c", consumer("g", sub("t", "a", 1))))
	g, _ := table.Group("g")
	hb := heartbeat("c", consumer("g", sub("u", "b", 2)))
	hb.ConsumerDataSet[0].MessageModel = protocol.Broadcasting
	beat(t, table, c, hb)
	if s, ok := g.Subscription("t"); !ok || s.SubString != "a" || g.MessageModel != protocol.Clustering || fmt.Sprint(g.Topics()) != "[t]" {
		t.Errorf("the old view became %+v", g)
	}
	if g, _ := table.Group("g"); g.MessageModel != protocol.Broadcasting || fmt.Sprint(g.Topics()) != "[u]" {
		t.Errorf("the new view is %+v", g)
	}
}

func TestHeartbeatV2(t *testing.T) {
	table, c := clients.New(clients.Options{}), newConn(1)
	v2 := func(fingerprint int32, withoutSub bool, subs ...protocol.SubscriptionData) *protocol.HeartbeatData {
		hb := heartbeat("c", consumer("g", subs...))
		hb.HeartbeatFingerprint, hb.WithoutSub = fingerprint, withoutSub
		return hb
	}
	if !beat(t, table, c, heartbeat("c", consumer("g", sub("t", "a", 1)))) {
		t.Error("version 1 is not asked for its subscriptions")
	}
	c.end(table)
	c = newConn(2)
	steps := []struct {
		hb        *protocol.HeartbeatData
		subChange bool
		want      string
	}{
		{v2(7, true), true, "[]"}, // this broker never heard them: it has restarted
		{v2(7, false, sub("t", "a", 1)), false, "[t:a]"},
		{v2(7, true), false, "[t:a]"},
		{v2(8, true), true, "[t:a]"},
		{v2(8, false, sub("t", "b", 2)), false, "[t:b]"},
		{v2(8, true), false, "[t:b]"},
	}
	for i, s := range steps {
		if got := beat(t, table, c, s.hb); got != s.subChange {
			t.Errorf("step %d: sub change %v, want %v", i, got, s.subChange)
		}
		if got := have(table, "g"); got != s.want {
			t.Errorf("step %d: subscriptions %s, want %s", i, got, s.want)
		}
		if got := fmt.Sprint(table.Members("g")); got != "[c]" {
			t.Errorf("step %d: members %s", i, got)
		}
	}
}
