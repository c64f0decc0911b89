package broker

import (
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

// TestNewGroupBegins (fault F46): where a group has no offset it begins at 0
// while the queue's first message is at hand, so that nothing falls between its
// questions; else, or when it says so, it decides itself.
func TestNewGroupBegins(t *testing.T) {
	e := start(t, t.TempDir(), limited)
	e.createTopic("empty", 1)
	e.createTopic("young", 1)
	e.createTopic("rolled", 1)
	for range 10 {
		e.mustSend("young", 0, "", "x")
	}
	e.awaitMax("young", 0, 10)
	absent := protocol.Opt[bool]{}
	for _, topic := range []string{"empty", "young"} {
		if got, ok := e.committed(topic, "new", 0, absent); !ok || got != 0 {
			t.Errorf("%s: %d %v, want 0", topic, got, ok)
		}
		if got, ok := e.committed(topic, "new", 0, protocol.Some(true)); !ok || got != 0 {
			t.Errorf("%s, asking for 0: %d %v, want 0", topic, got, ok)
		}
		if got, ok := e.committed(topic, "new", 0, protocol.Some(false)); ok {
			t.Errorf("%s, asking for none: %d, want code 22", topic, got)
		}
	}
	// More queues while consumers run: they begin at 0 too, nothing is missed.
	e.createTopic("young", 2)
	if got, ok := e.committed("young", "new", 1, absent); !ok || got != 0 {
		t.Errorf("added queue: %d %v, want 0", got, ok)
	}
	first, _ := rollOff(e, "rolled")
	if got, ok := e.committed("rolled", "new", 0, absent); ok {
		t.Errorf("queue that begins at %d: %d, want code 22", first, got)
	}
	e.createGroup("new")
	e.want(e.commit("rolled", "new", 0, 3), protocol.Success)
	if got, ok := e.committed("rolled", "new", 0, absent); !ok || got != 3 {
		t.Errorf("committed: %d %v, want 3", got, ok)
	}
}

// TestFarFirstMessageIsNotAtHand (fault F46): what a new group gets depends on
// how far back the first message lies.
func TestFarFirstMessageIsNotAtHand(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 1)
	p := positions{topics: e.broker.topics, groups: e.broker.groups, offsets: e.broker.offsets, spool: e.spool, nearEnd: 4096}
	e.mustSend("t", 0, "", "x")
	e.awaitMax("t", 0, 1)
	if !p.atHand(e.spool.Queue("t", 0)) {
		t.Error("the newest message is not at hand")
	}
	e.mustSend("t", 0, "", string(filled(5000, "y")))
	e.awaitMax("t", 0, 2)
	if p.atHand(e.spool.Queue("t", 0)) {
		t.Error("a message 5000 bytes back is at hand, the limit is 4096")
	}
}

// TestCommitChecks: only offsets of groups, topics and queues that exist are
// kept.
func TestCommitChecks(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 2)
	e.createGroup("g")
	for name, c := range map[string]struct {
		topic, group string
		queue        int32
		offset       int64
		code         protocol.ResponseCode
	}{
		"good":           {"t", "g", 1, 5, protocol.Success},
		"no such group":  {"t", "none", 0, 5, protocol.SubscriptionGroupNotExist},
		"no such topic":  {"none", "g", 0, 5, protocol.TopicNotExist},
		"queue too high": {"t", "g", 2, 5, protocol.InvalidParameter},
		"queue negative": {"t", "g", -1, 5, protocol.InvalidParameter},
		"offset below 0": {"t", "g", 0, -1, protocol.InvalidParameter},
	} {
		if got := e.commit(c.topic, c.group, c.queue, c.offset); got.ResponseCode() != c.code {
			t.Errorf("%s: code is %d %q, want %d", name, got.Code, got.Remark, c.code)
		}
	}
	if got, ok := e.committed("t", "g", 1, protocol.Some(false)); !ok || got != 5 {
		t.Errorf("committed: %d %v, want 5", got, ok)
	}
	// Groups may go back.
	e.want(e.commit("t", "g", 1, 2), protocol.Success)
	if got, _ := e.committed("t", "g", 1, protocol.Some(false)); got != 2 {
		t.Errorf("committed: %d, want 2", got)
	}
}

// TestOffsetQueries: 29 to 32 answer for queues with and without messages.
func TestOffsetQueries(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	e.createTopic("t", 2)
	for range 3 {
		e.mustSend("t", 0, "", "x")
	}
	e.awaitMax("t", 0, 3)
	stored := e.pullAll("t", 0, 0)
	byTime := func(queue int32, ms int64, boundary string) int64 {
		var h protocol.OffsetResponse
		e.decode(e.must(protocol.SearchOffsetByTimestamp, &protocol.SearchOffsetRequest{
			Topic: "t", QueueID: queue, Timestamp: ms, BoundaryType: boundary,
		}, nil), &h)
		return h.Offset
	}
	earliest := func(queue int32) int64 {
		var h protocol.GetEarliestMsgStoreTimeResponse
		e.decode(e.must(protocol.GetEarliestMsgStoreTime, &protocol.GetEarliestMsgStoreTimeRequest{Topic: "t", QueueID: queue}, nil), &h)
		return h.Timestamp
	}
	newest := stored[2].StoreTimestamp
	for what, c := range map[string]struct{ got, want int64 }{
		"first":                    {e.offset(protocol.GetMinOffset, "t", 0), 0},
		"last":                     {e.offset(protocol.GetMaxOffset, "t", 0), 3},
		"first of an empty one":    {e.offset(protocol.GetMinOffset, "t", 1), 0},
		"last of an empty one":     {e.offset(protocol.GetMaxOffset, "t", 1), 0},
		"before all":               {byTime(0, 0, ""), 0},
		"after all":                {byTime(0, newest+1, "LOWER"), 3},
		"after all, from above":    {byTime(0, newest+1, "UPPER"), 2},
		"of an empty one":          {byTime(1, newest, ""), 0},
		"earliest":                 {earliest(0), stored[0].StoreTimestamp},
		"earliest of an empty one": {earliest(1), -1},
	} {
		if c.got != c.want {
			t.Errorf("%s: %d, want %d", what, c.got, c.want)
		}
	}
	for _, code := range []protocol.RequestCode{protocol.GetMaxOffset, protocol.GetMinOffset, protocol.GetEarliestMsgStoreTime} {
		e.want(e.call(code, &protocol.GetMaxOffsetRequest{Topic: "none"}, nil), protocol.TopicNotExist)
		e.want(e.call(code, &protocol.GetMaxOffsetRequest{Topic: "t", QueueID: 2}, nil), protocol.InvalidParameter)
	}
}
