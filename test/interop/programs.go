//go:build interop

package interop

import (
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"path/filepath"
	"sort"
	"strconv"
	"strings"
	"testing"
	"time"
)

// A client is the leading part of a command line that takes produce or consume
// and the options of java/src/main/java/interop.
type client struct {
	name  string
	build func() (string, error)
	argv  []string
}

var (
	java540 = client{"java-540", java, []string{"client540"}}
	java498 = client{"java-498", java, []string{"client498"}}
	go213   = client{"go-213", goClient, nil}
	clients = []client{java540, java498, go213}
)

// An acked is one message whose producer was told that it is stored.
type acked struct {
	queue  int
	offset int64
	id     string
	key    string
}

// A received is one delivery to a consumer.
type received struct {
	queue   int
	offset  int64
	id      string
	key     string
	tag     string
	shard   string // ordering key
	digest  string // first 16 digits of the body's SHA-256
	retries int
}

func (c client) start(t *testing.T, command string, args ...string) *process {
	t.Helper()
	argv := append([]string{program(t, c.build)}, c.argv...)
	argv = append(append(argv, command), args...)
	return start(t, c.name+"-"+command, "", []string{"CLIENT_HOME=" + filepath.Join(targetDir, "home")}, argv...)
}

// produce runs a producer to its end and returns what it was acknowledged.
func (c client) produce(t *testing.T, args ...string) []acked {
	t.Helper()
	p := c.start(t, "produce", args...)
	if err := p.wait(3 * time.Minute); err != nil {
		t.Fatalf("%s produce: %v\n%s", c.name, err, tail(p))
	}
	return acknowledged(t, p)
}

func acknowledged(t *testing.T, p *process) []acked {
	t.Helper()
	var all []acked
	for _, line := range p.lines() {
		f := strings.Split(line, " ")
		if len(f) != 4 {
			continue // the clients' own remarks
		}
		queue, err := strconv.Atoi(f[0])
		if err != nil {
			continue
		}
		offset, err := strconv.ParseInt(f[1], 10, 64)
		if err != nil {
			t.Fatalf("bad line %q", line)
		}
		all = append(all, acked{queue, offset, f[2], f[3]})
	}
	return all
}

// consume runs a consumer until it has seen expect different messages.
func (c client) consume(t *testing.T, expect int, args ...string) []received {
	t.Helper()
	p := c.start(t, "consume", append(args, "--expect", strconv.Itoa(expect))...)
	if err := p.wait(3 * time.Minute); err != nil {
		t.Fatalf("%s consume: %v\n%s", c.name, err, tail(p))
	}
	return deliveries(t, p.lines())
}

func deliveries(t *testing.T, lines []string) []received {
	t.Helper()
	var all []received
	for _, line := range lines {
		f := strings.Split(line, "\t")
		if len(f) != 8 {
			continue
		}
		queue, err1 := strconv.Atoi(f[0])
		offset, err2 := strconv.ParseInt(f[1], 10, 64)
		retries, err3 := strconv.Atoi(f[7])
		if err1 != nil || err2 != nil || err3 != nil {
			t.Fatalf("bad line %q", line)
		}
		all = append(all, received{queue, offset, f[2], f[3], f[4], f[5], f[6], retries})
	}
	return all
}

func tail(p *process) string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return strings.Join(p.both[max(0, len(p.both)-20):], "\n")
}

func digest(body []byte) string {
	sum := sha256.Sum256(body)
	return hex.EncodeToString(sum[:8])
}

// body is what produce makes up for message n.
func body(n int) []byte { return fmt.Appendf(nil, "message %d ü中", n) }

// checkDelivered demands that what was acknowledged was delivered, once, at the
// place and under the id that the acknowledgement named, with the body that was
// sent. It stops at the first difference: hundreds would say no more.
func checkDelivered(t *testing.T, sent []acked, got []received) {
	t.Helper()
	byKey := map[string]received{}
	for _, r := range got {
		if other, double := byKey[r.key]; double {
			t.Fatalf("message %s came twice: %+v, %+v", r.key, other, r)
		}
		byKey[r.key] = r
	}
	for _, s := range sent {
		r, ok := byKey[s.key]
		if !ok {
			t.Fatalf("acknowledged message %+v did not come", s)
		}
		if r.queue != s.queue || r.offset != s.offset || s.isUniqueKey() && r.id != s.id {
			t.Fatalf("sent %+v, received %+v", s, r)
		}
		if n, err := strconv.Atoi(s.key); err == nil && r.digest != digest(body(n)) {
			t.Fatalf("message %s has another body", s.key)
		}
	}
	if len(got) != len(sent) {
		t.Fatalf("%d sent, %d received", len(sent), len(got))
	}
}

// isUniqueKey tells the unique key that a producer gave its message from an
// offset id, which begins with the address of loopback: the Go client gives none
// to the messages of a batch. Apache's broker then stores them without, ours
// makes one.
func (s acked) isUniqueKey() bool { return !strings.HasPrefix(s.id, "7F000001") }

// checkOrder demands that the numbers in the keys grow along every ordering
// key, or along every queue where there is no such key, when each queue is read from its beginning and doubles are passed over.
// It returns how many doubles there were.
func checkOrder(t *testing.T, got []received) (doubles int) {
	t.Helper()
	sort.SliceStable(got, func(i, j int) bool {
		return got[i].queue < got[j].queue || got[i].queue == got[j].queue && got[i].offset < got[j].offset
	})
	seen := map[string]bool{}
	last := map[string]int{}
	for _, r := range got {
		if seen[r.id] {
			doubles++
			continue
		}
		seen[r.id] = true
		n, err := strconv.Atoi(r.key)
		if err != nil {
			t.Fatalf("key %q is no number", r.key)
		}
		along := r.shard
		if along == "" {
			along = fmt.Sprintf("queue %d", r.queue)
		}
		if before, ok := last[along]; ok && n < before {
			t.Fatalf("%s: %d after %d", along, n, before)
		}
		last[along] = n
	}
	return doubles
}
