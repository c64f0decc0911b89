package main

import (
	"context"
	"errors"
	"log/slog"
	"strings"
	"sync"
	"testing"
	"testing/synctest"
	"time"
)

// journal notes what parts do, in order.
type journal struct {
	mu     sync.Mutex
	events []string
}

func (j *journal) note(event string) {
	j.mu.Lock()
	defer j.mu.Unlock()
	j.events = append(j.events, event)
}

func (j *journal) String() string {
	j.mu.Lock()
	defer j.mu.Unlock()
	return strings.Join(j.events, ", ")
}

// waits is a part that runs until it is stopped, and takes a while to end.
func (j *journal) waits(name string, takes time.Duration) part {
	return part{name, func(ctx context.Context) error {
		<-ctx.Done()
		j.note(name + " stops")
		time.Sleep(takes)
		j.note(name + " ended")
		return nil
	}}
}

func testProcess(stores, roles []part) *process {
	return &process{log: slog.New(slog.DiscardHandler), base: stores, roles: roles}
}

func TestStoresOutliveRoles(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		p := testProcess([]part{j.waits("store", time.Second)}, []part{j.waits("role", 3*time.Second)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		if err := p.run(ctx, 10*time.Second); err != nil {
			t.Fatal(err)
		}
		if got := j.String(); got != "role stops, role ended, store stops, store ended" {
			t.Errorf("got %s", got)
		}
	})
}

func TestAFailingPartEndsTheOthers(t *testing.T) {
	fails := part{"bad", func(context.Context) error { return errors.New("broken") }}
	ends := part{"bad", func(context.Context) error { return nil }}
	tests := []struct {
		name          string
		stores, roles func(j *journal) []part
		want          string
	}{
		{"role", func(j *journal) []part { return []part{j.waits("store", 0)} }, func(j *journal) []part { return []part{j.waits("role", 0), fails} }, "bad: broken"},
		{"store", func(j *journal) []part { return []part{fails} }, func(j *journal) []part { return []part{j.waits("role", 0)} }, "bad: broken"},
		{"role that ends by itself", func(j *journal) []part { return []part{j.waits("store", 0)} }, func(j *journal) []part { return []part{ends} }, "bad: ended by itself"},
		{"store that ends by itself", func(j *journal) []part { return []part{ends} }, func(j *journal) []part { return []part{j.waits("role", 0)} }, "bad: ended by itself"},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				var j journal
				err := testProcess(tt.stores(&j), tt.roles(&j)).run(t.Context(), 10*time.Second)
				if err == nil || err.Error() != tt.want {
					t.Errorf("got %v, want %s", err, tt.want)
				}
			})
		})
	}
}

func TestStopIsBounded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var j journal
		p := testProcess(nil, []part{j.waits("role", time.Hour)})
		ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
		defer cancel()
		began := time.Now()
		err := p.run(ctx, 10*time.Second)
		if err == nil || !strings.Contains(err.Error(), "not stopped within 10s") {
			t.Errorf("got %v", err)
		}
		if took := time.Since(began); took != 70*time.Second {
			t.Errorf("took %s", took)
		}
		time.Sleep(time.Hour) // the part's own end, so that no goroutine is left
		synctest.Wait()
	})
}
