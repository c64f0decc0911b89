package namesrv

import (
	"context"
	"log/slog"
	"testing"
	"testing/synctest"
	"time"
)

// TestSilentBrokerExpires runs the real loop on a fake clock.
func TestSilentBrokerExpires(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		ctx, cancel := context.WithCancel(t.Context())
		rt := NewRouteTable(RouteOptions{})
		done := make(chan error)
		go func() { done <- expireSilent(ctx, rt, DefaultScanInterval, slog.New(slog.DiscardHandler)) }()

		quick, slow := master(&fakeConn{id: 1}), master(&fakeConn{id: 2})
		quick.Timeout = 10 * time.Second
		slow.Name, slow.Addr = "broker-b", "10.0.0.5:10911"
		for _, r := range []*Registration{quick, slow} {
			if _, err := rt.Register(r, time.Now()); err != nil {
				t.Fatal(err)
			}
		}
		check := func(after time.Duration, want ...string) {
			t.Helper()
			time.Sleep(after) // of the fake clock
			synctest.Wait()
			got, _ := rt.SystemTopics()
			if len(got) != len(want) {
				t.Errorf("alive %v, want %v", got, want)
			}
		}
		check(9*time.Second, "broker-a", "broker-b", "c1")
		rt.Touch("c1", "10.0.0.1:10911", time.Now()) // heartbeat
		check(10*time.Second, "broker-a", "broker-b", "c1")
		check(5*time.Second, "broker-b", "c1") // silent for 15 s, seen at the scan
		if quick.Conn.(*fakeConn).closed != 1 {
			t.Error("the silent broker's connection stays open")
		}
		check(96*time.Second, "broker-b", "c1")
		check(6 * time.Second) // 126 s
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
}
