//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

// dataset returns a file of the npm package vega-datasets, fetched once.
func dataset(t *testing.T, name string) string {
	t.Helper()
	path := filepath.Join(cacheDir, "package", "data", name)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	if err := os.MkdirAll(cacheDir, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := command(cacheDir, "npm", "pack", "--silent", "vega-datasets@2"); err != nil {
		t.Fatal(err)
	}
	archives, err := filepath.Glob(filepath.Join(cacheDir, "vega-datasets-2*.tgz"))
	if err != nil || len(archives) == 0 {
		t.Fatalf("no archive: %v", err)
	}
	if err := command(cacheDir, "tar", "-xzf", archives[0], "package/data/flights-20k.json", "package/data/flights-200k.json"); err != nil {
		t.Fatal(err)
	}
	return path
}

func records(t *testing.T, file string) int {
	t.Helper()
	data, err := os.ReadFile(file)
	if err != nil {
		t.Fatal(err)
	}
	var list []json.RawMessage
	if err := json.Unmarshal(data, &list); err != nil {
		t.Fatal(err)
	}
	return len(list)
}

// Real records with a real ordering key go through the sidecar while the
// upstream is killed and comes back: every one arrives, and those of an airport
// in the order in which they were sent.
func TestFlightsInOrderAcrossAnOutage(t *testing.T) {
	file := dataset(t, "flights-20k.json")
	outage(t, "Flights", records(t, file), "--file", file, "--ordering-field", "origin")
}

// The same with ten times as many, in batches.
func TestManyFlightsAcrossAnOutage(t *testing.T) {
	file := dataset(t, "flights-200k.json")
	outage(t, "ManyFlights", records(t, file), "--file", file, "--batch", "32")
}

func outage(t *testing.T, topic string, count int, args ...string) {
	t.Helper()
	for kind, startUpstream := range upstreams {
		t.Run(kind, func(t *testing.T) {
			up := startUpstream(t)
			s := startSidecar(t, up.config)
			args := append([]string{"--namesrv", s.rocketmq, "--topic", topic, "--tags", "flight"}, args...)
			began := time.Now()
			p := java540.start(t, "produce", args...)
			awaitAcknowledged(t, p, count/4)
			up.kill()
			killed := time.Now()
			if err := p.wait(3 * time.Minute); err != nil {
				t.Fatalf("the producer noticed the outage: %v\n%s", err, tail(p))
			}
			sent := acknowledged(t, p)
			if len(sent) < count {
				t.Fatalf("%d of %d records acknowledged", len(sent), count)
			}
			produced := time.Now()
			up.restart(t)
			back := time.Now()
			awaitDrained(t, s, topic)
			drained := time.Now()
			got := up.read(t, topic, len(sent))
			ids := map[string]bool{}
			for _, r := range got {
				ids[r.id] = true
			}
			for _, s := range sent {
				if !ids[s.id] {
					t.Fatalf("record %s (local queue %d offset %d) was acknowledged and is not upstream", s.key, s.queue, s.offset)
				}
			}
			doubles := checkOrder(t, withoutFirst(got))
			t.Logf("%d records acknowledged within %v, upstream away for %v in the middle, drained %v after its return, %d doubles upstream",
				len(sent), produced.Sub(began).Round(time.Millisecond), back.Sub(killed).Round(time.Millisecond),
				drained.Sub(back).Round(time.Millisecond), doubles)
		})
	}
}

// withoutFirst leaves out the message that made the topic, which has no number.
func withoutFirst(got []received) []received {
	var rest []received
	for _, r := range got {
		if r.key != "first" {
			rest = append(rest, r)
		}
	}
	return rest
}

func awaitAcknowledged(t *testing.T, p *process, n int) {
	t.Helper()
	err := p.await(time.Minute, fmt.Sprintf("%d acknowledgements", n), func(lines []string) bool { return len(lines) >= n })
	if err != nil {
		t.Fatalf("%v\n%s", err, tail(p))
	}
}

// awaitDrained waits until the gauge of the topic's lane says that nothing is
// left to forward.
func awaitDrained(t *testing.T, s *sidecar, topic string) {
	t.Helper()
	series := fmt.Sprintf(`sluice_lane_backlog_messages{topic=%q,upstream="up"} `, topic)
	err := eventually(time.Minute, func(ctx context.Context) error {
		text, err := fetch(ctx, s.http+"/metrics")
		if err != nil {
			return err
		}
		for line := range strings.Lines(text) {
			if value, ok := strings.CutPrefix(line, series); ok {
				if value = strings.TrimSpace(value); value != "0" {
					return fmt.Errorf("backlog of %s", value)
				}
				return nil
			}
		}
		return fmt.Errorf("no series %s", series)
	})
	if err != nil {
		t.Error(err)
	}
}
