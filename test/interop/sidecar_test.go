//go:build interop

package interop

import (
	"fmt"
	"testing"
)

// A stock producer that has the sidecar's door as its only name server reaches
// every kind of upstream: nothing is lost or changed, ids are kept, and what was
// one queue here is in its order there.
func TestClientsThroughTheSidecar(t *testing.T) {
	for kind, startUpstream := range upstreams {
		t.Run(kind, func(t *testing.T) {
			up := startUpstream(t)
			s := startSidecar(t, up.config)
			for _, c := range clients {
				for _, batch := range []int{1, 8} {
					t.Run(fmt.Sprintf("%s in batches of %d", c.name, batch), func(t *testing.T) {
						topic := fmt.Sprintf("Through-%s-%d", c.name, batch)
						sent := c.produce(t, "--namesrv", s.rocketmq, "--topic", topic, "--count", "100", "--batch", fmt.Sprint(batch), "--tags", "A,B")
						awaitDrained(t, s, topic)
						got := up.read(t, topic, len(sent))
						checkForwarded(t, sent, got)
					})
				}
			}
		})
	}
}

// checkForwarded demands every acknowledged message upstream, once, with its
// body and tag, and each local queue in one upstream queue in its order.
func checkForwarded(t *testing.T, sent []acked, got []received) {
	t.Helper()
	byKey := map[string]received{}
	for _, r := range got {
		if other, double := byKey[r.key]; double {
			t.Errorf("message %s came twice: %+v, %+v", r.key, other, r)
		}
		byKey[r.key] = r
	}
	upstreamQueue := map[int]int{}
	last := map[int]received{}
	for _, s := range sent { // in the order of sending, so of the local queues
		r, ok := byKey[s.key]
		if !ok {
			t.Errorf("message %s (local queue %d offset %d) is not upstream", s.key, s.queue, s.offset)
			continue
		}
		var n int
		if _, err := fmt.Sscan(s.key, &n); err == nil && (r.digest != digest(body(n)) || r.tag != string("AB"[n%2])) {
			t.Errorf("message %s came as %+v", s.key, r)
		}
		if s.isUniqueKey() && r.id != s.id {
			t.Errorf("message %s has the id %s, sent as %s", s.key, r.id, s.id)
		}
		if q, known := upstreamQueue[s.queue]; known && q != r.queue {
			t.Errorf("local queue %d is in the upstream queues %d and %d", s.queue, q, r.queue)
		}
		upstreamQueue[s.queue] = r.queue
		if before, ok := last[s.queue]; ok && r.offset <= before.offset {
			t.Errorf("message %s is at %d upstream, the one before it, %s, at %d", s.key, r.offset, before.key, before.offset)
		}
		last[s.queue] = r
	}
}
