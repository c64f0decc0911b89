package upstream

import (
	"context"
	"fmt"
	"net/netip"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/protocol/message"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// running keeps s running until the test ends.
func running(t testing.TB, s Sender) {
	t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- s.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Errorf("Run: %v", err)
		}
	})
}

// spooled are messages as a local broker stores them: numbered bodies, with
// unique keys and what the broker adds.
func spooled(from, to int) []message.Message {
	var ms []message.Message
	for i := from; i < to; i++ {
		m := message.Message{
			Topic: "orders", Body: fmt.Appendf(nil, "%05d", i), BornTimestamp: 1700000000000 + int64(i),
			QueueOffset: int64(i), StoreHost: netip.MustParseAddrPort("127.0.0.1:9800"), PhysicalOffset: int64(i) * 100,
		}
		for _, p := range [][2]string{
			{message.PropertyUniqueKey, fmt.Sprintf("KEY%05d", i)}, {message.PropertyMessageRegion, "DefaultRegion"},
			{message.PropertyTraceOn, "true"}, {message.PropertyCluster, "edge"},
		} {
			m.SetProperty(p[0], p[1])
		}
		ms = append(ms, m)
	}
	return ms
}

func bodies(ms []message.Message) (list []string) {
	for i := range ms {
		list = append(list, string(ms[i].Body))
	}
	return list
}

// firsts removes doubles: what a reader sees that remembers unique keys.
func firsts(list []string) (kept []string) {
	seen := make(map[string]bool)
	for _, s := range list {
		if !seen[s] {
			kept = append(kept, s)
		}
		seen[s] = true
	}
	return kept
}

func sendAll(t *testing.T, s Sender, ms []message.Message) {
	t.Helper()
	if n, err := s.Send(t.Context(), "orders", 0, ms); n != len(ms) || err != nil {
		t.Fatalf("accepted %d of %d: %v", n, len(ms), err)
	}
}
