package broker

import (
	"slices"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

// TestRestartKeepsEverything: messages, topics, groups and offsets are there
// again after a proper stop, and after a crash; and a second start of the same
// changes nothing more.
func TestRestartKeepsEverything(t *testing.T) {
	dir := t.TempDir()
	e := start(t, dir, nil)
	h := topicHeader("t", 3)
	h.Attributes = "+message.type=FIFO"
	e.must(protocol.UpdateAndCreateTopic, h, nil)
	e.createGroup("g")
	for range 4 {
		e.mustSend("t", 1, "TAGS\x01a\x02", "x")
		e.mustSend("auto", 0, "", "y")
	}
	e.want(e.commit("t", "g", 1, 2), protocol.Success)
	if err := e.broker.offsets.Save(); err != nil {
		t.Fatal(err)
	}
	crashed := e.crashCopy(t)
	// What is committed last is kept by a proper stop.
	e.want(e.commit("t", "g", 2, 1), protocol.Success)
	e.stop()
	for name, at := range map[string]string{"restart": dir, "crash": crashed} {
		t.Run(name, func(t *testing.T) {
			for range 2 {
				again := start(t, at, nil)
				checkKept(t, again, name == "restart")
				again.stop()
			}
		})
	}
}

func checkKept(t *testing.T, e *engine, stopped bool) {
	t.Helper()
	var config protocol.TopicConfig
	e.unmarshal(e.must(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: "t"}, nil), &config)
	if config.ReadQueueNums != 3 || config.Attributes["message.type"] != "FIFO" {
		t.Errorf("topic: %+v", config)
	}
	e.must(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: "auto"}, nil)
	e.must(protocol.GetSubscriptionGroupConfig, &protocol.GetSubscriptionGroupConfigRequest{Group: "g"}, nil)
	if got, ok := e.committed("t", "g", 1, protocol.Some(false)); !ok || got != 2 {
		t.Errorf("offset: %d %v, want 2", got, ok)
	}
	if got, ok := e.committed("t", "g", 2, protocol.Some(false)); stopped && (!ok || got != 1) {
		t.Errorf("offset of the last commit: %d %v, want 1", got, ok)
	}
	for topic, queue := range map[string]int32{"t": 1, "auto": 0} {
		e.awaitMax(topic, queue, 4)
		for i, m := range e.pullAll(topic, queue, 0) {
			if m.QueueOffset != int64(i) {
				t.Errorf("%s: message %d has offset %d", topic, i, m.QueueOffset)
			}
		}
		if got := e.offset(protocol.GetMaxOffset, topic, queue); got != 4 {
			t.Errorf("%s ends at %d, want 4", topic, got)
		}
	}
	got := bodies(e.pull(pullHeader("t", 1, 0, "a", 0)).messages)
	if !slices.Equal(got, []string{"x", "x", "x", "x"}) {
		t.Errorf("by tag: %q", got)
	}
}

// TestStopKeepsOffsetsCommittedUntilTheEnd: as long as commits are answered they
// are kept, also by a broker that has begun to stop.
func TestStopKeepsOffsetsCommittedUntilTheEnd(t *testing.T) {
	dir := t.TempDir()
	e := start(t, dir, nil)
	e.createTopic("t", 1)
	e.createGroup("g")
	answered := make(chan int64, 1)
	started := make(chan struct{})
	go func() {
		var last int64
		for {
			answer, err := e.client.Call(t.Context(), e.addr, protocol.NewRequest(protocol.UpdateConsumerOffset,
				&protocol.UpdateConsumerOffsetRequest{ConsumerGroup: "g", Topic: "t", CommitOffset: last + 1}, nil))
			if err != nil || answer.Err() != nil {
				break
			}
			if last++; last == 100 {
				close(started)
			}
		}
		answered <- last
	}()
	receive(t, started, "100th answer")
	e.stop()
	want := receive(t, answered, "end of the commits")
	got, ok := start(t, dir, nil).committed("t", "g", 0, protocol.Some(false))
	// The last commit may have been made without its answer getting through.
	if !ok || got < want || got > want+1 {
		t.Errorf("committed %d %v, the last answer was for %d", got, ok, want)
	}
}
