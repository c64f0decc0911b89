// Package clienttest runs a RocketMQ cluster in memory for tests: name servers
// and brokers behind real servers on loopback. Control sees every request and
// may answer, delay or drop it.
package clienttest

import (
	"context"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

// A Request is one that a server of the cluster received.
type Request struct {
	Broker  string // broker name, "" at a name server
	Conn    *remoting.Conn
	Command *protocol.Command
}

// A Verdict says what happens with a request. The zero Verdict leaves it to the
// server.
type Verdict struct {
	Answer *protocol.Command // instead of the server's own
	Ignore bool              // the server does not see the request
	Silent bool              // no answer is sent; with Ignore false what is asked for is done
	Close  bool              // the connection is closed instead of an answer
}

// Refuse is the Verdict that answers an error code and does nothing.
func Refuse(code protocol.ResponseCode, remark string) Verdict {
	return Verdict{Answer: protocol.NewResponse(code, remark, nil, nil)}
}

// A Cluster is a set of name servers and brokers that share one table of topics,
// as if every broker registered at once.
type Cluster struct {
	t           testing.TB
	nameServers []*server
	brokers     []*Broker

	mu       sync.Mutex
	controls map[protocol.RequestCode]func(Request) Verdict
	requests map[protocol.RequestCode]int
}

// New starts a cluster that ends with the test. Its brokers are named broker-a,
// broker-b, …; topics are created at their first message.
func New(t testing.TB, nameServers, brokers int) *Cluster {
	t.Helper()
	c := &Cluster{
		t:        t,
		controls: make(map[protocol.RequestCode]func(Request) Verdict),
		requests: make(map[protocol.RequestCode]int),
	}
	for range nameServers {
		c.nameServers = append(c.nameServers, c.newServer("", c.nameServer))
	}
	for i := range brokers {
		c.brokers = append(c.brokers, newBroker(c, fmt.Sprintf("broker-%c", 'a'+i)))
	}
	return c
}

// NameServers are the addresses of the name servers.
func (c *Cluster) NameServers() []string {
	var addrs []string
	for _, s := range c.nameServers {
		addrs = append(addrs, s.addr.String())
	}
	return addrs
}

// StopNameServer stops one of them.
func (c *Cluster) StopNameServer(i int) { c.nameServers[i].stop() }

// Broker returns the broker of that name.
func (c *Cluster) Broker(name string) *Broker {
	i := slices.IndexFunc(c.brokers, func(b *Broker) bool { return b.Name == name })
	if i < 0 {
		c.t.Fatalf("no broker %s", name)
	}
	return c.brokers[i]
}

// Control lets f judge every request of a code from now on, at all servers, at
// once when they come at once; nil ends it.
func (c *Cluster) Control(code protocol.RequestCode, f func(Request) Verdict) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.controls[code] = f
}

// Requests is how many requests of a code have come.
func (c *Cluster) Requests(code protocol.RequestCode) int {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.requests[code]
}

// judge notes a request and asks its control.
func (c *Cluster) judge(r Request) Verdict {
	c.mu.Lock()
	code := r.Command.RequestCode()
	c.requests[code]++
	control := c.controls[code]
	c.mu.Unlock()
	if control == nil {
		return Verdict{}
	}
	return control(r)
}

// A server is a remoting server that can stop and start again at one address.
type server struct {
	c      *Cluster
	name   string
	handle func(context.Context, *remoting.Conn, *protocol.Command) (*protocol.Command, error)
	addr   netip.AddrPort

	mu   sync.Mutex
	halt context.CancelFunc // nil while stopped
	done chan struct{}
}

func (c *Cluster) newServer(name string, handle remoting.Handler) *server {
	c.t.Helper()
	s := &server{c: c, name: name, handle: handle}
	s.start("127.0.0.1:0")
	c.t.Cleanup(s.stop)
	return s
}

func (s *server) start(listen string) {
	s.c.t.Helper()
	table := make(remoting.Table)
	for _, code := range protocol.RequestCodes() {
		table[code] = remoting.Route{Handler: s.serve}
	}
	server, err := remoting.NewServer(remoting.ServerOptions{Listen: listen}, table)
	if err != nil {
		s.c.t.Fatalf("start %s: %v", s.name, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan struct{})
	s.mu.Lock()
	s.addr, s.halt, s.done = server.Addr(), cancel, done
	s.mu.Unlock()
	go func() {
		defer close(done)
		_ = server.Run(ctx)
	}()
}

func (s *server) stop() {
	s.mu.Lock()
	halt, done := s.halt, s.done
	s.halt = nil
	s.mu.Unlock()
	if halt != nil {
		halt()
		<-done
	}
}

func (s *server) serve(ctx context.Context, conn *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	v := s.c.judge(Request{Broker: s.name, Conn: conn, Command: req})
	if v.Answer != nil {
		return v.Answer, nil
	}
	var resp *protocol.Command
	var err error
	if !v.Ignore {
		resp, err = s.handle(ctx, conn, req)
	}
	switch {
	case v.Close:
		conn.Close()
		return nil, nil
	case v.Silent || v.Ignore:
		return nil, nil
	}
	return resp, err
}

// nameServer answers what clients ask name servers.
func (c *Cluster) nameServer(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	switch req.RequestCode() {
	case protocol.GetRouteInfoByTopic:
		var h protocol.GetRouteInfoRequest
		if err := req.DecodeHeader(&h); err != nil {
			return nil, err
		}
		route := c.route(h.Topic)
		if len(route.QueueDatas) == 0 {
			return nil, protocol.Errorf(protocol.TopicNotExist, "No topic route info in name server for the topic: %s", h.Topic)
		}
		return body(route)
	case protocol.GetBrokerClusterInfo:
		info := protocol.ClusterInfo{
			BrokerAddrTable:  make(map[string]protocol.BrokerData),
			ClusterAddrTable: make(map[string][]string),
		}
		for _, b := range c.brokers {
			info.BrokerAddrTable[b.Name] = b.data()
			info.ClusterAddrTable["DefaultCluster"] = append(info.ClusterAddrTable["DefaultCluster"], b.Name)
		}
		return body(info)
	case protocol.GetAllTopicListFromNameServer:
		var list protocol.TopicList
		for _, b := range c.brokers {
			list.TopicList = append(list.TopicList, b.topicNames()...)
		}
		slices.Sort(list.TopicList)
		list.TopicList = slices.Compact(list.TopicList)
		return body(list)
	case protocol.DeleteTopicInNameServer:
		return ok(nil), nil
	}
	return nil, protocol.Errorf(protocol.RequestCodeNotSupported, " request type %d not supported", req.Code)
}

func (c *Cluster) route(topic string) *protocol.TopicRouteData {
	route := &protocol.TopicRouteData{FilterServerTable: map[string][]string{}}
	for _, b := range c.brokers {
		if q, ok := b.queueData(topic); ok {
			route.QueueDatas = append(route.QueueDatas, q)
			route.BrokerDatas = append(route.BrokerDatas, b.data())
		}
	}
	return route
}

func ok(h protocol.Header) *protocol.Command {
	return protocol.NewResponse(protocol.Success, "", h, nil)
}

func body(v any) (*protocol.Command, error) {
	b, err := protocol.Marshal(v)
	if err != nil {
		return nil, err
	}
	return protocol.NewResponse(protocol.Success, "", nil, b), nil
}
