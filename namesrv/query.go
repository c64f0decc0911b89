package namesrv

import (
	"maps"
	"slices"
	"strings"

	"github.com/sluicemq/sluice/protocol"
)

// Route returns where a topic lives; false when no live broker serves it.
func (t *RouteTable) Route(topic string) (*protocol.TopicRouteData, bool) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.routeLocked(topic)
}

func (t *RouteTable) routeLocked(name string) (*protocol.TopicRouteData, bool) {
	tp := t.topics[name]
	if tp == nil {
		return nil, false
	}
	route := &protocol.TopicRouteData{FilterServerTable: map[string][]string{}}
	for _, brokerName := range slices.Sorted(maps.Keys(tp.queues)) {
		route.QueueDatas = append(route.QueueDatas, tp.queues[brokerName])
		b := t.brokers[brokerName]
		if b == nil {
			continue
		}
		route.BrokerDatas = append(route.BrokerDatas, b.data(brokerName))
		for _, addr := range b.addrs {
			if l := t.live[member{b.cluster, addr}]; l != nil && len(l.filters) > 0 {
				route.FilterServerTable[addr] = l.filters
			}
		}
	}
	if len(tp.mapping) > 0 {
		route.TopicQueueMappingByBroker = maps.Clone(tp.mapping)
	}
	return route, len(route.BrokerDatas) > 0
}

func (b *broker) data(name string) protocol.BrokerData {
	return protocol.BrokerData{
		Cluster: b.cluster, BrokerName: name, BrokerAddrs: maps.Clone(b.addrs),
		ZoneName: b.zone, EnableActingMaster: b.actingMaster,
	}
}

// encodeRoute writes a route answer: strict JSON, or the form with unquoted
// integer keys that clients before 4.9.4 parse.
func encodeRoute(route *protocol.TopicRouteData, strict bool) ([]byte, error) {
	if strict {
		return protocol.Marshal(route)
	}
	return protocol.MarshalFastjson(route)
}

// EncodedRoute is Route as the body of an answer. The body is kept until
// something in any route changes, and must not be changed by the caller.
func (t *RouteTable) EncodedRoute(name string, strict bool) ([]byte, bool, error) {
	t.mu.RLock()
	tp := t.topics[name]
	if tp == nil {
		t.mu.RUnlock()
		return nil, false, nil
	}
	kept := &tp.encoded[0]
	if !strict {
		kept = &tp.encoded[1]
	}
	generation := t.generation
	if e := kept.Load(); e != nil && e.generation == generation {
		t.mu.RUnlock()
		return e.body, true, nil
	}
	route, ok := t.routeLocked(name)
	t.mu.RUnlock()
	if !ok {
		return nil, false, nil
	}
	body, err := encodeRoute(route, strict)
	if err != nil {
		return nil, false, err
	}
	kept.Store(&encodedRoute{generation, body})
	return body, true, nil
}

// filterZone keeps of a route the brokers of one zone, and those without a
// master, from which one can at least read.
func filterZone(route *protocol.TopicRouteData, zone string) {
	removed := make(map[string]bool)
	route.BrokerDatas = slices.DeleteFunc(route.BrokerDatas, func(b protocol.BrokerData) bool {
		_, master := b.BrokerAddrs[masterID]
		if !master || strings.EqualFold(b.ZoneName, zone) {
			return false
		}
		removed[b.BrokerName] = true
		for _, addr := range b.BrokerAddrs {
			delete(route.FilterServerTable, addr)
		}
		return true
	})
	route.QueueDatas = slices.DeleteFunc(route.QueueDatas, func(q protocol.QueueData) bool {
		return removed[q.BrokerName]
	})
}

// Clusters returns all brokers and all clusters.
func (t *RouteTable) Clusters() *protocol.ClusterInfo {
	t.mu.RLock()
	defer t.mu.RUnlock()
	info := &protocol.ClusterInfo{
		BrokerAddrTable:  make(map[string]protocol.BrokerData, len(t.brokers)),
		ClusterAddrTable: make(map[string][]string, len(t.clusters)),
	}
	for name, b := range t.brokers {
		info.BrokerAddrTable[name] = b.data(name)
	}
	for cluster, names := range t.clusters {
		info.ClusterAddrTable[cluster] = slices.Sorted(maps.Keys(names))
	}
	return info
}

// Topics returns all topics, sorted.
func (t *RouteTable) Topics() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Sorted(maps.Keys(t.topics))
}

// TopicsOfCluster returns the topics that brokers of a cluster serve, sorted.
func (t *RouteTable) TopicsOfCluster(cluster string) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	names := t.clusters[cluster]
	topics := []string{}
	for name, tp := range t.topics {
		for brokerName := range tp.queues {
			if _, ok := names[brokerName]; ok {
				topics = append(topics, name)
				break
			}
		}
	}
	slices.Sort(topics)
	return topics
}

// SystemTopics returns the topics named after clusters and brokers, sorted, and
// the address of one broker that has them; empty when there is none.
func (t *RouteTable) SystemTopics() (topics []string, addr string) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	topics = slices.AppendSeq([]string{}, maps.Keys(t.clusters))
	topics = slices.AppendSeq(topics, maps.Keys(t.brokers))
	slices.Sort(topics)
	if names := slices.Sorted(maps.Keys(t.brokers)); len(names) > 0 {
		b := t.brokers[names[0]]
		addr = b.addrs[b.minID()]
	}
	return slices.Compact(topics), addr
}
