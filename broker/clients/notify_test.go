package clients_test

import (
	"context"
	"fmt"
	"testing"
	"testing/synctest"
	"time"

	"github.com/sluicemq/sluice/broker/clients"
	"github.com/sluicemq/sluice/protocol"
)

// running calls f with a table that runs on fake time.
func running(t *testing.T, o clients.Options, f func(t *testing.T, table *clients.Table)) {
	synctest.Test(t, func(t *testing.T) {
		table := clients.New(o)
		ctx, stop := context.WithCancel(t.Context())
		ended := make(chan error)
		go func() { ended <- table.Run(ctx) }()
		defer func() {
			stop()
			if err := <-ended; err != nil {
				t.Error(err)
			}
		}()
		f(t, table)
	})
}

// settle lets every push that is owed go out.
func settle() { time.Sleep(10 * time.Second); synctest.Wait() }

// member is a consumer of group g on a connection of its own.
func member(t *testing.T, table *clients.Table, id uint64) *fakeConn {
	t.Helper()
	c := newConn(id)
	beat(t, table, c, heartbeat(fmt.Sprint("c", id), consumer("g", sub("t", "*", 1))))
	return c
}

func TestMembersAreToldOfEachOtherAtOnce(t *testing.T) {
	tests := map[string]func(t *testing.T, table *clients.Table, leaver *fakeConn){
		"join":       func(t *testing.T, table *clients.Table, _ *fakeConn) { member(t, table, 3) },
		"unregister": func(_ *testing.T, table *clients.Table, c *fakeConn) { table.Unregister(c, "", "g") },
		"end":        func(_ *testing.T, table *clients.Table, c *fakeConn) { c.end(table) },
		"other version": func(t *testing.T, table *clients.Table, c *fakeConn) {
			beat(t, table, c, heartbeat("c2", consumer("g", sub("t", "x", 2))))
		},
		"topic gone": func(t *testing.T, table *clients.Table, c *fakeConn) {
			beat(t, table, c, heartbeat("c2", consumer("g")))
		},
	}
	for name, change := range tests {
		t.Run(name, func(t *testing.T) {
			running(t, clients.Options{}, func(t *testing.T, table *clients.Table) {
				one := newConn(1)
				beat(t, table, one, heartbeat("c1", consumer("g")))
				two := member(t, table, 2)
				settle()
				one.pushes()
				start := time.Now()
				change(t, table, two)
				time.Sleep(time.Millisecond)
				synctest.Wait()
				if n := one.pushes(); n != 1 {
					t.Errorf("%d pushes within %v, want 1", n, time.Since(start))
				}
				settle()
				if n := one.pushes(); n != 0 {
					t.Errorf("%d pushes more", n)
				}
			})
		})
	}
}

func TestPlainHeartbeatsTellNobody(t *testing.T) {
	running(t, clients.Options{}, func(t *testing.T, table *clients.Table) {
		one, two := member(t, table, 1), member(t, table, 2)
		settle()
		one.pushes()
		for range 10 {
			time.Sleep(30 * time.Second)
			beat(t, table, one, heartbeat("c1", consumer("g", sub("t", "*", 1))))
			beat(t, table, two, heartbeat("c2", consumer("g", sub("t", "*", 1))))
		}
		settle()
		if n := one.pushes(); n != 0 {
			t.Errorf("%d pushes without a change", n)
		}
	})
}

// A thousand clients that start together cost some pushes each, not a thousand.
func TestBurstOfJoinsIsTold(t *testing.T) {
	running(t, clients.Options{}, func(t *testing.T, table *clients.Table) {
		const members = 1000
		var conns []*fakeConn
		for i := range uint64(members) {
			conns = append(conns, member(t, table, i))
			time.Sleep(time.Millisecond)
		}
		settle()
		for _, c := range conns {
			if n := c.pushes(); n < 1 || n > 12 {
				t.Fatalf("connection %d got %d pushes in the second of the burst, want 1 to 12", c.id, n)
			}
		}
		conns[7].end(table)
		time.Sleep(50 * time.Millisecond)
		synctest.Wait()
		if n := conns[8].pushes(); n != 1 {
			t.Errorf("%d pushes within 50 ms of a lone change, want 1", n)
		}
	})
}

func TestWhoIsNotTold(t *testing.T) {
	t.Run("broadcasting", func(t *testing.T) {
		running(t, clients.Options{}, func(t *testing.T, table *clients.Table) {
			c := newConn(1)
			hb := heartbeat("c", consumer("g", sub("t", "*", 1)))
			hb.ConsumerDataSet[0].MessageModel = protocol.Broadcasting
			beat(t, table, c, hb)
			settle()
			if n := c.pushes(); n != 0 {
				t.Errorf("%d pushes", n)
			}
		})
	})
	t.Run("group settings", func(t *testing.T) {
		o := clients.Options{NotifyEnabled: func(group string) bool { return group != "g" }}
		running(t, o, func(t *testing.T, table *clients.Table) {
			c := member(t, table, 1)
			settle()
			if n := c.pushes(); n != 0 {
				t.Errorf("%d pushes", n)
			}
		})
	})
}

func TestBrokenConnectionDoesNotKeepOthersFromHearing(t *testing.T) {
	running(t, clients.Options{}, func(t *testing.T, table *clients.Table) {
		one := member(t, table, 1)
		one.broken = true
		two := member(t, table, 2)
		settle()
		if n := two.pushes(); n == 0 {
			t.Error("no push")
		}
	})
}

func TestSilentClientsExpire(t *testing.T) {
	running(t, clients.Options{}, func(t *testing.T, table *clients.Table) {
		silent, alive := newConn(1), member(t, table, 2)
		hb := heartbeat("c1", consumer("g", sub("t", "*", 1)))
		hb.ProducerDataSet = []protocol.ProducerData{{GroupName: "p"}}
		beat(t, table, silent, hb)
		for range 4 {
			time.Sleep(29 * time.Second)
			beat(t, table, alive, heartbeat("c2", consumer("g", sub("t", "*", 1))))
		}
		if got := fmt.Sprint(table.Members("g")); got != "[c1 c2]" || silent.isClosed() {
			t.Fatalf("after 116 s: members %s, closed %v", got, silent.isClosed())
		}
		alive.pushes()
		time.Sleep(15 * time.Second)
		synctest.Wait()
		if got := fmt.Sprint(table.Members("g")); got != "[c2]" || len(table.Producers("p")) != 0 {
			t.Errorf("after 131 s: members %s, producers %v", got, table.Producers("p"))
		}
		if !silent.isClosed() || alive.isClosed() {
			t.Errorf("closed: silent %v, alive %v", silent.isClosed(), alive.isClosed())
		}
		if n := alive.pushes(); n != 1 {
			t.Errorf("%d pushes about the one that left, want 1", n)
		}
	})
}

// A group that a client has dropped without a word expires; the connection,
// which other groups use, stays.
func TestExpiryOfOneGroupKeepsTheConnection(t *testing.T) {
	running(t, clients.Options{}, func(t *testing.T, table *clients.Table) {
		c := newConn(1)
		beat(t, table, c, produce("c", "old", "new"))
		for range 10 {
			time.Sleep(30 * time.Second)
			beat(t, table, c, produce("c", "new"))
		}
		if len(table.Producers("old")) != 0 || len(table.Producers("new")) != 1 || c.isClosed() {
			t.Errorf("old %v, new %v, closed %v", table.Producers("old"), table.Producers("new"), c.isClosed())
		}
	})
}
