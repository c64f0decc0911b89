package namesrv

import (
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// An Unregistration is what a broker says when it leaves (request 104).
type Unregistration struct {
	Cluster, Name, Addr string
	ID                  int64
	Conn                Conn
}

// Unregister takes a broker out, and reports whether it did. A registration
// stays when another broker name holds the address by now, or when it came by a
// connection opened later than that of u: then u is the late farewell of a
// process that has been replaced.
func (t *RouteTable) Unregister(u Unregistration) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	me := member{u.Cluster, u.Addr}
	l := t.live[me]
	if l == nil || l.name != u.Name || l.conn.ID() > u.Conn.ID() {
		return false
	}
	t.removeLocked(me)
	return true
}

// A Lost is a broker that was taken out because it fell silent or its
// connection closed.
type Lost struct {
	Cluster, Name, Addr string
	ID                  int64
	Silent              time.Duration
}

// ConnClosed takes out the brokers whose present registration came by c.
func (t *RouteTable) ConnClosed(c Conn) []Lost {
	t.mu.Lock()
	defer t.mu.Unlock()
	var lost []Lost
	for me, l := range t.live {
		if l.conn.ID() == c.ID() {
			lost = append(lost, l.lost(me, 0))
		}
	}
	t.removeLostLocked(lost)
	return lost
}

// Expire takes out the brokers that were silent for longer than their time-out,
// and closes their connections unless another broker lives by one. now must
// carry the monotonic clock.
func (t *RouteTable) Expire(now time.Time) []Lost {
	var lost []Lost
	idle := make(map[uint64]Conn)
	t.mu.Lock()
	for me, l := range t.live {
		if silent := now.Sub(l.seen); silent > l.timeout {
			lost = append(lost, l.lost(me, silent))
			idle[l.conn.ID()] = l.conn
		}
	}
	t.removeLostLocked(lost)
	for _, l := range t.live {
		delete(idle, l.conn.ID())
	}
	t.mu.Unlock()
	// Closing may call back into the table.
	for _, c := range idle {
		c.Close()
	}
	return lost
}

func (l *liveBroker) lost(me member, silent time.Duration) Lost {
	return Lost{Cluster: me.cluster, Name: l.name, Addr: me.addr, ID: l.id, Silent: silent}
}

// removeLocked takes one live entry out of every table.
func (t *RouteTable) removeLocked(me member) {
	if l := t.live[me]; l != nil {
		t.removeLostLocked([]Lost{l.lost(me, 0)})
	}
}

// removeLostLocked walks the topics once for all that is lost.
func (t *RouteTable) removeLostLocked(lost []Lost) {
	gone := make(map[string]bool) // by broker name: wholly, or only the master
	for _, l := range lost {
		delete(t.live, member{l.Cluster, l.Addr})
		b := t.brokers[l.Name]
		if b == nil || b.addrs[l.ID] != l.Addr {
			continue
		}
		delete(b.addrs, l.ID)
		t.generation++
		switch {
		case len(b.addrs) == 0:
			delete(t.brokers, l.Name)
			t.forgetNameLocked(l.Name)
			gone[l.Name] = true
		case b.actingMaster && !b.hasMaster():
			gone[l.Name] = false
		}
	}
	if len(gone) == 0 {
		return
	}
	for name, tp := range t.topics {
		for brokerName, wholly := range gone {
			if wholly {
				t.dropQueueLocked(name, tp, brokerName)
			} else if q, ok := tp.queues[brokerName]; ok {
				q.Perm &^= protocol.PermWrite
				tp.queues[brokerName] = q
			}
		}
	}
}

func (t *RouteTable) forgetNameLocked(brokerName string) {
	for cluster, names := range t.clusters {
		delete(names, brokerName)
		if len(names) == 0 {
			delete(t.clusters, cluster)
		}
	}
}
