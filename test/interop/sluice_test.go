//go:build interop

package interop

import (
	"context"
	"encoding/json"
	"fmt"
	"os/exec"
	"strings"
	"testing"
	"time"
)

func TestClientsAgainstSluice(t *testing.T) {
	c := startSluiceCluster(t)
	exchange(t, c.namesrv, c.namesrv)
}

// Our command line is a client like any other: what it sends a Java consumer
// gets, and the other way round.
func TestCommandsAgainstApache(t *testing.T) { commands(t, startApache(t)) }

func TestCommandsAgainstSluice(t *testing.T) { commands(t, startSluiceCluster(t)) }

func commands(t *testing.T, c *cluster) {
	t.Helper()
	const count = 50
	var in strings.Builder
	for n := range count {
		fmt.Fprintf(&in, "%s\n", body(n))
	}
	out := runSluice(t, in.String(), "send", "-n", c.namesrv, "FromCommand", "--tag", "B", "--key", "k", "--property", "größe=中")
	if lines := strings.Count(out, "\n"); lines != count {
		t.Fatalf("send printed %d lines:\n%s", lines, out)
	}
	got := java540.consume(t, count, "--namesrv", c.namesrv, "--topic", "FromCommand", "--tag", "B")
	bodies := map[string]bool{}
	for _, r := range got {
		bodies[r.digest] = true
		if r.tag != "B" || r.key != "k" {
			t.Errorf("received %+v", r)
		}
	}
	for n := range count {
		if !bodies[digest(body(n))] {
			t.Errorf("message %d did not come", n)
		}
	}

	sent := java540.produce(t, "--namesrv", c.namesrv, "--topic", "ToCommand", "--count", fmt.Sprint(count))
	out = runSluice(t, "", "consume", "-n", c.namesrv, "ToCommand", "--group", "command", "--from", "first", "--count", fmt.Sprint(count), "--json")
	ids := map[string]string{}
	for line := range strings.Lines(out) {
		var m struct{ ID, Body, Keys string }
		if err := json.Unmarshal([]byte(line), &m); err != nil {
			t.Fatalf("%v: %s", err, line)
		}
		ids[m.ID] = m.Keys + " " + m.Body
	}
	for n, s := range sent {
		if want := fmt.Sprintf("%d %s", n, body(n)); ids[s.id] != want {
			t.Errorf("message %s is %q, want %q", s.id, ids[s.id], want)
		}
	}
}

// runSluice runs one command to its end and returns what it printed.
func runSluice(t *testing.T, in string, args ...string) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, program(t, sluice), args...)
	cmd.Stdin = strings.NewReader(in)
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("sluice %s: %v\n%s", strings.Join(args, " "), err, stderr.String())
	}
	return string(out)
}
