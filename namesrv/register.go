package namesrv

import (
	"maps"
	"slices"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// maxBrokerTimeout bounds the silence that a broker may ask to be allowed.
const maxBrokerTimeout = 24 * time.Hour

// A Registration is what a broker says of itself (request 103).
type Registration struct {
	Cluster, Name, Addr string
	ID                  int64 // 0 is the master
	HAAddr, Zone        string
	Timeout             time.Duration // 0: the table's
	ActingMaster        protocol.Opt[bool]
	Version             protocol.DataVersion
	Topics              []protocol.TopicConfig
	Mappings            map[string]protocol.TopicQueueMappingInfo // by topic
	Filters             []string                                  // nil: say nothing
	Conn                Conn
}

// A Registered is the outcome of a registration.
type Registered struct {
	MasterAddr, HAAddr string // for slaves of a live master
	New                bool   // the process was not known before
	Changed            bool   // its data version was not known before
	// Conflict: the id belongs to another address whose state is newer. The
	// registration has no effect, but is no error.
	Conflict bool
	Rejected int // topics for which there was no room
}

// Register enters a broker and its topics, in the steps of Apache's name server
// (RocketMQ name server, "REGISTER_BROKER algorithm"); unlike there, a
// registration that is refused changes nothing. now must carry the monotonic
// clock.
func (t *RouteTable) Register(r *Registration, now time.Time) (Registered, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	var res Registered
	me := member{r.Cluster, r.Addr}
	known := t.live[me]
	var old string // the address that has the id now
	b := t.brokers[r.Name]
	if b != nil {
		old = b.addrs[r.ID]
	}
	if old != "" && old != r.Addr {
		if l := t.live[member{b.cluster, old}]; l != nil && l.version.StateVersion > r.Version.StateVersion {
			t.removeLocked(me)
			return Registered{Conflict: true}, nil
		}
	}
	// One topic alone may be the news of a change that overtook the first,
	// complete registration; a broker that has just that one would lose its
	// other topics.
	if old == "" && len(r.Topics) == 1 {
		return res, protocol.Errorf(protocol.SystemError, "register broker failed")
	}
	if b != nil && b.cluster != r.Cluster && !b.hasOnly(r.Addr) {
		return res, protocol.Errorf(protocol.SystemError, "register broker failed: broker name %s is in use in cluster %s", r.Name, b.cluster)
	}
	if known == nil && len(t.live) >= t.o.MaxBrokers {
		return res, protocol.Errorf(protocol.SystemError, "register broker failed: %d brokers are registered", len(t.live))
	}

	first := t.takePlaceLocked(r, old)
	b = t.brokers[r.Name]
	res.New = known == nil
	res.Changed = known == nil || known.version != r.Version
	prime := r.ActingMaster.Present && r.ID != masterID && r.ID == b.minID()
	if r.ID == masterID || prime {
		readOnly := prime && b.actingMaster
		res.Rejected = t.applyTopicsLocked(r, first || res.Changed, readOnly)
	}
	t.setLiveLocked(me, r, now)
	if r.ID != masterID {
		if l := t.live[member{b.cluster, b.addrs[masterID]}]; l != nil {
			res.MasterAddr, res.HAAddr = b.addrs[masterID], l.haAddr
		}
	}
	return res, nil
}

// takePlaceLocked enters the address under its name and id, and takes out what
// it replaces: itself under another id or name, another address under its id.
// It reports whether the id had no address before.
func (t *RouteTable) takePlaceLocked(r *Registration, old string) (first bool) {
	me := member{r.Cluster, r.Addr}
	if l := t.live[me]; l != nil && l.name != r.Name {
		t.removeLocked(me)
	}
	b := t.brokers[r.Name]
	if b != nil && b.cluster != r.Cluster {
		t.removeLocked(member{b.cluster, r.Addr}) // its only address, so b goes with it
		b, old = nil, ""
	}
	if b == nil {
		b = &broker{cluster: r.Cluster, addrs: make(map[int64]string, 1)}
		t.brokers[r.Name] = b
		t.generation++
	}
	names := t.clusters[r.Cluster]
	if names == nil {
		names = make(map[string]struct{}, 1)
		t.clusters[r.Cluster] = names
	}
	names[r.Name] = struct{}{}
	if acting := r.ActingMaster.Or(false); b.actingMaster != acting || b.zone != r.Zone {
		b.actingMaster, b.zone = acting, r.Zone
		t.generation++
	}
	for id, addr := range b.addrs {
		if addr == r.Addr && id != r.ID {
			delete(b.addrs, id)
			t.generation++
		}
	}
	if old != r.Addr {
		if old != "" {
			delete(t.live, member{b.cluster, old})
		}
		b.addrs[r.ID] = r.Addr
		t.generation++
	}
	return old == ""
}

// applyTopicsLocked enters the topics: all of them, or those that the broker
// had not yet. It returns the number for which there was no room.
func (t *RouteTable) applyTopicsLocked(r *Registration, all, readOnly bool) (rejected int) {
	if t.o.DeleteTopics && all && len(r.Mappings) == 0 {
		t.keepTopicsLocked(r)
	}
	for _, c := range r.Topics {
		if tp := t.topics[c.TopicName]; !all && tp != nil {
			if _, has := tp.queues[r.Name]; has {
				continue
			}
		}
		q := protocol.QueueData{
			BrokerName:     r.Name,
			ReadQueueNums:  c.ReadQueueNums,
			WriteQueueNums: c.WriteQueueNums,
			Perm:           c.Perm,
			TopicSysFlag:   c.TopicSysFlag,
		}
		if readOnly {
			q.Perm &^= protocol.PermWrite
		}
		if !t.setQueueLocked(c.TopicName, q) {
			rejected++
		}
	}
	if all {
		t.applyMappingsLocked(r)
	}
	return rejected
}

// applyMappingsLocked keeps the layout of static topics. A mapping of a topic
// without queue data would never be shown.
func (t *RouteTable) applyMappingsLocked(r *Registration) {
	for name, m := range r.Mappings {
		tp := t.topics[name]
		if tp == nil {
			continue
		}
		if tp.mapping == nil {
			tp.mapping = make(map[string]protocol.TopicQueueMappingInfo, 1)
		}
		tp.mapping[r.Name] = m
		t.generation++
	}
}

// keepTopicsLocked drops the broker's topics that r does not list.
func (t *RouteTable) keepTopicsLocked(r *Registration) {
	listed := make(map[string]struct{}, len(r.Topics))
	for _, c := range r.Topics {
		listed[c.TopicName] = struct{}{}
	}
	for name, tp := range t.topics {
		if _, ok := listed[name]; !ok {
			t.dropQueueLocked(name, tp, r.Name)
		}
	}
}

func (t *RouteTable) setLiveLocked(me member, r *Registration, now time.Time) {
	l := t.live[me]
	if l == nil {
		l = new(liveBroker)
		t.live[me] = l
	}
	filters := l.filters
	if r.Filters != nil {
		filters = r.Filters
	}
	if !slices.Equal(filters, l.filters) {
		t.generation++
	}
	timeout := r.Timeout
	if timeout <= 0 {
		timeout = t.o.BrokerTimeout
	}
	*l = liveBroker{
		name: r.Name, id: r.ID, conn: r.Conn, seen: now, timeout: min(timeout, maxBrokerTimeout),
		version: r.Version, haAddr: r.HAAddr, filters: filters,
	}
}

// Touch notes that a broker is alive (requests 904 and 322); nothing happens
// when it is not registered.
func (t *RouteTable) Touch(cluster, addr string, now time.Time) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if l := t.live[member{cluster, addr}]; l != nil {
		l.seen = now
	}
}

// DataVersion returns the data version that a broker registered last.
func (t *RouteTable) DataVersion(cluster, addr string) (protocol.DataVersion, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	l := t.live[member{cluster, addr}]
	if l == nil {
		return protocol.DataVersion{}, false
	}
	return l.version, true
}

// Members returns the addresses of a broker name by id.
func (t *RouteTable) Members(brokerName string) map[int64]string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if b := t.brokers[brokerName]; b != nil {
		return maps.Clone(b.addrs)
	}
	return map[int64]string{}
}
