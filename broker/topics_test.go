package broker

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

// TestDeletedTopicStaysDeleted (faults F27 and F28): neither a restart nor a
// crash brings it back, and a topic made again under the name begins at 0 with
// no messages and no offsets of the old one.
func TestDeletedTopicStaysDeleted(t *testing.T) {
	dir := t.TempDir()
	e := start(t, dir, nil)
	e.createTopic("gone", 2)
	e.createTopic("kept", 1)
	e.createGroup("g")
	for range 5 {
		e.mustSend("gone", 0, "", "old")
		e.mustSend("kept", 0, "", "kept")
	}
	e.awaitMax("gone", 0, 5)
	e.want(e.commit("gone", "g", 0, 4), protocol.Success)
	e.want(e.commit("kept", "g", 0, 3), protocol.Success)
	e.must(protocol.DeleteTopicInBroker, &protocol.TopicRequest{Topic: "gone"}, nil)
	crashed := e.crashCopy(t)
	checkGone(t, e)
	e.stop()
	for name, at := range map[string]string{"restart": dir, "crash": crashed} {
		t.Run(name, func(t *testing.T) {
			again := start(t, at, nil)
			checkGone(t, again)
			again.createTopic("gone", 2)
			if got, ok := again.committed("gone", "g", 0, protocol.Some(false)); ok {
				t.Errorf("the new topic has the old offset %d", got)
			}
			for _, code := range []protocol.RequestCode{protocol.GetMinOffset, protocol.GetMaxOffset} {
				if got := again.offset(code, "gone", 0); got != 0 {
					t.Errorf("%s of the new topic is %d", code, got)
				}
			}
			if sent := again.mustSend("gone", 0, "", "new"); sent.QueueOffset != 0 {
				t.Errorf("the first message has offset %d", sent.QueueOffset)
			}
			again.awaitMax("gone", 0, 1)
			if got := bodies(again.pullAll("gone", 0, 0)); !slices.Equal(got, []string{"new"}) {
				t.Errorf("the new topic holds %q", got)
			}
			again.stop()
			if got := bodies(start(t, at, nil).pullAll("gone", 0, 0)); !slices.Equal(got, []string{"new"}) {
				t.Errorf("after another restart it holds %q", got)
			}
		})
	}
}

// checkGone says that nothing of topic "gone" is left, and all of "kept".
func checkGone(t *testing.T, e *engine) {
	t.Helper()
	e.want(e.call(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: "gone"}, nil), protocol.TopicNotExist)
	e.want(e.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: "gone"}, nil), protocol.TopicNotExist)
	if got := e.pull(pullHeader("gone", 0, 0, "*", 0)); got.code != protocol.TopicNotExist {
		t.Errorf("pull of the deleted topic: code %d", got.code)
	}
	var table protocol.TopicConfigSerializeWrapper
	e.unmarshal(e.must(protocol.GetAllTopicConfig, nil, nil), &table)
	if _, ok := table.TopicConfigTable["gone"]; ok {
		t.Error("the deleted topic is in the table")
	}
	text, err := os.ReadFile(filepath.Join(e.dir, "config", "consumerOffset.json"))
	if err != nil || strings.Contains(string(text), "gone@") {
		t.Errorf("the offset file: %s (%v)", text, err)
	}
	if _, err := os.Stat(filepath.Join(e.dir, "consumequeue", "gone")); !os.IsNotExist(err) {
		t.Errorf("the queue files are there: %v", err)
	}
	if got := len(e.pullAll("kept", 0, 0)); got != 5 {
		t.Errorf("the other topic holds %d messages, want 5", got)
	}
	if got, ok := e.committed("kept", "g", 0, protocol.Some(false)); ok && got != 3 {
		t.Errorf("the other topic's offset is %d, want 3", got)
	}
}

// TestDeletedGroupForgetsItsOffsets (fault F28): when asked to.
func TestDeletedGroupForgetsItsOffsets(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	for _, clean := range []bool{false, true} {
		e.createGroup("g")
		e.createGroup("other")
		e.want(e.commit("t", "g", 0, 4), protocol.Success)
		e.want(e.commit("t", "other", 0, 5), protocol.Success)
		e.must(protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequest{GroupName: "g", CleanOffset: clean}, nil)
		e.want(e.call(protocol.GetSubscriptionGroupConfig, &protocol.GetSubscriptionGroupConfigRequest{Group: "g"}, nil), protocol.SubscriptionGroupNotExist)
		if _, ok := e.committed("t", "g", 0, protocol.Some(false)); ok == clean {
			t.Errorf("clean %v: offset is there %v", clean, ok)
		}
		if got, ok := e.committed("t", "other", 0, protocol.Some(false)); !ok || got != 5 {
			t.Errorf("clean %v: the other group's offset is %d %v", clean, got, ok)
		}
	}
	e.want(e.commit("t", "g", 0, 4), protocol.SubscriptionGroupNotExist)
}

// TestTopicSettings: what is created is listed, changes move the version, and
// what already is as asked does not.
func TestTopicSettings(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	list := func() protocol.TopicConfigSerializeWrapper {
		var table protocol.TopicConfigSerializeWrapper
		answer := e.must(protocol.GetAllTopicConfig, &protocol.GetAllTopicConfigRequest{TopicSeq: protocol.Some[int32](0)}, nil)
		e.unmarshal(answer, &table)
		var h protocol.GetAllTopicConfigResponse
		e.decode(answer, &h)
		if int(h.TotalTopicNum.Or(-1)) != len(table.TopicConfigTable) {
			t.Errorf("total is %v, the table has %d", h.TotalTopicNum, len(table.TopicConfigTable))
		}
		return table
	}
	h := topicHeader("t", 3)
	h.Attributes = "+message.type=FIFO"
	e.must(protocol.UpdateAndCreateTopic, h, nil)
	first := list()
	if got := first.TopicConfigTable["t"]; got.ReadQueueNums != 3 || got.Attributes["message.type"] != "FIFO" {
		t.Errorf("listed as %+v", got)
	}
	var config protocol.TopicConfig
	e.unmarshal(e.must(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: "t"}, nil), &config)
	if config.Attributes["message.type"] != "FIFO" || config.TopicName != "t" {
		t.Errorf("asked for alone: %+v", config)
	}
	e.must(protocol.UpdateAndCreateTopic, topicHeader("t", 3), nil)
	if same := list(); same.DataVersion != first.DataVersion {
		t.Errorf("version %+v became %+v though nothing changed", first.DataVersion, same.DataVersion)
	}
	e.must(protocol.UpdateAndCreateTopic, topicHeader("t", 4), nil)
	if next := list(); next.DataVersion.Compare(first.DataVersion) <= 0 || next.TopicConfigTable["t"].ReadQueueNums != 4 {
		t.Errorf("version %+v became %+v, topic %+v", first.DataVersion, next.DataVersion, next.TopicConfigTable["t"])
	}
	for name, change := range map[string]func(h *protocol.CreateTopicRequest){
		"no queues":       func(h *protocol.CreateTopicRequest) { h.ReadQueueNums = 0 },
		"many queues":     func(h *protocol.CreateTopicRequest) { h.WriteQueueNums = 1 << 20 },
		"no perm":         func(h *protocol.CreateTopicRequest) { h.Perm = 0 },
		"filter type":     func(h *protocol.CreateTopicRequest) { h.TopicFilterType = "SOME_TAG" },
		"attribute":       func(h *protocol.CreateTopicRequest) { h.Attributes = "+color=red" },
		"attribute value": func(h *protocol.CreateTopicRequest) { h.Attributes = "+message.type=RED" },
		"batch queues":    func(h *protocol.CreateTopicRequest) { h.Attributes = "+queue.type=BatchCQ" },
	} {
		h := topicHeader("bad", 1)
		change(h)
		if got := e.call(protocol.UpdateAndCreateTopic, h, nil); got.ResponseCode() != protocol.InvalidParameter {
			t.Errorf("%s: code is %d %q", name, got.Code, got.Remark)
		}
	}
	// Apache's clients and tools want routes to these before anything else.
	for _, name := range []string{"DefaultCluster", "broker-a", "TBW102"} {
		if _, ok := first.TopicConfigTable[name]; !ok {
			t.Errorf("topic %s is not there from the start", name)
		}
	}
	var system protocol.TopicList
	e.unmarshal(e.must(protocol.GetSystemTopicListFromBroker, nil, nil), &system)
	if !slices.Contains(system.TopicList, "TBW102") || slices.Contains(system.TopicList, "t") || system.BrokerAddr != e.addr {
		t.Errorf("system topics: %+v", system)
	}
}

// TestGroupSettings: 200, 201 and 352 agree.
func TestGroupSettings(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	config := protocol.NewSubscriptionGroupConfig("g")
	config.RetryMaxTimes, config.ConsumeMessageOrderly = 3, true
	body, err := protocol.Marshal(config)
	if err != nil {
		t.Fatal(err)
	}
	e.must(protocol.UpdateAndCreateSubscriptionGroup, nil, body)
	// Keys that are absent have Apache's defaults.
	e.must(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte(`{"groupName":"h"}`))
	answer := e.must(protocol.GetAllSubscriptionGroupConfig, nil, nil)
	var table protocol.SubscriptionGroupWrapper
	e.unmarshal(answer, &table)
	var total protocol.GetAllSubscriptionGroupResponse
	e.decode(answer, &total)
	if int(total.TotalGroupNum.Or(-1)) != len(table.SubscriptionGroupTable) {
		t.Errorf("total is %v, the table has %d", total.TotalGroupNum, len(table.SubscriptionGroupTable))
	}
	for name, want := range map[string]int32{"g": 3, "h": 16} {
		var alone protocol.SubscriptionGroupConfig
		e.unmarshal(e.must(protocol.GetSubscriptionGroupConfig, &protocol.GetSubscriptionGroupConfigRequest{Group: name}, nil), &alone)
		listed := table.SubscriptionGroupTable[name]
		if alone.RetryMaxTimes != want || listed.RetryMaxTimes != want || !alone.ConsumeEnable || alone.GroupName != name {
			t.Errorf("%s: alone %+v, listed %+v", name, alone, listed)
		}
	}
	e.want(e.call(protocol.UpdateAndCreateSubscriptionGroup, nil, []byte("not JSON")), protocol.InvalidParameter)
	e.want(e.call(protocol.UpdateAndCreateSubscriptionGroup, nil, nil), protocol.InvalidParameter)
}

// TestQueriesChangeNothing (fault F29): the requests that only ask, asked oddly,
// leave every table as it was.
func TestQueriesChangeNothing(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	e.createGroup("g1")
	e.createGroup("g2")
	e.mustSend("t", 0, "", "x")
	e.want(e.commit("t", "g1", 0, 1), protocol.Success)
	e.want(e.commit("t", "g2", 0, 0), protocol.Success)
	if err := e.broker.offsets.Save(); err != nil {
		t.Fatal(err)
	}
	before := configFiles(t, e.dir)
	codes := []protocol.RequestCode{
		protocol.QueryConsumerOffset, protocol.GetMaxOffset, protocol.GetMinOffset, protocol.SearchOffsetByTimestamp,
		protocol.GetEarliestMsgStoreTime, protocol.GetConsumerListByGroup, protocol.GetAllTopicConfig, protocol.GetTopicConfig,
		protocol.GetSystemTopicListFromBroker, protocol.GetAllSubscriptionGroupConfig, protocol.GetSubscriptionGroupConfig,
		protocol.GetBrokerRuntimeInfo, protocol.GetBrokerConfig,
	}
	for _, code := range codes {
		for _, value := range []string{"", "t", "g1", "-1", "0", "9223372036854775807", "99999999999999999999", "true", "../x", "*", "t@g1"} {
			req := protocol.NewRequest(code, nil, []byte(value))
			for _, key := range []string{
				"topic", "group", "consumerGroup", "groupName", "filterGroups", "compareGroup", "queueId", "timestamp",
				"boundaryType", "setZeroIfNotFound", "committed", "topicSeq", "groupSeq", "maxTopicNum", "dataVersion",
			} {
				req.AddField(key, value)
			}
			e.ask(req)
		}
	}
	for range 1000 {
		e.must(protocol.GetBrokerConfig, nil, nil)
	}
	if err := e.broker.offsets.Save(); err != nil {
		t.Fatal(err)
	}
	after := configFiles(t, e.dir)
	if len(before) != len(after) {
		t.Errorf("%d files became %d", len(before), len(after))
	}
	for path, text := range before {
		if after[path] != text {
			t.Errorf("%s has changed", filepath.Base(path))
		}
	}
	for group, want := range map[string]int64{"g1": 1, "g2": 0} {
		if got, ok := e.committed("t", group, 0, protocol.Some(false)); !ok || got != want {
			t.Errorf("%s: %d %v, want %d", group, got, ok, want)
		}
	}
}
