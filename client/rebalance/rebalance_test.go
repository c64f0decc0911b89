package rebalance

import (
	"fmt"
	"slices"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

func queuesOf(n int) []protocol.MessageQueue {
	var queues []protocol.MessageQueue
	for i := range n {
		queues = append(queues, protocol.MessageQueue{Topic: "T", BrokerName: "broker-a", QueueID: int32(i)})
	}
	return queues
}

func ids(queues []protocol.MessageQueue) []int32 {
	var list []int32
	for _, q := range queues {
		list = append(list, q.QueueID)
	}
	return list
}

func TestAverage(t *testing.T) {
	three := []string{"C0", "C1", "C2"}
	for _, c := range []struct {
		name    string
		self    string
		members []string
		queues  int
		want    []int32
	}{
		{"8 over 3, first", "C0", three, 8, []int32{0, 1, 2}},
		{"8 over 3, second", "C1", three, 8, []int32{3, 4, 5}},
		{"8 over 3, last", "C2", three, 8, []int32{6, 7}},
		{"fewer queues than members, first", "C0", three, 2, []int32{0}},
		{"fewer queues than members, second", "C1", three, 2, []int32{1}},
		{"fewer queues than members, last", "C2", three, 2, nil},
		{"even", "C1", three, 6, []int32{2, 3}},
		{"as many as members", "C2", three, 3, []int32{2}},
		{"alone", "C0", []string{"C0"}, 4, []int32{0, 1, 2, 3}},
		{"not a member", "C9", three, 8, nil},
		{"no members", "C0", nil, 8, nil},
		{"no queues", "C0", three, 0, nil},
		{"members in any order and twice", "C1", []string{"C2", "C0", "C2", "C1", "C1"}, 8, []int32{3, 4, 5}},
	} {
		t.Run(c.name, func(t *testing.T) {
			if got := ids(Average{}.Allocate(c.self, c.members, queuesOf(c.queues))); !slices.Equal(got, c.want) {
				t.Errorf("got %v, want %v", got, c.want)
			}
		})
	}
}

func TestAverageCoversEveryQueueOnce(t *testing.T) {
	for q := range 20 {
		for c := 1; c < 12; c++ {
			var members []string
			for i := range c {
				members = append(members, fmt.Sprintf("10.0.0.1@%02d", i))
			}
			var all []int32
			for _, m := range members {
				all = append(all, ids(Average{}.Allocate(m, members, queuesOf(q)))...)
			}
			if want := ids(queuesOf(q)); !slices.Equal(all, want) {
				t.Fatalf("%d queues over %d members: %v", q, c, all)
			}
		}
	}
}

func TestAverageSortsByBrokerThenQueue(t *testing.T) {
	mixed := []protocol.MessageQueue{
		{Topic: "T", BrokerName: "b", QueueID: 0}, {Topic: "T", BrokerName: "a", QueueID: 10},
		{Topic: "T", BrokerName: "a", QueueID: 2}, {Topic: "T", BrokerName: "b", QueueID: 1},
	}
	before := slices.Clone(mixed)
	got := Average{}.Allocate("x", []string{"x", "y"}, mixed)
	want := []protocol.MessageQueue{{Topic: "T", BrokerName: "a", QueueID: 2}, {Topic: "T", BrokerName: "a", QueueID: 10}}
	if !slices.Equal(got, want) {
		t.Errorf("got %v, want %v", got, want)
	}
	if !slices.Equal(mixed, before) {
		t.Error("the caller's list was changed")
	}
}
