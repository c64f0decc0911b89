// Package clients is the table of who is connected to a broker: producers and
// consumers by group, what each group subscribes to, and the push that tells a
// group's members of one another.
//
// A registration belongs to a connection, not to a client id: when a client
// reconnects, the end of its old connection takes away the old registration and
// leaves the new one.
package clients

import (
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"sync"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// A Conn is a client's connection, as far as this table needs it. The table
// calls OneWay and Close without holding its lock.
type Conn interface {
	// ID is never used again for another connection.
	ID() uint64
	RemoteAddr() netip.AddrPort
	// Context ends before the owner of the connection calls ConnClosed.
	Context() context.Context
	OneWay(*protocol.Command) error
	Close()
}

// A Client is what each request says of the program that sent it.
type Client struct {
	Language protocol.Language
	Version  int32
}

// Options configure a Table. Zero values take the defaults.
type Options struct {
	Expiry       time.Duration // 120 s without a heartbeat end a registration
	ScanInterval time.Duration // 10 s between looks for such
	MaxGroups    int           // most groups of one connection; 1024
	// NotifyEnabled (may be nil: always) says whether a group's settings want
	// its members told of changes. It must not call the table.
	NotifyEnabled func(group string) bool
	Logger        *slog.Logger
}

func (o *Options) setDefaults() {
	if o.Expiry <= 0 {
		o.Expiry = 120 * time.Second
	}
	if o.ScanInterval <= 0 {
		o.ScanInterval = 10 * time.Second
	}
	if o.MaxGroups <= 0 {
		o.MaxGroups = 1024
	}
	if o.NotifyEnabled == nil {
		o.NotifyEnabled = func(string) bool { return true }
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A Table holds the registrations. All methods are safe for concurrent use.
type Table struct {
	o       Options
	notices notices

	mu        sync.RWMutex
	conns     map[uint64]*connection
	consumers map[string]*consumerGroup
	producers map[string]map[uint64]*member
	joined    uint64 // registrations of all time, to order them
}

// connection lists what one connection is registered for.
type connection struct {
	conn      Conn
	consumers map[string]struct{}
	producers map[string]struct{}
}

func (c *connection) groups() int { return len(c.consumers) + len(c.producers) }

// member is one connection in one group.
type member struct {
	conn     Conn
	clientID string
	client   Client
	joined   uint64
	seen     time.Time // of the last heartbeat; compared by monotonic time
	warned   bool      // that another connection uses the same client id
}

// New returns an empty Table. It starts nothing: see Run.
func New(o Options) *Table {
	o.setDefaults()
	return &Table{
		o: o, notices: newNotices(),
		conns:     map[uint64]*connection{},
		consumers: map[string]*consumerGroup{},
		producers: map[string]map[uint64]*member{},
	}
}

// ErrTooManyGroups means that a heartbeat named more groups than one connection
// may be in; those within the limit are registered.
var ErrTooManyGroups = errors.New("too many groups on one connection")

// Heartbeat registers a client's groups, or keeps them registered. The caller
// has left out groups that may not consume here. SubChange is what the answer's
// IS_SUB_CHANGE says: whether the client is to send its subscriptions next time.
// An illegal group is passed over and gives a *protocol.Error when the rest is
// done.
func (t *Table) Heartbeat(c Conn, from Client, hb *protocol.HeartbeatData) (subChange bool, err error) {
	if hb.ClientID == "" {
		return false, protocol.Errorf(protocol.InvalidParameter, "the heartbeat has no clientID")
	}
	b := beat{conn: c, client: from, data: hb, now: time.Now(), subChange: hb.HeartbeatFingerprint == 0}
	b.check()
	t.mu.Lock()
	// A connection that has ended was, or will be, taken out by ConnClosed,
	// which must not run before its last registration.
	if c.Context().Err() == nil {
		t.registerLocked(&b)
	}
	t.mu.Unlock()
	for _, group := range b.changed {
		t.notices.add(group)
	}
	return b.subChange, b.err
}

// beat is a heartbeat on its way through the table.
type beat struct {
	conn      Conn
	client    Client
	data      *protocol.HeartbeatData
	now       time.Time
	consumers []*protocol.ConsumerData // those with a legal name
	producers []string
	changed   []string // consumer groups with a change to tell of
	subChange bool
	err       error
}

func (b *beat) check() {
	for i := range b.data.ConsumerDataSet {
		d := &b.data.ConsumerDataSet[i]
		if b.legal(d.GroupName) {
			b.consumers = append(b.consumers, d)
		}
	}
	for i := range b.data.ProducerDataSet {
		if name := b.data.ProducerDataSet[i].GroupName; b.legal(name) {
			b.producers = append(b.producers, name)
		}
	}
}

func (b *beat) legal(group string) bool {
	err := message.ValidateGroup(group)
	if err != nil {
		b.err = protocol.Errorf(protocol.InvalidParameter, "%v", err)
	}
	return err == nil
}

func (t *Table) registerLocked(b *beat) {
	if len(b.consumers)+len(b.producers) == 0 {
		return
	}
	entry := t.conns[b.conn.ID()]
	if entry == nil {
		entry = &connection{conn: b.conn, consumers: map[string]struct{}{}, producers: map[string]struct{}{}}
		t.conns[b.conn.ID()] = entry
	}
	for _, name := range b.producers {
		if t.admitLocked(entry, entry.producers, name, b) {
			t.registerProducerLocked(name, b)
		}
	}
	for _, data := range b.consumers {
		if t.admitLocked(entry, entry.consumers, data.GroupName, b) {
			t.registerConsumerLocked(data, b)
		}
	}
}

// admitLocked notes on the connection that it is in group, if there is room.
func (t *Table) admitLocked(entry *connection, set map[string]struct{}, group string, b *beat) bool {
	if _, ok := set[group]; ok {
		return true
	}
	if entry.groups() >= t.o.MaxGroups {
		b.err = ErrTooManyGroups
		return false
	}
	set[group] = struct{}{}
	return true
}

func (t *Table) newMemberLocked(b *beat) *member {
	t.joined++
	return &member{conn: b.conn, clientID: b.data.ClientID, client: b.client, joined: t.joined, seen: b.now}
}

func (t *Table) registerProducerLocked(group string, b *beat) {
	members := t.producers[group]
	if members == nil {
		members = map[uint64]*member{}
		t.producers[group] = members
	}
	m := members[b.conn.ID()]
	if m == nil || m.clientID != b.data.ClientID {
		members[b.conn.ID()] = t.newMemberLocked(b)
		return
	}
	m.seen, m.client = b.now, b.client
}

func (t *Table) registerConsumerLocked(data *protocol.ConsumerData, b *beat) {
	g := t.consumers[data.GroupName]
	if g == nil {
		g = newConsumerGroup(data.GroupName)
		t.consumers[data.GroupName] = g
	}
	changed := false
	m := g.members[b.conn.ID()]
	if m == nil || m.clientID != b.data.ClientID {
		g.add(t.newMemberLocked(b))
		changed = true
	} else {
		m.seen, m.client = b.now, b.client
		t.warnDuplicate(g, m)
	}
	if g.fingerprintChanged(b.data) {
		b.subChange = true
	}
	g.describe(data)
	if b.data.HeartbeatFingerprint == 0 || !b.data.WithoutSub {
		conflict, replaced := g.subscribe(b.data.ClientID, data.SubscriptionDataSet)
		changed = changed || replaced
		if conflict != "" && g.warn(conflict) {
			t.o.Logger.Warn("members of one group subscribe differently; the newest subscription counts",
				"group", g.view.Name, "topic", conflict, "client", b.data.ClientID)
		}
	}
	if changed {
		b.changed = append(b.changed, g.view.Name)
	}
}

// warnDuplicate warns once of two connections that both keep one client id
// alive: the group would hand their queues out once and read them twice. A
// client that reconnects does not look like this: its old connection is silent.
func (t *Table) warnDuplicate(g *consumerGroup, m *member) {
	if m.warned || g.ids[m.clientID] < 2 {
		return
	}
	for _, other := range g.members {
		if other.clientID == m.clientID && other.joined > m.joined {
			m.warned, other.warned = true, true
			t.o.Logger.Warn("two connections use one client id; they will consume the same queues", "group", g.view.Name,
				"client", m.clientID, "remote", m.conn.RemoteAddr(), "other", other.conn.RemoteAddr())
			return
		}
	}
}

// Unregister ends a connection's registrations for the groups named; an empty
// name is none.
func (t *Table) Unregister(c Conn, producerGroup, consumerGroup string) {
	t.mu.Lock()
	if entry := t.conns[c.ID()]; entry != nil {
		if _, ok := entry.producers[producerGroup]; ok {
			t.leaveProducerLocked(entry, producerGroup)
		}
		if _, ok := entry.consumers[consumerGroup]; ok {
			defer t.notices.add(consumerGroup)
			t.leaveConsumerLocked(entry, consumerGroup)
		}
	}
	t.mu.Unlock()
}

// ConnClosed ends all registrations of a connection.
func (t *Table) ConnClosed(c Conn) {
	var changed []string
	t.mu.Lock()
	if entry := t.conns[c.ID()]; entry != nil {
		for group := range entry.producers {
			t.leaveProducerLocked(entry, group)
		}
		for group := range entry.consumers {
			t.leaveConsumerLocked(entry, group)
			changed = append(changed, group)
		}
	}
	t.mu.Unlock()
	for _, group := range changed {
		t.notices.add(group)
	}
}

func (t *Table) leaveProducerLocked(entry *connection, group string) {
	id := entry.conn.ID()
	delete(entry.producers, group)
	delete(t.producers[group], id)
	if len(t.producers[group]) == 0 {
		delete(t.producers, group)
	}
	if entry.groups() == 0 {
		delete(t.conns, id)
	}
}

func (t *Table) leaveConsumerLocked(entry *connection, group string) {
	id := entry.conn.ID()
	delete(entry.consumers, group)
	if g := t.consumers[group]; g != nil {
		if g.remove(id); len(g.members) == 0 {
			delete(t.consumers, group)
		}
	}
	if entry.groups() == 0 {
		delete(t.conns, id)
	}
}
