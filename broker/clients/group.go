package clients

import (
	"maps"
	"slices"

	"github.com/sluicemq/sluice/protocol"
)

// A Group is what the consumers of one group have in common, as of one moment.
// It never changes.
type Group struct {
	Name             string
	ConsumeType      protocol.ConsumeType
	MessageModel     protocol.MessageModel
	ConsumeFromWhere protocol.ConsumeFromWhere
	subscriptions    map[string]*protocol.SubscriptionData
}

// Subscription returns what the group wants of topic.
func (g *Group) Subscription(topic string) (*protocol.SubscriptionData, bool) {
	s, ok := g.subscriptions[topic]
	return s, ok
}

// SubscriptionBytes is Subscription for a name that lies in a request; it does
// not allocate.
func (g *Group) SubscriptionBytes(topic []byte) (*protocol.SubscriptionData, bool) {
	s, ok := g.subscriptions[string(topic)]
	return s, ok
}

// Topics returns the topics that the group subscribes to, in order.
func (g *Group) Topics() []string { return slices.Sorted(maps.Keys(g.subscriptions)) }

// consumerGroup is a group with its members. It is guarded by Table.mu; view is
// replaced and never changed, so that it may be handed out.
type consumerGroup struct {
	view    *Group
	members map[uint64]*member // by connection
	ids     map[string]int     // connections per client id
	// owners tells for each topic whose subscription is in view.
	owners      map[string]string
	fingerprint int32               // of the last heartbeat V2
	warned      map[string]struct{} // topics on which members disagree
}

func newConsumerGroup(name string) *consumerGroup {
	return &consumerGroup{
		view:    &Group{Name: name},
		members: map[uint64]*member{},
		ids:     map[string]int{},
		owners:  map[string]string{},
	}
}

func (g *consumerGroup) add(m *member) {
	g.remove(m.conn.ID())
	g.members[m.conn.ID()] = m
	g.ids[m.clientID]++
}

func (g *consumerGroup) remove(conn uint64) {
	m := g.members[conn]
	if m == nil {
		return
	}
	delete(g.members, conn)
	if g.ids[m.clientID]--; g.ids[m.clientID] == 0 {
		delete(g.ids, m.clientID)
	}
}

// describe takes over how the group consumes.
func (g *consumerGroup) describe(data *protocol.ConsumerData) {
	v := g.view
	if v.ConsumeType == data.ConsumeType && v.MessageModel == data.MessageModel && v.ConsumeFromWhere == data.ConsumeFromWhere {
		return
	}
	next := *v
	next.ConsumeType, next.MessageModel, next.ConsumeFromWhere = data.ConsumeType, data.MessageModel, data.ConsumeFromWhere
	g.view = &next
}

// fingerprintChanged remembers the fingerprint of a heartbeat V2 and says
// whether the client must send its subscriptions: they differ from the ones that
// the group sent last, or this broker never heard them.
func (g *consumerGroup) fingerprintChanged(hb *protocol.HeartbeatData) bool {
	if hb.HeartbeatFingerprint == 0 {
		return false
	}
	known := g.fingerprint
	g.fingerprint = hb.HeartbeatFingerprint
	return known != 0 && known != hb.HeartbeatFingerprint || hb.WithoutSub && len(g.view.subscriptions) == 0
}

// subscribe makes the group's subscriptions follow one member's heartbeat.
//
// Per topic the newest version counts, as on Apache's broker. A version is the
// client's clock, though, so an older one counts too when it comes from the
// client whose subscription is there (its clock was set back), or when that
// client has left. For the same reason a topic that this member does not have is
// dropped only if no other living member brought it: members that disagree then
// do not undo each other's work at every heartbeat.
//
// It returns a topic on which living members disagree, or "", and whether
// anything changed that members need to know.
func (g *consumerGroup) subscribe(client string, subs []protocol.SubscriptionData) (conflict string, changed bool) {
	next := make(map[string]*protocol.SubscriptionData, len(subs))
	touched := false
	for i := range subs {
		sub := &subs[i]
		old := g.view.subscriptions[sub.Topic]
		next[sub.Topic] = old
		owner := g.owners[sub.Topic]
		other := owner != client && g.ids[owner] > 0
		if old != nil && other && !equalSubscription(old, sub) {
			conflict = sub.Topic
		}
		if old != nil && (sub.SubVersion == old.SubVersion || sub.SubVersion < old.SubVersion && other) {
			continue
		}
		kept := *sub
		next[sub.Topic] = &kept
		g.owners[sub.Topic] = client
		touched = true
		changed = changed || old == nil || sub.SubVersion > old.SubVersion || !equalSubscription(old, sub)
	}
	for topic, old := range g.view.subscriptions {
		if _, ok := next[topic]; ok {
			continue
		}
		if owner := g.owners[topic]; owner != client && g.ids[owner] > 0 {
			next[topic], conflict = old, topic
			continue
		}
		delete(g.owners, topic)
		touched, changed = true, true
	}
	if touched {
		view := *g.view
		view.subscriptions = next
		g.view = &view
	}
	return conflict, changed
}

func equalSubscription(a, b *protocol.SubscriptionData) bool {
	return a.SubString == b.SubString && a.ExpressionType == b.ExpressionType && a.ClassFilterMode == b.ClassFilterMode
}

// warn says whether a disagreement on topic is new.
func (g *consumerGroup) warn(topic string) bool {
	if _, ok := g.warned[topic]; ok {
		return false
	}
	if g.warned == nil {
		g.warned = map[string]struct{}{}
	}
	g.warned[topic] = struct{}{}
	return true
}
