package sidecar

import (
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/upstream"
)

func down(int, string, []message.Message) verdict {
	return verdict{err: fmt.Errorf("%w: connection refused", upstream.ErrUnavailable)}
}

// fill posts messages of some size until the spool refuses one, and returns how
// many it took.
func (i *instance) fill(topic string, size int) int {
	i.t.Helper()
	body := strings.Repeat("x", size)
	for n := 0; ; n++ {
		status, text := i.post("/v1/topics/"+topic+"/messages", "", body)
		switch {
		case status == http.StatusInsufficientStorage:
			return n
		case status != http.StatusOK:
			i.t.Fatalf("message %d: %d %s", n, status, text)
		case n > 10_000:
			i.t.Fatal("the spool takes more than its limit")
		}
	}
}

func (i *instance) deleteTopic(topic string) {
	i.t.Helper()
	answer := i.request(protocol.DeleteTopicInBroker, &protocol.TopicRequest{Topic: topic}, nil)
	if err := answer.Err(); err != nil {
		i.t.Fatalf("delete topic %s: %v", topic, err)
	}
}

// health reads GET /healthz.
func (i *instance) health() (int, report) {
	i.t.Helper()
	status, text := i.get("/healthz")
	var r report
	if err := json.Unmarshal([]byte(text), &r); err != nil {
		i.t.Fatalf("health %q: %v", text, err)
	}
	return status, r
}

func TestProducersDoNotFeelAnUpstreamThatIsAway(t *testing.T) {
	up := newScript(down)
	dir := t.TempDir()
	s := start(t, dir, map[string]upstream.Sender{"core": up}, oneQueue(50))
	bodies := numbered("m", 400)
	s.mustLines("orders", "", bodies[:300]...)
	for _, body := range bodies[300:350] {
		s.must("orders", body)
	}
	await(t, "a lane that tries again", func() bool {
		status, r := s.health()
		return status == http.StatusOK && r.Backlog == 350 && len(r.Lanes) == 1 &&
			s.backlog("core", "orders") == 350 && r.Lanes[0] == LaneStatus{Upstream: "core", Topic: "orders", Backlog: 350, State: "retrying"} && r.Upstreams["core"].Failures > 0
	})
	if status, text := s.get("/readyz"); status != http.StatusOK {
		t.Errorf("not ready although messages are taken: %s", text)
	}
	s.stop()

	s = start(t, dir, map[string]upstream.Sender{"core": up}, oneQueue(50))
	if n := s.backlog("core", "orders"); n != 350 {
		t.Errorf("backlog after a restart is %g, want 350", n)
	}
	s.mustLines("orders", "", bodies[350:]...)
	up.rejudge(nil)
	s.drained("core", "orders")
	up.wantBodies(t, "orders/0", 50, bodies)
	if n := s.metric(`sluice_lane_forwarded_messages_total{upstream="core"}`); n != 400 {
		t.Errorf("metric says %g forwarded messages, want 400", n)
	}
	if n := s.metric(`sluice_accepted_messages_total`); n != 50 {
		t.Errorf("metric says %g accepted messages since the start, want 50", n)
	}
	await(t, "an idle lane", func() bool {
		_, r := s.health()
		return r.Lanes[0].State == "idle" && r.Upstreams["core"].LastAccepted != ""
	})
}

func TestFullSpoolRefusesAndTakesAgainOnceDrained(t *testing.T) {
	const limit = 256 << 10
	up := newScript(down)
	s := start(t, t.TempDir(), map[string]upstream.Sender{"core": up}, func(o *setup) {
		oneQueue(20)(o)
		o.Spool.SegmentBytes, o.Spool.MaxBytes, o.Spool.MaxMessageBytes = 64<<10, limit, 32<<10
	})
	if n := s.metric("sluice_spool_writable"); n != 1 {
		t.Errorf("the empty spool is not writable by its metric: %g", n)
	}
	stored := s.fill("orders", 2<<10)
	if stored < 60 {
		t.Errorf("only %d messages of 2 KiB fit into %d bytes", stored, limit)
	}
	wantRefusal := func(text string) {
		t.Helper()
		for _, word := range []string{fmt.Sprint(limit), "core", "orders"} {
			if !strings.Contains(text, word) {
				t.Errorf("the refusal %q does not name %s", text, word)
			}
		}
	}
	status, text := s.post("/v1/topics/orders/messages", "", strings.Repeat("x", 2<<10))
	if status != http.StatusInsufficientStorage {
		t.Fatalf("a full spool answers %d %s, want 507", status, text)
	}
	wantRefusal(text)
	if status, text := s.get("/readyz"); status != http.StatusServiceUnavailable {
		t.Errorf("ready although messages are refused: %s", text)
	} else {
		wantRefusal(text)
	}
	if status, r := s.health(); status != http.StatusServiceUnavailable || r.Status != "refusing" || r.Reason == "" {
		t.Errorf("health is %d %+v, want 503 and a reason", status, r)
	}
	if n := s.metric("sluice_spool_writable"); n != 0 {
		t.Errorf("the full spool is writable by its metric: %g", n)
	}
	if used := s.metric("sluice_spool_bytes"); used > limit || s.metric("sluice_spool_limit_bytes") != limit {
		t.Errorf("metric says %g bytes used, %g allowed; the limit is %d", used, s.metric("sluice_spool_limit_bytes"), limit)
	}
	h := protocol.SendMessageRequestV2{ProducerGroup: []byte("p"), Topic: []byte("orders"), DefaultTopic: []byte(message.TopicAutoCreate), DefaultTopicQueueNums: 1}
	answer := s.request(protocol.SendMessageV2, &h, make([]byte, 2<<10))
	if answer.ResponseCode() != protocol.ServiceNotAvailable {
		t.Errorf("a full spool answers code %d %q, want 14", answer.Code, answer.Remark)
	}
	wantRefusal(answer.Remark)

	up.rejudge(nil)
	up.has(t, "orders/0", stored)
	await(t, "a spool that takes messages again", func() bool {
		status, _ := s.get("/readyz")
		return status == http.StatusOK
	})
	s.must("orders", "after")
	up.has(t, "orders/0", stored+1)
	if all := up.of("orders/0"); len(all) != stored+1 || all[stored].body != "after" || all[stored].offset != int64(stored) {
		t.Errorf("upstream has %d messages, want %d: refused messages were stored, or took offsets", len(all), stored+1)
	}
	if status, r := s.health(); status != http.StatusOK || r.Status != "ok" || r.Reason != "" {
		t.Errorf("health is %d %+v, want 200", status, r)
	}
}

func TestEachUpstreamGetsAllAndWaitsForNoOther(t *testing.T) {
	quick, slow := newScript(nil), newScript(down)
	s := start(t, t.TempDir(), map[string]upstream.Sender{"quick": quick, "slow": slow}, oneQueue(10))
	bodies := numbered("m", 30)
	s.mustLines("orders", "", bodies...)
	quick.has(t, "orders/0", 30)
	s.drained("quick", "orders")
	if n := s.backlog("slow", "orders"); n != 30 {
		t.Errorf("backlog of the slow upstream is %g, want 30", n)
	}
	slow.rejudge(nil)
	slow.has(t, "orders/0", 30)
	quick.wantBodies(t, "orders/0", 1, bodies)
	slow.wantBodies(t, "orders/0", 10, bodies)
	for i, m := range quick.of("orders/0") {
		if other := distinct(slow.of("orders/0"))[i]; m.key != other.key || m.key == "" {
			t.Errorf("message %d has key %q at one upstream and %q at the other", i, m.key, other.key)
		}
	}
}

func TestReloadedLanesTakeOverWhereTheOldOnesStopped(t *testing.T) {
	first, second := newScript(nil), newScript(nil)
	s := start(t, t.TempDir(), map[string]upstream.Sender{"first": first, "second": second}, func(o *setup) {
		oneQueue(5)(o)
		o.Lanes = []LaneRule{{Topics: []string{"plant-*"}, Upstream: "first"}}
	})
	s.mustLines("plant-a", "", numbered("a", 10)...)
	s.mustLines("office", "", numbered("o", 3)...)
	first.has(t, "plant-a/0", 10)
	if err := s.sidecar.Reload([]LaneRule{{Topics: []string{"*"}, Upstream: "nowhere"}}); err == nil || !strings.Contains(err.Error(), "nowhere") {
		t.Errorf("rules with an unknown upstream are refused with %v", err)
	}
	s.mustLines("plant-b", "", numbered("b", 2)...)
	first.has(t, "plant-b/0", 2) // the refused rules left the old ones in force

	err := s.sidecar.Reload([]LaneRule{
		{Topics: []string{"plant-a", "plant-b"}, Upstream: "first"}, {Topics: []string{"office", "plant-*"}, Upstream: "second"},
	})
	if err != nil {
		t.Fatal(err)
	}
	s.mustLines("plant-a", "", numbered("late", 5)...)
	second.has(t, "office/0", 3) // what waited before a lane took it is not lost
	second.has(t, "plant-a/0", 15)
	first.has(t, "plant-a/0", 15)
	first.wantBodies(t, "plant-a/0", 1, append(numbered("a", 10), numbered("late", 5)...))
	if len(first.of("plant-a/0")) != 15 {
		t.Errorf("the lane that stayed sent %d messages, want 15: it began anew", len(first.of("plant-a/0")))
	}
	if n := len(first.of("office/0")); n != 0 {
		t.Errorf("%d messages of a topic without a lane were forwarded", n)
	}
}
