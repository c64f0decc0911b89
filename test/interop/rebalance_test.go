//go:build interop

package interop

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"
)

func TestRebalanceAtApache(t *testing.T) { rebalance(t, startApache(t).namesrv) }

func TestRebalanceAtSluice(t *testing.T) { rebalance(t, startSluiceCluster(t).namesrv) }

// Two consumers of one group share the queues. When one leaves, the other takes
// over at once, because the broker says so and not because a timer ran out.
func rebalance(t *testing.T, namesrv string) {
	t.Helper()
	const topic, group = "Shared", "sharers"
	first := java540.produce(t, "--namesrv", namesrv, "--topic", topic, "--count", "40")
	queues := queueIDs(first)
	member := func(name string) *process {
		return java540.start(t, "consume", "--namesrv", namesrv, "--topic", topic, "--group", group, "--instance", name, "--stay", "true",
			"--timeout", "120")
	}
	a := member("a")
	awaitAssigned(t, a, queues)
	b := member("b")
	half := awaitSome(t, b, len(queues)/2)
	rest := slices.DeleteFunc(slices.Clone(queues), func(q int) bool { return slices.Contains(half, q) })
	awaitAssigned(t, a, rest)

	second := java540.produce(t, "--namesrv", namesrv, "--topic", topic, "--first", "1000", "--count", "40")
	awaitDelivered(t, second, a, b)
	if err := b.stdin.Close(); err != nil {
		t.Fatal(err)
	}
	left := time.Now()
	if err := b.wait(30 * time.Second); err != nil {
		t.Fatalf("b: %v\n%s", err, tail(b))
	}
	awaitAssigned(t, a, queues)
	if took := time.Since(left); took > 15*time.Second { // the members' own timer runs out after 20 s
		t.Errorf("the other member took over after %v", took)
	}
	third := java540.produce(t, "--namesrv", namesrv, "--topic", topic, "--first", "2000", "--count", "40")
	awaitDelivered(t, third, a)
	awaitDelivered(t, first, a, b)
}

func queueIDs(sent []acked) []int {
	var ids []int
	for _, s := range sent {
		if !slices.Contains(ids, s.queue) {
			ids = append(ids, s.queue)
		}
	}
	slices.Sort(ids)
	return ids
}

// assigned is the last assignment that a consumer reported.
func assigned(lines []string) []int {
	for _, line := range slices.Backward(lines) {
		if list, ok := strings.CutPrefix(line, "# assigned "); ok {
			var ids []int
			for _, f := range strings.Split(list, ",") {
				if id, err := strconv.Atoi(f); err == nil {
					ids = append(ids, id)
				}
			}
			return ids
		}
	}
	return nil
}

func awaitAssigned(t *testing.T, p *process, want []int) {
	t.Helper()
	err := p.await(40*time.Second, fmt.Sprintf("assignment of %v", want), func(lines []string) bool {
		return slices.Equal(assigned(lines), want)
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(p))
	}
}

// awaitSome waits for an assignment of exactly n queues and returns them.
func awaitSome(t *testing.T, p *process, n int) []int {
	t.Helper()
	var ids []int
	err := p.await(40*time.Second, fmt.Sprintf("assignment of %d queues", n), func(lines []string) bool {
		ids = assigned(lines)
		return len(ids) == n
	})
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(p))
	}
	return ids
}

// awaitDelivered waits until each message has come to one of the consumers.
func awaitDelivered(t *testing.T, sent []acked, consumers ...*process) {
	t.Helper()
	want := map[string]bool{}
	for _, s := range sent {
		want[s.id] = true
	}
	err := eventually(40*time.Second, func(context.Context) error {
		missing := len(want)
		seen := map[string]bool{}
		for _, c := range consumers {
			for _, r := range deliveries(t, c.lines()) {
				if want[r.id] && !seen[r.id] {
					seen[r.id] = true
					missing--
				}
			}
		}
		if missing > 0 {
			return fmt.Errorf("%d of %d messages did not come", missing, len(sent))
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}
