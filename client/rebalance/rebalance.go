// Package rebalance decides which member of a consumer group reads which queues.
// Every member computes the same answer from the same lists, so nobody has to
// coordinate; all functions are pure.
package rebalance

import (
	"cmp"
	"slices"

	"github.com/sluicemq/sluice/protocol"
)

// A Strategy divides the queues of one topic among the members of a group.
// Members of one group must all use the same one.
type Strategy interface {
	// Name is the strategy's name on the wire, such as "AVG".
	Name() string

	// Allocate returns the queues of self. Order and doubles of the lists do not
	// matter, and neither list is changed. A self that is not among the members
	// gets nothing.
	Allocate(self string, members []string, queues []protocol.MessageQueue) []protocol.MessageQueue
}

// Average gives every member a run of neighbouring queues; the run lengths
// differ by one at most, the first members having the longer ones. It is the
// default of RocketMQ clients ("AVG").
type Average struct{}

// Name is "AVG".
func (Average) Name() string { return "AVG" }

// Allocate returns self's run: with q queues and c members, the first q mod c
// members get ⌊q/c⌋+1 queues, the others ⌊q/c⌋.
func (Average) Allocate(self string, members []string, queues []protocol.MessageQueue) []protocol.MessageQueue {
	index, count := position(self, members)
	if index < 0 {
		return nil
	}
	sorted := Sorted(queues)
	size, longer := len(sorted)/count, len(sorted)%count
	start := index*size + min(index, longer)
	if index < longer {
		size++
	}
	return sorted[start : start+size]
}

// Sorted returns the queues by topic, broker name and queue id, each once: the
// order that all strategies count in.
func Sorted(queues []protocol.MessageQueue) []protocol.MessageQueue {
	sorted := slices.Clone(queues)
	slices.SortFunc(sorted, CompareQueues)
	return slices.Compact(sorted)
}

// CompareQueues orders queues by topic, broker name and queue id.
func CompareQueues(a, b protocol.MessageQueue) int {
	return cmp.Or(
		cmp.Compare(a.Topic, b.Topic),
		cmp.Compare(a.BrokerName, b.BrokerName),
		cmp.Compare(a.QueueID, b.QueueID),
	)
}

// position is the index of self among the sorted members, -1 when it is not
// there, and the number of members.
func position(self string, members []string) (index, count int) {
	sorted := slices.Clone(members)
	slices.Sort(sorted)
	sorted = slices.Compact(sorted)
	index, found := slices.BinarySearch(sorted, self)
	if !found {
		return -1, len(sorted)
	}
	return index, len(sorted)
}
