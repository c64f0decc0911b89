package broker

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// rollOff sends to queue 0 of a topic until retention has deleted the first
// messages, and returns the range that is left. The store must have a limit.
func rollOff(e *engine, topic string) (first, last int64) {
	e.t.Helper()
	body := string(filled(8<<10, "old"))
	for deadline := time.Now().Add(patience); ; {
		e.mustSend(topic, 0, "", body)
		last++
		e.awaitMax(topic, 0, last)
		if first = e.offset(protocol.GetMinOffset, topic, 0); first > 1 {
			return first, last
		}
		if time.Now().After(deadline) {
			e.t.Fatalf("after %d messages of %d bytes the queue still begins at %d", last, len(body), first)
		}
	}
}

// limited gives a store room for a few small segments only.
func limited(_ *Options, so *spool.Options) {
	so.SegmentBytes, so.MaxBytes = 128<<10, 512<<10
}

// TestPullOffsets (fault F45): each offset outside a queue's range has its
// answer, and following it gets a consumer going in two pulls at most. It makes
// no difference whether the consumer would wait.
func TestPullOffsets(t *testing.T) {
	e := start(t, t.TempDir(), limited)
	e.createTopic("t", 1)
	e.createTopic("empty", 1)
	first, last := rollOff(e, "t")
	for _, c := range []struct {
		topic  string
		offset int64
		code   protocol.ResponseCode
		next   int64
	}{
		{"t", last, protocol.PullNotFound, last},
		{"t", last + 1, protocol.PullOffsetMoved, last},
		{"t", last + 1000, protocol.PullOffsetMoved, last},
		{"t", first - 1, protocol.PullOffsetMoved, first},
		{"t", 0, protocol.PullOffsetMoved, first},
		{"t", -1, protocol.PullOffsetMoved, first},
		{"empty", 5, protocol.PullOffsetMoved, 0},
		{"empty", -1, protocol.PullOffsetMoved, 0},
		{"empty", 0, protocol.PullNotFound, 0},
	} {
		for _, hold := range []time.Duration{0, time.Millisecond, time.Hour} {
			if hold == time.Hour && c.code == protocol.PullNotFound {
				continue // that one is held
			}
			got := e.pull(pullHeader(c.topic, 0, c.offset, "*", hold))
			if got.code != c.code || got.header.NextBeginOffset != c.next {
				t.Errorf("%s at %d, hold %v: code %d, next %d; want %d, %d",
					c.topic, c.offset, hold, got.code, got.header.NextBeginOffset, c.code, c.next)
			}
			if c.topic == "t" && (got.header.MinOffset != first || got.header.MaxOffset != last) {
				t.Errorf("%s at %d: range is %d to %d, want %d to %d", c.topic, c.offset,
					got.header.MinOffset, got.header.MaxOffset, first, last)
			}
			if c.code == protocol.PullOffsetMoved && c.topic == "t" && c.offset < first {
				if next := e.pull(pullHeader(c.topic, 0, got.header.NextBeginOffset, "*", 0)); len(next.messages) == 0 {
					t.Errorf("%s at %d: the offset that the answer gives finds nothing", c.topic, c.offset)
				}
			}
		}
	}
}

// TestPullChecks: what a pull names must exist and be readable; each reason has
// its code.
func TestPullChecks(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 2)
	writeOnly := topicHeader("w", 1)
	writeOnly.Perm = 2
	e.must(protocol.UpdateAndCreateTopic, writeOnly, nil)
	shut := protocol.NewSubscriptionGroupConfig("shut")
	shut.ConsumeEnable = false
	body, err := protocol.Marshal(shut)
	if err != nil {
		t.Fatal(err)
	}
	e.must(protocol.UpdateAndCreateSubscriptionGroup, nil, body)
	for name, c := range map[string]struct {
		change func(h *protocol.PullMessageRequest)
		code   protocol.ResponseCode
	}{
		"no such topic":  {func(h *protocol.PullMessageRequest) { h.Topic = []byte("none") }, protocol.TopicNotExist},
		"write only":     {func(h *protocol.PullMessageRequest) { h.Topic = []byte("w") }, protocol.NoPermission},
		"queue too high": {func(h *protocol.PullMessageRequest) { h.QueueID = 2 }, protocol.InvalidParameter},
		"queue negative": {func(h *protocol.PullMessageRequest) { h.QueueID = -1 }, protocol.InvalidParameter},
		"group shut":     {func(h *protocol.PullMessageRequest) { h.ConsumerGroup = []byte("shut") }, protocol.NoPermission},
		"SQL":            {func(h *protocol.PullMessageRequest) { h.ExpressionType = []byte("SQL92") }, protocol.SystemError},
		"no consumer":    {func(h *protocol.PullMessageRequest) { h.SysFlag = 0 }, protocol.SubscriptionNotExist},
	} {
		h := pullHeader("t", 0, 0, "*", time.Hour)
		c.change(h)
		if got := e.pull(h); got.code != c.code {
			t.Errorf("%s: code is %d, want %d", name, got.code, c.code)
		}
	}
}

// TestHeldPullIsWokenByItsMessage (fault F48): a consumer that waits gets a new
// message when it comes, not at the next look of some timer.
func TestHeldPullIsWokenByItsMessage(t *testing.T) {
	const rounds = 41
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	sender := e.join(t)
	var late []time.Duration
	for i := range int64(rounds) {
		held := e.later(protocol.PullMessage, pullHeader("t", 0, i, "*", time.Hour), nil)
		e.offset(protocol.GetMaxOffset, "t", 0) // same connection: the pull has been read
		sender.mustSend("t", 0, "", fmt.Sprint(i))
		sent := time.Now()
		got := e.decodePull(e.await(held))
		late = append(late, time.Since(sent))
		if len(got.messages) != 1 || string(got.messages[0].Body) != fmt.Sprint(i) || got.header.NextBeginOffset != i+1 {
			t.Fatalf("round %d: code %d, %q", i, got.code, bodies(got.messages))
		}
	}
	slices.Sort(late)
	if median := late[rounds/2]; median > 50*time.Millisecond {
		t.Errorf("the median message was delivered %v after its send was answered", median)
	}
}

// TestMessageBetweenReadAndWait (fault F48): a message that lands while a pull
// decides to wait is not missed.
func TestMessageBetweenReadAndWait(t *testing.T) {
	e := start(t, t.TempDir(), func(_ *Options, so *spool.Options) { so.Flush = spool.FlushAsync })
	e.createTopic("t", 1)
	sender := e.join(t)
	for i := range int64(300) {
		sent := sender.later(protocol.SendMessageV2, sendHeader("t", 0, ""), []byte("x"))
		// The hold is longer than a call may take: a missed message fails the test.
		got := e.pull(pullHeader("t", 0, i, "*", time.Hour))
		if len(got.messages) != 1 {
			t.Fatalf("round %d: code %d, %d messages", i, got.code, len(got.messages))
		}
		sender.await(sent)
	}
}

// TestHeldPullTimesOut (fault F48): the answer to a wait in vain says where to
// go on, past what did not match.
func TestHeldPullTimesOut(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	got := e.pull(pullHeader("t", 0, 0, "*", 10*time.Millisecond))
	if got.code != protocol.PullNotFound || got.header.NextBeginOffset != 0 {
		t.Errorf("empty queue: code %d, next %d", got.code, got.header.NextBeginOffset)
	}
	for range 3 {
		e.mustSend("t", 0, "TAGS\x01other\x02", "x")
	}
	e.awaitMax("t", 0, 3)
	got = e.pull(pullHeader("t", 0, 0, "mine", 10*time.Millisecond))
	if got.code != protocol.PullRetryImmediately || got.header.NextBeginOffset != 3 {
		t.Errorf("no match: code %d, next %d; want 20 and 3", got.code, got.header.NextBeginOffset)
	}
	got = e.pull(pullHeader("t", 0, 3, "mine", 10*time.Millisecond))
	if got.code != protocol.PullNotFound || got.header.NextBeginOffset != 3 || got.header.MaxOffset != 3 {
		t.Errorf("at the end: code %d, next %d, max %d", got.code, got.header.NextBeginOffset, got.header.MaxOffset)
	}
}

// TestOneMatchAmongManyMessages (fault F48): a consumer whose tag is rare gets
// its message, and never scans the same messages twice.
func TestOneMatchAmongManyMessages(t *testing.T) {
	const many, batch = 100_000, 1000
	e := start(t, t.TempDir(), func(_ *Options, so *spool.Options) {
		so.Flush, so.SegmentBytes = spool.FlushAsync, 16<<20
	})
	e.createTopic("t", 1)
	sender := e.join(t)
	held := e.later(protocol.PullMessage, pullHeader("t", 0, 0, "rare", time.Hour), nil)
	common := message.Message{Body: []byte("x"), Properties: []byte("UNIQ_KEY\x01u\x02TAGS\x01common\x02")}
	body := batchBody(t, slices.Repeat([]message.Message{common}, batch)...)
	for range many / batch {
		sender.want(sender.sendBatch("t", 0, body), protocol.Success)
	}
	e.awaitMax("t", 0, many)
	// One answer examines a bounded number of messages and moves on.
	got := sender.pull(pullHeader("t", 0, 0, "rare", 0))
	if got.code != protocol.PullRetryImmediately || got.header.NextBeginOffset < 1 || got.header.NextBeginOffset >= many {
		t.Errorf("without waiting: code %d, next %d", got.code, got.header.NextBeginOffset)
	}
	sender.mustSend("t", 0, "TAGS\x01rare\x02", "found")
	got = e.decodePull(e.await(held))
	if len(got.messages) != 1 || string(got.messages[0].Body) != "found" || got.header.NextBeginOffset != many+1 {
		t.Errorf("held: code %d, %d messages, next %d", got.code, len(got.messages), got.header.NextBeginOffset)
	}
}

// TestHeldPullEndsWithItsTopic (fault F27): a consumer that waits in the middle
// of a queue whose topic is deleted is told to begin again.
func TestHeldPullEndsWithItsTopic(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	for range 3 {
		e.mustSend("t", 0, "", "old")
	}
	e.awaitMax("t", 0, 3)
	admin := e.join(t)
	held := e.later(protocol.PullMessage, pullHeader("t", 0, 3, "*", time.Hour), nil)
	e.offset(protocol.GetMaxOffset, "t", 0)
	admin.must(protocol.DeleteTopicInBroker, &protocol.TopicRequest{Topic: "t"}, nil)
	got := e.decodePull(e.await(held))
	if got.code != protocol.PullOffsetMoved || got.header.NextBeginOffset != 0 {
		t.Errorf("code %d, next %d; want 21 and 0", got.code, got.header.NextBeginOffset)
	}
}

// TestTagsWithEqualHashes (fault F49): the queue holds hashes, so messages whose
// tags only hash alike are delivered too, for the client to tell apart, and the
// offset passes both.
func TestTagsWithEqualHashes(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	for _, tag := range []string{"Aa", "BB", "C"} {
		e.mustSend("t", 0, "TAGS\x01"+tag+"\x02", tag)
	}
	e.awaitMax("t", 0, 3)
	for expression, want := range map[string]string{
		"Aa": "[Aa BB]", "BB": "[Aa BB]", "C": "[C]", "C || Aa": "[Aa BB C]", " C ||Aa||": "[Aa BB C]", "*": "[Aa BB C]", "": "[Aa BB C]",
	} {
		got := e.pull(pullHeader("t", 0, 0, expression, 0))
		if fmt.Sprint(bodies(got.messages)) != want || got.header.NextBeginOffset != 3 {
			t.Errorf("%q: %q, next %d; want %s", expression, bodies(got.messages), got.header.NextBeginOffset, want)
		}
	}
}

// TestRetryTopicIsNotFiltered (fault F48): messages to be consumed again come
// whatever tag the group subscribes to.
func TestRetryTopicIsNotFiltered(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.mustSend("%RETRY%g", 0, "TAGS\x01a\x02", "again")
	e.awaitMax("%RETRY%g", 0, 1)
	if got := e.pull(pullHeader("%RETRY%g", 0, 0, "b", 0)); len(got.messages) != 1 {
		t.Errorf("code %d, %d messages", got.code, len(got.messages))
	}
}

// TestPullWithoutSubscription (fault F49): a pull that carries no expression uses
// the one that the group's heartbeats brought, of which the newest counts.
func TestPullWithoutSubscription(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	for _, tag := range []string{"a", "b"} {
		e.mustSend("t", 0, "TAGS\x01"+tag+"\x02", tag)
	}
	e.awaitMax("t", 0, 2)
	bare := func(version int64) *protocol.PullMessageRequest {
		h := pullHeader("t", 0, 0, "", 0)
		h.SysFlag, h.SubVersion = 0, version
		return h
	}
	if got := e.pull(bare(1)); got.code != protocol.SubscriptionNotExist {
		t.Errorf("no consumer: code %d", got.code)
	}
	other := e.join(t)
	e.heartbeat("one", "g", protocol.SubscriptionData{Topic: "t", SubString: "a", SubVersion: 5, ExpressionType: "TAG"})
	other.heartbeat("two", "g", protocol.SubscriptionData{Topic: "t", SubString: "b", SubVersion: 4, ExpressionType: "TAG"})
	for _, c := range []struct {
		version int64
		code    protocol.ResponseCode
		want    string
	}{{5, protocol.Success, "[a]"}, {4, protocol.Success, "[a]"}, {6, protocol.SubscriptionNotLatest, "[]"}} {
		if got := e.pull(bare(c.version)); got.code != c.code || fmt.Sprint(bodies(got.messages)) != c.want {
			t.Errorf("version %d: code %d %q, want %d %s", c.version, got.code, bodies(got.messages), c.code, c.want)
		}
	}
	other.heartbeat("two", "g", protocol.SubscriptionData{Topic: "t", SubString: "b", SubVersion: 6, ExpressionType: "TAG"})
	if got := e.pull(bare(6)); fmt.Sprint(bodies(got.messages)) != "[b]" {
		t.Errorf("after the newer subscription: code %d %q", got.code, bodies(got.messages))
	}
	h := bare(1)
	h.Topic = []byte("TBW102")
	if got := e.pull(h); got.code != protocol.SubscriptionNotExist {
		t.Errorf("topic outside the subscription: code %d", got.code)
	}
}

// TestPullCommitsOffset: a consumer commits with its pulls, when the flag says
// that the offset counts, and once.
func TestPullCommitsOffset(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	h := pullHeader("t", 0, 0, "*", 0)
	h.CommitOffset = 7
	e.pull(h)
	if got, ok := e.committed("t", "g", 0, protocol.Some(false)); ok {
		t.Errorf("without the flag %d is committed", got)
	}
	h.SysFlag |= protocol.PullCommitOffset
	e.pull(h)
	if got, ok := e.committed("t", "g", 0, protocol.Some(false)); !ok || got != 7 {
		t.Errorf("committed: %d %v, want 7", got, ok)
	}
	// A pull that is held commits when it comes, not when it is answered.
	h.SysFlag |= protocol.PullSuspend
	h.SuspendTimeoutMillis, h.CommitOffset = time.Hour.Milliseconds(), 8
	held := e.later(protocol.PullMessage, h, nil)
	e.offset(protocol.GetMaxOffset, "t", 0)
	e.want(e.commit("t", "g", 0, 9), protocol.Success)
	e.mustSend("t", 0, "", "x")
	e.await(held)
	if got, _ := e.committed("t", "g", 0, protocol.Some(false)); got != 9 {
		t.Errorf("committed: %d, want 9", got)
	}
}

// TestForbiddenConsumers: a table taken over from Apache's broker may keep a
// group from a topic, or from broadcasting.
func TestForbiddenConsumers(t *testing.T) {
	dir := t.TempDir()
	if err := os.MkdirAll(filepath.Join(dir, "config"), 0o755); err != nil {
		t.Fatal(err)
	}
	table := `{"dataVersion":{"counter":1,"stateVersion":0,"timestamp":1},"forbiddenTable":{"g":{"secret":4,"t":2}},
		"subscriptionGroupTable":{"g":{"groupName":"g","consumeBroadcastEnable":false}}}`
	if err := os.WriteFile(filepath.Join(dir, "config", "subscriptionGroup.json"), []byte(table), 0o644); err != nil {
		t.Fatal(err)
	}
	e := start(t, dir, nil)
	e.createTopic("secret", 1)
	e.createTopic("t", 1)
	if got := e.pull(pullHeader("secret", 0, 0, "*", time.Hour)); got.code != protocol.NoPermission {
		t.Errorf("forbidden topic: code %d", got.code)
	}
	if got := e.pull(pullHeader("t", 0, 0, "*", 0)); got.code != protocol.PullNotFound {
		t.Errorf("other topic: code %d", got.code)
	}
	bare := pullHeader("t", 0, 0, "", 0)
	bare.SysFlag = 0
	for model, want := range map[protocol.MessageModel]protocol.ResponseCode{
		protocol.Clustering: protocol.PullNotFound, protocol.Broadcasting: protocol.NoPermission,
	} {
		e.want(e.beat(protocol.HeartbeatData{ClientID: "c", ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: "g", MessageModel: model, SubscriptionDataSet: []protocol.SubscriptionData{{Topic: "t", SubString: "*"}},
		}}}), protocol.Success)
		if got := e.pull(bare); got.code != want {
			t.Errorf("%s: code %d, want %d", model, got.code, want)
		}
	}
}
