package client

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/sluicemq/sluice/client/rebalance"
	"github.com/sluicemq/sluice/protocol"
)

// DefaultTopic is the topic whose route and queue count a broker lends to topics
// that it creates at their first message.
const DefaultTopic = "TBW102"

// ErrTopicNotFound is wrapped by errors of topics that no name server knows.
var ErrTopicNotFound = errors.New("topic has no route")

// masterID is the broker id of masters.
const masterID = 0

// A Route says which queues a topic has and where their brokers are. It is
// immutable.
type Route struct {
	Topic string

	// Write holds the queues that masters take messages for, Read those that can
	// be read, both sorted by broker name and queue id.
	Write []protocol.MessageQueue
	Read  []protocol.MessageQueue

	// Provisional marks the route of a topic that does not exist yet: the queues
	// that it will have where a broker creates it at its first message.
	Provisional bool

	brokers map[string]map[int64]string // broker name → broker id → address
}

// Master returns the address of a broker name's master.
func (r *Route) Master(brokerName string) (string, bool) {
	addr, ok := r.brokers[brokerName][masterID]
	return addr, ok
}

// Broker returns the address of a broker name's member with that id; when there
// is none, of its master, and else of any member. The id found is returned too.
func (r *Route) Broker(brokerName string, id int64) (addr string, found int64, ok bool) {
	members := r.brokers[brokerName]
	for _, id := range append([]int64{id, masterID}, slices.Sorted(maps.Keys(members))...) {
		if addr, ok := members[id]; ok {
			return addr, id, true
		}
	}
	return "", 0, false
}

// newRoute makes a route of what a name server answered. The two sides count
// queues differently: a producer needs a master and the write bit, or obeys the
// order configuration; a consumer needs the read bit.
func newRoute(topic string, data *protocol.TopicRouteData) *Route {
	r := &Route{Topic: topic, brokers: make(map[string]map[int64]string, len(data.BrokerDatas))}
	for _, b := range data.BrokerDatas {
		r.brokers[b.BrokerName] = maps.Clone(b.BrokerAddrs)
	}
	for _, q := range data.QueueDatas {
		if q.Perm&protocol.PermRead != 0 {
			r.Read = appendQueues(r.Read, topic, q.BrokerName, q.ReadQueueNums)
		}
		if _, ok := r.Master(q.BrokerName); ok && q.Perm&protocol.PermWrite != 0 && data.OrderTopicConf == "" {
			r.Write = appendQueues(r.Write, topic, q.BrokerName, q.WriteQueueNums)
		}
	}
	r.addOrdered(data.OrderTopicConf)
	r.Write = rebalance.Sorted(r.Write)
	r.Read = rebalance.Sorted(r.Read)
	return r
}

// addOrdered adds the write queues of an order configuration such as
// "broker-a:4;broker-b:4"; parts that are malformed are left out.
func (r *Route) addOrdered(conf string) {
	for part := range strings.SplitSeq(conf, ";") {
		name, count, _ := strings.Cut(part, ":")
		n, err := strconv.ParseInt(count, 10, 32)
		if err != nil {
			continue
		}
		if _, ok := r.Master(name); ok {
			r.Write = appendQueues(r.Write, r.Topic, name, int32(n))
		}
	}
}

func appendQueues(list []protocol.MessageQueue, topic, broker string, count int32) []protocol.MessageQueue {
	for id := range max(count, 0) {
		list = append(list, protocol.MessageQueue{Topic: topic, BrokerName: broker, QueueID: id})
	}
	return list
}

// provisional is the route that the default topic's one lends to a new topic:
// on every broker at most queues queues.
func (r *Route) provisional(topic string, queues int32) *Route {
	p := &Route{Topic: topic, Provisional: true, brokers: r.brokers}
	for _, q := range r.Write {
		if q.QueueID < queues {
			q.Topic = topic
			p.Write = append(p.Write, q)
		}
	}
	return p
}

// equal reports whether two routes lead to the same queues at the same addresses.
func (r *Route) equal(o *Route) bool {
	return slices.Equal(r.Write, o.Write) && slices.Equal(r.Read, o.Read) &&
		maps.EqualFunc(r.brokers, o.brokers, maps.Equal[map[int64]string, map[int64]string])
}

// routeTable holds the last route known of each topic in use.
type routeTable struct {
	mu     sync.RWMutex
	routes map[string]*Route
}

func newRouteTable() *routeTable { return &routeTable{routes: make(map[string]*Route)} }

func (t *routeTable) get(topic string) *Route {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return t.routes[topic]
}

// put stores a route unless it equals the one that is there, so that holders of
// an unchanged route can compare pointers.
func (t *routeTable) put(r *Route) (kept *Route, changed bool) {
	t.mu.Lock()
	defer t.mu.Unlock()
	if old := t.routes[r.Topic]; old != nil && old.equal(r) {
		return old, false
	}
	t.routes[r.Topic] = r
	return r, true
}

func (t *routeTable) remove(topic string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	delete(t.routes, topic)
}

func (t *routeTable) topics() []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	return slices.Collect(maps.Keys(t.routes))
}

// addresses returns where the brokers of all known routes are: the masters, or
// all members.
func (t *routeTable) addresses(all bool) []string {
	t.mu.RLock()
	defer t.mu.RUnlock()
	found := make(map[string]bool)
	for _, r := range t.routes {
		for _, members := range r.brokers {
			for id, addr := range members {
				if all || id == masterID {
					found[addr] = true
				}
			}
		}
	}
	return slices.Sorted(maps.Keys(found))
}

// Route returns the topic's route: the one known, else the one that a name
// server answers. From then on the route is kept fresh. The error wraps
// ErrTopicNotFound when the name server does not know the topic.
func (c *Client) Route(ctx context.Context, topic string) (*Route, error) {
	if r := c.routes.get(topic); r != nil {
		return r, nil
	}
	return c.RefreshRoute(ctx, topic)
}

// RefreshRoute asks a name server for the topic's route now. When the topic is
// unknown the last route stays in use: its brokers may still serve it.
func (c *Client) RefreshRoute(ctx context.Context, topic string) (*Route, error) {
	data, err := c.QueryRoute(ctx, topic)
	if err != nil {
		return nil, err
	}
	r, changed := c.routes.put(newRoute(topic, data))
	if changed {
		c.logger.Debug("route changed", "topic", topic, "write_queues", len(r.Write), "read_queues", len(r.Read))
	}
	return r, nil
}

// QueryRoute asks a name server for what it knows of a topic, keeping nothing.
func (c *Client) QueryRoute(ctx context.Context, topic string) (*protocol.TopicRouteData, error) {
	resp, err := c.CallNameServer(ctx, func() *protocol.Command {
		// Newer name servers then answer strict JSON instead of fastjson's dialect.
		header := protocol.GetRouteInfoRequest{Topic: topic, AcceptStandardJSONOnly: true}
		return protocol.NewRequest(protocol.GetRouteInfoByTopic, &header, nil)
	})
	if err != nil {
		return nil, fmt.Errorf("route of %s: %w", topic, err)
	}
	if resp.ResponseCode() == protocol.TopicNotExist {
		return nil, fmt.Errorf("route of %s: %w: %w", topic, ErrTopicNotFound, resp.Err())
	}
	if err := resp.Err(); err != nil {
		return nil, fmt.Errorf("route of %s: %w", topic, err)
	}
	data := new(protocol.TopicRouteData)
	if err := protocol.Unmarshal(resp.Body, data); err != nil {
		return nil, fmt.Errorf("route of %s: %w", topic, err)
	}
	return data, nil
}

// PublishRoute returns where messages of a topic can be sent. A topic that does
// not exist yet gets a provisional route made of defaultTopic's, with at most
// queues queues per broker: a broker creates the topic at its first message. A
// provisional route is not kept, so the topic's own is found once it exists.
func (c *Client) PublishRoute(ctx context.Context, topic, defaultTopic string, queues int32) (*Route, error) {
	r, err := c.Route(ctx, topic)
	if err == nil || !errors.Is(err, ErrTopicNotFound) {
		return r, err
	}
	lender, lenderErr := c.Route(ctx, defaultTopic)
	if lenderErr != nil {
		if errors.Is(lenderErr, ErrTopicNotFound) {
			return nil, err
		}
		return nil, lenderErr
	}
	return lender.provisional(topic, queues), nil
}

// refreshRoutes keeps the routes of all topics in use fresh. A route that cannot
// be refreshed stays as it is.
func (c *Client) refreshRoutes(ctx context.Context) error {
	return every(ctx, c.o.RouteInterval, func(ctx context.Context) {
		for _, topic := range c.routes.topics() {
			if _, err := c.RefreshRoute(ctx, topic); err != nil && ctx.Err() == nil {
				c.logger.Warn("route not refreshed", "topic", topic, "err", err)
			}
		}
	})
}
