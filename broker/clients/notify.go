package clients

import (
	"context"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/protocol"
)

// A group that changes is told at once; while it goes on changing it is told
// again after a gap that grows with its size. So n clients that join in a burst
// get some rounds of n messages and not n of them.
const (
	notifyGap       = 100 * time.Millisecond
	notifyGapMember = time.Millisecond
	notifyGapMax    = 5 * time.Second
	// notifySenders bounds how many slow connections are written to at once.
	notifySenders = 16
)

// notices is the set of groups that are to be told of a change. Only Run takes
// from it.
type notices struct {
	wake chan struct{} // holds one token when add has something new

	mu     sync.Mutex
	groups map[string]*notice
}

type notice struct {
	due  bool
	next time.Time // not before this
}

func newNotices() notices {
	return notices{wake: make(chan struct{}, 1), groups: map[string]*notice{}}
}

func (n *notices) add(group string) {
	n.mu.Lock()
	g := n.groups[group]
	if g == nil {
		g = &notice{}
		n.groups[group] = g
	}
	g.due = true
	n.mu.Unlock()
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

// take returns the groups to tell now and how long to wait for the next one; a
// wait of 0 means that none is waiting. Groups whose gap is over are forgotten.
func (n *notices) take(now time.Time) (ready []string, wait time.Duration) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, g := range n.groups {
		switch left := g.next.Sub(now); {
		case left > 0:
			if g.due && (wait == 0 || left < wait) {
				wait = left
			}
		case g.due:
			g.due = false
			ready = append(ready, name)
		default:
			delete(n.groups, name)
		}
	}
	return ready, wait
}

// sent notes that a group of so many members was told.
func (n *notices) sent(group string, members int, now time.Time) {
	gap := min(max(notifyGap, time.Duration(members)*notifyGapMember), notifyGapMax)
	n.mu.Lock()
	defer n.mu.Unlock()
	if g := n.groups[group]; g != nil {
		g.next = now.Add(gap)
	}
}

// Run ends registrations that have gone silent and tells groups of changes,
// until ctx ends.
func (t *Table) Run(ctx context.Context) error {
	var g errgroup.Group
	g.Go(func() error { t.runExpiry(ctx); return nil })
	g.Go(func() error { t.runNotices(ctx); return nil })
	return g.Wait()
}

func (t *Table) runNotices(ctx context.Context) {
	var senders errgroup.Group
	senders.SetLimit(notifySenders)
	defer func() { _ = senders.Wait() }()
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		ready, wait := t.notices.take(time.Now())
		for _, group := range ready {
			t.notices.sent(group, t.notify(group, &senders), time.Now())
		}
		var due <-chan time.Time
		if wait > 0 {
			timer.Reset(wait)
			due = timer.C
		}
		select {
		case <-ctx.Done():
			return
		case <-t.notices.wake:
		case <-due:
		}
	}
}

// notify tells every member of a group, the one whose change it was included,
// and returns how many there are. A member that cannot be reached learns of the
// change when it next looks.
func (t *Table) notify(group string, senders *errgroup.Group) int {
	var conns []Conn
	t.mu.RLock()
	if g := t.consumers[group]; g != nil && g.view.MessageModel != protocol.Broadcasting {
		for _, m := range g.members {
			conns = append(conns, m.conn)
		}
	}
	t.mu.RUnlock()
	if len(conns) == 0 || !t.o.NotifyEnabled(group) {
		return 0
	}
	for _, c := range conns {
		senders.Go(func() error {
			push := protocol.NewRequest(protocol.NotifyConsumerIDsChanged, &protocol.NotifyConsumerIDsChangedRequest{ConsumerGroup: group}, nil)
			if err := c.OneWay(push); err != nil {
				t.o.Logger.Debug("consumer not told of a change in its group", "group", group, "remote", c.RemoteAddr(), "err", err)
			}
			return nil
		})
	}
	return len(conns)
}

func (t *Table) runExpiry(ctx context.Context) {
	ticker := time.NewTicker(t.o.ScanInterval)
	defer ticker.Stop()
	for {
		select {
		case <-ctx.Done():
			return
		case <-ticker.C:
			t.expire(time.Now())
		}
	}
}

// expire ends the registrations without a heartbeat for longer than Expiry, and
// closes the connections that then have none left: their peers are gone, or will
// connect again.
func (t *Table) expire(now time.Time) {
	var silent []Conn
	var changed []string
	t.mu.Lock()
	for id, entry := range t.conns {
		for group := range entry.producers {
			if now.Sub(t.producers[group][id].seen) > t.o.Expiry {
				t.leaveProducerLocked(entry, group)
			}
		}
		for group := range entry.consumers {
			if now.Sub(t.consumers[group].members[id].seen) > t.o.Expiry {
				t.leaveConsumerLocked(entry, group)
				changed = append(changed, group)
			}
		}
		if entry.groups() == 0 {
			silent = append(silent, entry.conn)
		}
	}
	t.mu.Unlock()
	for _, group := range changed {
		t.notices.add(group)
	}
	for _, c := range silent {
		t.o.Logger.Info("client closed: no heartbeat", "remote", c.RemoteAddr(), "limit", t.o.Expiry)
		c.Close()
	}
}
