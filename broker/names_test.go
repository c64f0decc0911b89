package broker

import (
	"io/fs"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// illegalNames would leave the store's directory, or are none at all.
var illegalNames = []string{
	"", " ", ".", "..", "../x", "../../../fuzz", "/etc/x", "a/b", `a\b`, "a\x00b", "a b", "a.b", "a+b", "a:b", "a\nb", "тема", "\xff",
	"%RETRY%../x", "%DLQ%a/b", strings.Repeat("n", 128), strings.Repeat("n", 4000), "%RETRY%" + strings.Repeat("n", 250),
}

// entry is a way for a name into the broker.
type entry struct {
	code protocol.RequestCode
	ask  func(p *peer, name string) *protocol.Command
}

// topicEntries and groupEntries are all requests that name a topic or a group.
var (
	topicEntries = map[string]entry{
		"send V1": {protocol.SendMessage, func(p *peer, name string) *protocol.Command {
			h := protocol.SendMessageRequest(*sendHeader(name, 0, ""))
			return p.call(protocol.SendMessage, &h, []byte("x"))
		}},
		"send V2": {protocol.SendMessageV2, func(p *peer, name string) *protocol.Command { return p.send(name, 0, "", "x") }},
		"send batch": {protocol.SendBatchMessage, func(p *peer, name string) *protocol.Command {
			return p.sendBatch(name, 0, batchOf(p.t, "x"))
		}},
		"template": {protocol.SendMessageV2, func(p *peer, name string) *protocol.Command {
			h := sendHeader("made-from-template", 0, "")
			h.DefaultTopic = []byte(name)
			return p.call(protocol.SendMessageV2, h, []byte("x"))
		}},
		"create": {protocol.UpdateAndCreateTopic, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.UpdateAndCreateTopic, topicHeader(name, 1), nil)
		}},
		"delete": {protocol.DeleteTopicInBroker, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.DeleteTopicInBroker, &protocol.TopicRequest{Topic: name}, nil)
		}},
		"config": {protocol.GetTopicConfig, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: name}, nil)
		}},
		"pull":      pullEntry(protocol.PullMessage),
		"lite pull": pullEntry(protocol.LitePullMessage),
		"commit":    {protocol.UpdateConsumerOffset, func(p *peer, name string) *protocol.Command { return p.commit(name, "good", 0, 1) }},
		"committed": {protocol.QueryConsumerOffset, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.QueryConsumerOffset, &protocol.QueryConsumerOffsetRequest{ConsumerGroup: "good", Topic: name}, nil)
		}},
		"last": {protocol.GetMaxOffset, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.GetMaxOffset, &protocol.GetMaxOffsetRequest{Topic: name}, nil)
		}},
		"first": {protocol.GetMinOffset, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.GetMinOffset, &protocol.GetMinOffsetRequest{Topic: name}, nil)
		}},
		"by time": {protocol.SearchOffsetByTimestamp, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.SearchOffsetByTimestamp, &protocol.SearchOffsetRequest{Topic: name}, nil)
		}},
		"earliest": {protocol.GetEarliestMsgStoreTime, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.GetEarliestMsgStoreTime, &protocol.GetEarliestMsgStoreTimeRequest{Topic: name}, nil)
		}},
	}
	groupEntries = map[string]entry{
		"create": {protocol.UpdateAndCreateSubscriptionGroup, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.UpdateAndCreateSubscriptionGroup, nil, groupBody(p.t, name))
		}},
		"delete": {protocol.DeleteSubscriptionGroup, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequest{GroupName: name, CleanOffset: true}, nil)
		}},
		"config": {protocol.GetSubscriptionGroupConfig, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.GetSubscriptionGroupConfig, &protocol.GetSubscriptionGroupConfigRequest{Group: name}, nil)
		}},
		"pull": {protocol.PullMessage, func(p *peer, name string) *protocol.Command {
			h := pullHeader("good", 0, 0, "*", 0)
			h.ConsumerGroup = []byte(name)
			return p.call(protocol.PullMessage, h, nil)
		}},
		"commit": {protocol.UpdateConsumerOffset, func(p *peer, name string) *protocol.Command { return p.commit("good", name, 0, 1) }},
		"members": {protocol.GetConsumerListByGroup, func(p *peer, name string) *protocol.Command {
			return p.call(protocol.GetConsumerListByGroup, &protocol.GetConsumerListByGroupRequest{ConsumerGroup: name}, nil)
		}},
		"consumer heartbeat": {protocol.Heartbeat, func(p *peer, name string) *protocol.Command {
			return p.beat(protocol.HeartbeatData{ClientID: "c", ConsumerDataSet: []protocol.ConsumerData{{GroupName: name}}})
		}},
		"producer heartbeat": {protocol.Heartbeat, func(p *peer, name string) *protocol.Command {
			return p.beat(protocol.HeartbeatData{ClientID: "c", ProducerDataSet: []protocol.ProducerData{{GroupName: name}}})
		}},
	}
)

func pullEntry(code protocol.RequestCode) entry {
	return entry{code, func(p *peer, name string) *protocol.Command {
		h := pullHeader(name, 0, 0, "*", 0)
		h.ConsumerGroup = []byte("good")
		return p.call(code, h, nil)
	}}
}

// refusals are the codes that a name may be refused with.
var refusals = []protocol.ResponseCode{
	protocol.SystemError, protocol.MessageIllegal, protocol.NoPermission, protocol.TopicNotExist,
	protocol.InvalidParameter, protocol.SubscriptionGroupNotExist, protocol.QueryNotFound,
}

// TestIllegalNamesAreRefusedEverywhere (fault F59): no request takes a name that
// is no topic or group, and none makes a file or directory of it.
func TestIllegalNamesAreRefusedEverywhere(t *testing.T) {
	outside := t.TempDir()
	dir := filepath.Join(outside, "a", "b", "store")
	e := start(t, dir, nil)
	e.createTopic("good", 1)
	e.createGroup("good")
	before := tree(t, outside)
	config := configFiles(t, dir)
	groups := append(slices.Clone(illegalNames), strings.Repeat("n", 121))
	for _, c := range []struct {
		kind    string
		entries map[string]entry
		names   []string
	}{{"topic", topicEntries, illegalNames}, {"group", groupEntries, groups}} {
		for what, entry := range c.entries {
			for _, name := range c.names {
				if answer := entry.ask(e.peer, name); !slices.Contains(refusals, answer.ResponseCode()) {
					t.Errorf("%s %s %.40q: code %d %q", c.kind, what, name, answer.Code, answer.Remark)
				}
			}
		}
	}
	if after := tree(t, outside); !slices.Equal(before, after) {
		t.Errorf("files before %q, after %q", before, after)
	}
	for path, text := range configFiles(t, dir) {
		if config[path] != text {
			t.Errorf("%s has changed", path)
		}
	}
}

// TestEveryNamedRequestIsCovered keeps the two lists above complete.
func TestEveryNamedRequestIsCovered(t *testing.T) {
	nameless := []protocol.RequestCode{
		protocol.UnregisterClient, protocol.GetAllTopicConfig, protocol.GetSystemTopicListFromBroker,
		protocol.GetAllSubscriptionGroupConfig, protocol.GetBrokerRuntimeInfo, protocol.GetBrokerConfig,
	}
	covered := map[protocol.RequestCode]bool{}
	for _, entries := range []map[string]entry{topicEntries, groupEntries} {
		for _, e := range entries {
			covered[e.code] = true
		}
	}
	for _, code := range Codes() {
		if !covered[code] && !slices.Contains(nameless, code) {
			t.Errorf("%s takes a name that no test makes illegal", code)
		}
	}
}

// tree lists everything below a directory but the log files and the ballast, which
// the store makes in its own time.
func tree(t *testing.T, dir string) []string {
	t.Helper()
	var list []string
	err := filepath.WalkDir(dir, func(path string, _ fs.DirEntry, err error) error {
		if filepath.Base(filepath.Dir(path)) != "commitlog" && filepath.Base(path) != "ballast" {
			list = append(list, path)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return list
}

// TestLongNamesAreTaken: the limits themselves are legal.
func TestLongNamesAreTaken(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	topic, group := strings.Repeat("t", 127), strings.Repeat("g", 120)
	e.mustSend(topic, 0, "", "x")
	e.heartbeat("c", group)
	retry := "%RETRY%" + strings.Repeat("r", 248)
	e.mustSend(retry, 0, "", "y")
	for name, want := range map[string]string{topic: "x", retry: "y"} {
		e.awaitMax(name, 0, 1)
		if got := bodies(e.pullAll(name, 0, 0)); len(got) != 1 || got[0] != want {
			t.Errorf("topic of %d bytes holds %q", len(name), got)
		}
	}
}

// TestForbiddenTopics (fault F60): clients do not write where only the broker
// does, and the broker's own topics are neither changed nor deleted.
func TestForbiddenTopics(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	for _, topic := range []string{
		message.TopicSchedule, message.TopicTransactionHalf, message.TopicTransactionOp, message.TopicTransactionCheckMax,
		message.TopicSelfTest, message.TopicOffsetMoved, message.TopicWheelTimer, "rmq_sys_REVIVE_LOG_DefaultCluster",
	} {
		e.want(e.send(topic, 0, "", "x"), protocol.NoPermission)
		e.want(e.sendBatch(topic, 0, batchOf(t, "x")), protocol.NoPermission)
	}
	for _, topic := range []string{message.TopicAutoCreate, message.TopicSelfTest, message.TopicSchedule, "DefaultCluster", "broker-a", message.TopicWheelTimer} {
		e.want(e.call(protocol.UpdateAndCreateTopic, topicHeader(topic, 3), nil), protocol.InvalidParameter)
		e.want(e.call(protocol.DeleteTopicInBroker, &protocol.TopicRequest{Topic: topic}, nil), protocol.InvalidParameter)
	}
	for _, group := range []string{"TOOLS_CONSUMER", "CID_RMQ_SYS_TRANS"} {
		e.want(e.call(protocol.DeleteSubscriptionGroup, &protocol.DeleteSubscriptionGroupRequest{GroupName: group}, nil), protocol.InvalidParameter)
	}
	if st := e.spool.Stats(); st.MaxOffset != st.MinOffset {
		t.Errorf("%d bytes were stored", st.MaxOffset-st.MinOffset)
	}
	// A retry topic needs no template, and no limit of retries in the request.
	e.mustSend("%RETRY%g", 0, "", "again")
}

// TestAutomaticTopics (fault F60): a topic is made in the likeness of a
// template, and no template helps when topics are not made automatically.
func TestAutomaticTopics(t *testing.T) {
	with := func(topic, template string, queues int32) *protocol.SendMessageRequestV2 {
		h := sendHeader(topic, -1, "")
		h.DefaultTopic, h.DefaultTopicQueueNums = []byte(template), queues
		return h
	}
	on := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.DefaultQueues = 6 })
	for topic, c := range map[string]struct{ asked, want int32 }{"few": {2, 2}, "many": {100, 6}, "unsaid": {0, 4}} {
		on.must(protocol.SendMessageV2, with(topic, message.TopicAutoCreate, c.asked), []byte("x"))
		var config protocol.TopicConfig
		on.unmarshal(on.must(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: topic}, nil), &config)
		if config.WriteQueueNums != c.want || config.ReadQueueNums != c.want || config.Perm != 6 {
			t.Errorf("%s: %+v, want %d queues and perm 6", topic, config, c.want)
		}
	}
	on.want(on.call(protocol.SendMessageV2, with("t", "no-template", 4), nil), protocol.TopicNotExist)
	on.want(on.call(protocol.SendMessageV2, with("t", "few", 4), nil), protocol.TopicNotExist)

	off := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.AutoCreateTopics = false })
	for _, template := range []string{message.TopicAutoCreate, "DefaultCluster", "broker-a", message.TopicSelfTest, ""} {
		off.want(off.call(protocol.SendMessageV2, with("t", template, 4), nil), protocol.TopicNotExist)
	}
	off.want(off.call(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: message.TopicAutoCreate}, nil), protocol.TopicNotExist)
	off.mustSend("%RETRY%g", 0, "", "again")
}

// TestSendChecks: who may write where, and to which queue.
func TestSendChecks(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	h := topicHeader("t", 2)
	h.ReadQueueNums = 3
	e.must(protocol.UpdateAndCreateTopic, h, nil)
	readOnly := topicHeader("r", 1)
	readOnly.Perm = 4
	e.must(protocol.UpdateAndCreateTopic, readOnly, nil)
	e.want(e.send("r", 0, "", "x"), protocol.NoPermission)
	e.want(e.send("t", 3, "", "x"), protocol.InvalidParameter)
	for queue, want := range map[int32][]int32{0: {0}, 2: {2}, -1: {0, 1}, -7: {0, 1}} {
		if got := e.mustSend("t", queue, "", "x"); !slices.Contains(want, got.QueueID) {
			t.Errorf("queue %d: stored in %d, want one of %d", queue, got.QueueID, want)
		}
	}
}

// TestUnsupportedMessagesAreRefused: nothing here waits for a delay or for the
// end of a transaction, so such messages are not taken.
func TestUnsupportedMessagesAreRefused(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	for props, want := range map[string]protocol.ResponseCode{
		"DELAY\x013\x02": protocol.MessageIllegal, "TIMER_DELAY_SEC\x0110\x02": protocol.MessageIllegal,
		"TIMER_DELAY_MS\x0110\x02": protocol.MessageIllegal, "TIMER_DELIVER_MS\x011\x02": protocol.MessageIllegal,
		"TRAN_MSG\x01true\x02": protocol.NoPermission,
	} {
		e.want(e.send("t", 0, props, "x"), want)
	}
	for flag, want := range map[int32]protocol.ResponseCode{4: protocol.NoPermission, 12: protocol.NoPermission, 8: protocol.Success} {
		h := sendHeader("t", 0, "")
		h.SysFlag = flag
		e.want(e.call(protocol.SendMessageV2, h, []byte("x")), want)
	}
	e.mustSend("t", 0, "DELAY\x010\x02TRAN_MSG\x01false\x02", "x")
	e.awaitMax("t", 0, 2)
	for _, code := range []protocol.RequestCode{protocol.EndTransaction, protocol.ConsumerSendMsgBack, protocol.QueryMessage, 99999} {
		answer := e.call(code, nil, nil)
		if answer.ResponseCode() != protocol.RequestCodeNotSupported || answer.Remark == "" {
			t.Errorf("%s: code is %d %q", code, answer.Code, answer.Remark)
		}
	}
	forward := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.Delayed = DelayForward })
	forward.mustSend("t", 0, "DELAY\x013\x02", "x")
}
