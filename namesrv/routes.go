package namesrv

import (
	"maps"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

// A RouteTable knows which brokers live and which topics they serve (RocketMQ
// name server, "State tables"). All of it is in memory and under one lock; what
// its methods return is never changed afterwards. All methods are safe for
// concurrent use.
//
// It holds at all times: an address that a broker has under an id is that of
// exactly one live entry, and a broker without addresses does not exist.
type RouteTable struct {
	o RouteOptions

	mu       sync.RWMutex
	topics   map[string]*topic
	brokers  map[string]*broker             // by broker name
	clusters map[string]map[string]struct{} // broker names by cluster
	live     map[member]*liveBroker
	queues   int // queue data of all topics
	// generation counts changes that can show in a route answer.
	generation uint64
}

// RouteOptions configure a RouteTable. Zero values mean the defaults.
type RouteOptions struct {
	BrokerTimeout time.Duration // silence after which a broker is taken out, 120 s
	MaxBrokers    int           // broker addresses, 16384
	MaxTopics     int           // counted once for each of their brokers, 524288
	// DeleteTopics takes a registration for the complete list of a broker's
	// topics and drops the others from its routes. Brokers that register in
	// parts must not meet it.
	DeleteTopics bool
}

func (o *RouteOptions) setDefaults() {
	if o.BrokerTimeout <= 0 {
		o.BrokerTimeout = DefaultBrokerTimeout
	}
	if o.MaxBrokers <= 0 {
		o.MaxBrokers = 1 << 14
	}
	if o.MaxTopics <= 0 {
		o.MaxTopics = 1 << 19
	}
}

// member names one broker process.
type member struct{ cluster, addr string }

// A broker is the group of processes, master and slaves, with one broker name.
type broker struct {
	cluster, zone string
	actingMaster  bool
	addrs         map[int64]string // by broker id, 0 is the master
}

// A liveBroker is the present registration of one process.
type liveBroker struct {
	name    string
	id      int64
	conn    Conn // the connection that registered last
	seen    time.Time
	timeout time.Duration
	version protocol.DataVersion
	haAddr  string
	filters []string // addresses of filter servers, of old brokers
}

// A Conn is the connection that a registration came by. Ids grow in the order
// in which connections are opened.
type Conn interface {
	ID() uint64
	Close()
}

type topic struct {
	queues  map[string]protocol.QueueData             // by broker name
	mapping map[string]protocol.TopicQueueMappingInfo // static topics, by broker name
	// encoded are the route answers, in strict JSON and in fastjson's form.
	encoded [2]atomic.Pointer[encodedRoute]
}

type encodedRoute struct {
	generation uint64
	body       []byte
}

// NewRouteTable returns an empty table.
func NewRouteTable(o RouteOptions) *RouteTable {
	o.setDefaults()
	return &RouteTable{
		o:        o,
		topics:   make(map[string]*topic),
		brokers:  make(map[string]*broker),
		clusters: make(map[string]map[string]struct{}),
		live:     make(map[member]*liveBroker),
	}
}

// masterID is the id of a broker name's master.
const masterID = 0

// hasMaster tells whether the master is among the addresses.
func (b *broker) hasMaster() bool { _, ok := b.addrs[masterID]; return ok }

// hasOnly tells whether addr is the broker's only address.
func (b *broker) hasOnly(addr string) bool {
	for _, a := range b.addrs {
		if a != addr {
			return false
		}
	}
	return true
}

// minID is the smallest id; the broker has at least one.
func (b *broker) minID() int64 { return slices.Min(slices.Collect(maps.Keys(b.addrs))) }

// setQueueLocked enters one queue data of a topic and reports whether there was
// room for the topic.
func (t *RouteTable) setQueueLocked(name string, q protocol.QueueData) bool {
	tp := t.topics[name]
	if tp != nil {
		if old, ok := tp.queues[q.BrokerName]; ok {
			if old != q {
				tp.queues[q.BrokerName] = q
				t.generation++
			}
			return true
		}
	}
	if t.queues >= t.o.MaxTopics {
		return false
	}
	if tp == nil {
		tp = &topic{queues: make(map[string]protocol.QueueData, 1)}
		t.topics[name] = tp
	}
	tp.queues[q.BrokerName] = q
	t.queues++
	t.generation++
	return true
}

// dropQueueLocked takes a broker's queue data out of a topic, and the topic
// when it was the last.
func (t *RouteTable) dropQueueLocked(name string, tp *topic, brokerName string) {
	if _, ok := tp.queues[brokerName]; !ok {
		return
	}
	delete(tp.queues, brokerName)
	delete(tp.mapping, brokerName)
	t.queues--
	if len(tp.queues) == 0 {
		delete(t.topics, name)
	}
	t.generation++
}

// RegisterTopic adds queue data of known brokers to a topic (request 217). With
// a broker that is unknown nothing is added. It reports whether it was.
func (t *RouteTable) RegisterTopic(name string, queues []protocol.QueueData) bool {
	t.mu.Lock()
	defer t.mu.Unlock()
	for _, q := range queues {
		if t.brokers[q.BrokerName] == nil {
			return false
		}
	}
	for _, q := range queues {
		if !t.setQueueLocked(name, q) {
			return false
		}
	}
	return true
}

// DeleteTopic removes a topic: everywhere, or with a cluster only from the
// brokers of that cluster.
func (t *RouteTable) DeleteTopic(name, cluster string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	tp := t.topics[name]
	if tp == nil {
		return
	}
	for _, brokerName := range slices.Collect(maps.Keys(tp.queues)) {
		_, in := t.clusters[cluster][brokerName]
		if cluster == "" || in {
			t.dropQueueLocked(name, tp, brokerName)
		}
	}
}

// SetWritePerm gives all topics of a broker read and write permission, or takes
// the write permission away, until the broker registers with another data
// version. It returns the number of topics.
func (t *RouteTable) SetWritePerm(brokerName string, writable bool) int {
	t.mu.Lock()
	defer t.mu.Unlock()
	n := 0
	for _, tp := range t.topics {
		q, ok := tp.queues[brokerName]
		if !ok {
			continue
		}
		if writable {
			q.Perm = protocol.PermRead | protocol.PermWrite
		} else {
			q.Perm &^= protocol.PermWrite
		}
		tp.queues[brokerName] = q
		n++
	}
	t.generation++
	return n
}
