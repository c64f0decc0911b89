package client

import (
	"net"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

func twoBrokers(conf string, permA, permB int32) *protocol.TopicRouteData {
	return &protocol.TopicRouteData{
		OrderTopicConf: conf,
		QueueDatas: []protocol.QueueData{
			{BrokerName: "b", ReadQueueNums: 2, WriteQueueNums: 1, Perm: permB},
			{BrokerName: "a", ReadQueueNums: 1, WriteQueueNums: 2, Perm: permA},
		},
		BrokerDatas: []protocol.BrokerData{
			{BrokerName: "a", BrokerAddrs: map[int64]string{0: "10.0.0.1:10911", 1: "10.0.0.2:10911"}},
			{BrokerName: "b", BrokerAddrs: map[int64]string{2: "10.0.0.3:10911"}}, // its master is down
		},
	}
}

func names(queues []protocol.MessageQueue) (list string) {
	for _, q := range queues {
		list += q.BrokerName + string(rune('0'+q.QueueID)) + " "
	}
	return list
}

func TestRouteQueues(t *testing.T) {
	for _, tt := range []struct {
		name        string
		data        *protocol.TopicRouteData
		write, read string
	}{
		{"a broker without master takes no messages", twoBrokers("", 6, 6), "a0 a1 ", "a0 b0 b1 "},
		{"read only", twoBrokers("", 4, 6), "", "a0 b0 b1 "},
		{"write only", twoBrokers("", 2, 6), "a0 a1 ", "b0 b1 "},
		{"order configuration counts instead of the queues", twoBrokers("a:3;b:2;x:1;nonsense", 6, 6), "a0 a1 a2 ", "a0 b0 b1 "},
	} {
		r := newRoute("T", tt.data)
		if names(r.Write) != tt.write || names(r.Read) != tt.read {
			t.Errorf("%s: write %q, read %q", tt.name, names(r.Write), names(r.Read))
		}
	}
}

func TestRouteBrokerFallsBackToMasterThenToAny(t *testing.T) {
	r := newRoute("T", twoBrokers("", 6, 6))
	for _, tt := range []struct {
		name      string
		id, found int64
		addr      string
	}{
		{"a", 1, 1, "10.0.0.2:10911"},
		{"a", 7, 0, "10.0.0.1:10911"},
		{"b", 0, 2, "10.0.0.3:10911"},
	} {
		addr, found, ok := r.Broker(tt.name, tt.id)
		if !ok || addr != tt.addr || found != tt.found {
			t.Errorf("%s %d: %s, %d, %v", tt.name, tt.id, addr, found, ok)
		}
	}
	if _, _, ok := r.Broker("c", 0); ok {
		t.Error("found an unknown broker")
	}
}

func TestUnchangedRouteStaysTheSamePointer(t *testing.T) {
	table := newRouteTable()
	first, changed := table.put(newRoute("T", twoBrokers("", 6, 6)))
	if !changed {
		t.Error("the first route is no change")
	}
	if again, changed := table.put(newRoute("T", twoBrokers("", 6, 6))); changed || again != first {
		t.Error("an equal route replaced the old one")
	}
	moved := twoBrokers("", 6, 6)
	moved.BrokerDatas[0].BrokerAddrs[0] = "10.0.0.9:10911"
	if r, changed := table.put(newRoute("T", moved)); !changed || r == first {
		t.Error("a new address went unnoticed")
	}
	if addrs := table.addresses(false); len(addrs) != 1 || addrs[0] != "10.0.0.9:10911" {
		t.Errorf("masters %v", addrs)
	}
	if addrs := table.addresses(true); len(addrs) != 3 {
		t.Errorf("all %v", addrs)
	}
}

func TestProvisionalRoute(t *testing.T) {
	lender := newRoute(DefaultTopic, twoBrokers("", 7, 7))
	p := lender.provisional("new", 1)
	if !p.Provisional || names(p.Write) != "a0 " || p.Write[0].Topic != "new" || lender.Write[0].Topic != DefaultTopic {
		t.Errorf("%+v", p)
	}
}

func TestChooseIP(t *testing.T) {
	cidr := func(s string) net.Addr {
		ip, n, err := net.ParseCIDR(s)
		if err != nil {
			t.Fatal(err)
		}
		return &net.IPNet{IP: ip, Mask: n.Mask}
	}
	for _, tt := range []struct {
		addrs []net.Addr
		want  string
	}{
		{nil, "127.0.0.1"},
		{[]net.Addr{cidr("127.0.0.1/8"), cidr("fe80::1/64")}, "127.0.0.1"},
		{[]net.Addr{cidr("2001:db8::1/64"), cidr("192.0.2.7/24")}, "192.0.2.7"},
		{[]net.Addr{cidr("::1/128"), cidr("2001:db8::1/64")}, "2001:db8::1"},
	} {
		if got := chooseIP(tt.addrs).String(); got != tt.want {
			t.Errorf("%v: %s, want %s", tt.addrs, got, tt.want)
		}
	}
}
