package clients

import (
	"cmp"
	"maps"
	"slices"

	"github.com/sluicemq/sluice/protocol"
)

// Group returns what the consumers of a group have in common; ok is false when
// none is connected.
func (t *Table) Group(name string) (*Group, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.consumers[name].current()
}

// GroupBytes is Group for a name that lies in a request; it does not allocate.
func (t *Table) GroupBytes(name []byte) (*Group, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.consumers[string(name)].current()
}

// current returns the view of a group that may be nil.
func (g *consumerGroup) current() (*Group, bool) {
	if g == nil {
		return nil, false
	}
	return g.view, true
}

// Subscription returns what a group wants of a topic.
func (t *Table) Subscription(group, topic string) (*protocol.SubscriptionData, bool) {
	g, ok := t.Group(group)
	if !ok {
		return nil, false
	}
	return g.Subscription(topic)
}

// Members returns the client ids of a group's consumers, sorted, each once; nil
// when there is none (request 38).
func (t *Table) Members(group string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	g := t.consumers[group]
	if g == nil {
		return nil
	}
	return slices.Sorted(maps.Keys(g.ids))
}

// Groups returns the connected groups that subscribe to topic, sorted.
func (t *Table) Groups(topic string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var groups []string
	for name, g := range t.consumers {
		if g.view.subscriptions[topic] != nil {
			groups = append(groups, name)
		}
	}
	slices.Sort(groups)
	return groups
}

// Consumers describes a group's connections and subscriptions (request 203); ok
// is false when no consumer is connected.
func (t *Table) Consumers(group string) (c protocol.ConsumerConnection, ok bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	g := t.consumers[group]
	if g == nil {
		return c, false
	}
	subscriptions := make(map[string]protocol.SubscriptionData, len(g.view.subscriptions))
	for topic, s := range g.view.subscriptions {
		subscriptions[topic] = *s
	}
	return protocol.ConsumerConnection{
		ConnectionSet:     connections(g.members),
		SubscriptionTable: subscriptions,
		ConsumeType:       g.view.ConsumeType,
		MessageModel:      g.view.MessageModel,
		ConsumeFromWhere:  g.view.ConsumeFromWhere,
	}, true
}

// Producers lists a group's producers (request 204); nil when there is none.
func (t *Table) Producers(group string) []protocol.Connection {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return connections(t.producers[group])
}

func connections(members map[uint64]*member) []protocol.Connection {
	list := make([]protocol.Connection, 0, len(members))
	for _, m := range members {
		list = append(list, protocol.Connection{
			ClientID: m.clientID, ClientAddr: m.conn.RemoteAddr().String(),
			Language: m.client.Language.String(), Version: m.client.Version,
		})
	}
	slices.SortFunc(list, func(a, b protocol.Connection) int {
		return cmp.Or(cmp.Compare(a.ClientID, b.ClientID), cmp.Compare(a.ClientAddr, b.ClientAddr))
	})
	return list
}

// Stats counts what is registered.
type Stats struct {
	Connections    int
	ConsumerGroups int
	Consumers      int // registrations: a connection counts in each of its groups
	ProducerGroups int
	Producers      int
}

// Stats returns the counts as of one moment.
func (t *Table) Stats() Stats {
	t.mu.RLock()
	defer t.mu.RUnlock()
	s := Stats{Connections: len(t.conns), ConsumerGroups: len(t.consumers), ProducerGroups: len(t.producers)}
	for _, entry := range t.conns {
		s.Consumers += len(entry.consumers)
		s.Producers += len(entry.producers)
	}
	return s
}
