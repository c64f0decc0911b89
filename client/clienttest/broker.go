package clienttest

import (
	"context"
	"fmt"
	"maps"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// A Broker keeps topics, offsets and group members in memory.
type Broker struct {
	Name string

	c *Cluster
	s *server

	mu       sync.Mutex
	topics   map[string]*topic
	offsets  map[groupQueue]int64
	members  map[string]map[string]*remoting.Conn // group → client id → connection
	groups   []string                             // created by operators
	physical int64
	arrived  chan struct{} // closed at the next message
}

type topic struct {
	perm   int32
	queues []queue
}

// A queue's first message has offset min.
type queue struct {
	min      int64
	messages []message.Message
}

func (q *queue) max() int64 { return q.min + int64(len(q.messages)) }

type groupQueue struct {
	group, topic string
	queue        int32
}

func newBroker(c *Cluster, name string) *Broker {
	b := &Broker{
		Name: name, c: c,
		topics:  make(map[string]*topic),
		offsets: make(map[groupQueue]int64),
		members: make(map[string]map[string]*remoting.Conn),
		arrived: make(chan struct{}),
	}
	b.CreateTopic(message.TopicAutoCreate, 8)
	b.topics[message.TopicAutoCreate].perm = 7
	b.s = c.newServer(name, b.handle)
	return b
}

// Addr is where the broker listens.
func (b *Broker) Addr() string { return b.s.addr.String() }

// Stop ends the broker's server; routes go on to name it.
func (b *Broker) Stop() { b.s.stop() }

// Restart starts it again at the same address. It has its messages and offsets
// but has forgotten its clients.
func (b *Broker) Restart() {
	b.mu.Lock()
	b.members = make(map[string]map[string]*remoting.Conn)
	b.mu.Unlock()
	b.s.start(b.Addr())
}

// CreateTopic adds a topic; a topic that is there gets the number of queues.
func (b *Broker) CreateTopic(name string, queues int) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil {
		t = &topic{perm: 6}
		b.topics[name] = t
	}
	t.queues = append(t.queues, make([]queue, max(queues-len(t.queues), 0))...)[:queues]
}

// SetPerm changes what may be done with a topic: 4 read, 2 write.
func (b *Broker) SetPerm(name string, perm int32) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.topics[name].perm = perm
}

// DeleteTopic removes a topic and its messages.
func (b *Broker) DeleteTopic(name string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	delete(b.topics, name)
}

// Messages returns what a queue holds, oldest first.
func (b *Broker) Messages(name string, id int32) []message.Message {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil || int(id) >= len(t.queues) {
		return nil
	}
	return slices.Clone(t.queues[id].messages)
}

// Expire drops all messages of a queue before an offset; beyond the end it moves
// the end.
func (b *Broker) Expire(name string, id int32, before int64) {
	b.mu.Lock()
	defer b.mu.Unlock()
	q := &b.topics[name].queues[id]
	drop := min(before-q.min, int64(len(q.messages)))
	q.messages = q.messages[max(drop, 0):]
	q.min = max(before, q.min)
}

// Offset returns what a group has committed, -1 when nothing.
func (b *Broker) Offset(group, topic string, id int32) int64 {
	b.mu.Lock()
	defer b.mu.Unlock()
	if offset, ok := b.offsets[groupQueue{group, topic, id}]; ok {
		return offset
	}
	return -1
}

// Members returns the client ids of a consumer group, and of a producer group
// under "producer:" and its name.
func (b *Broker) Members(group string) []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Sorted(maps.Keys(b.members[group]))
}

// Groups are the names of groups that operators have created.
func (b *Broker) Groups() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Clone(b.groups)
}

func (b *Broker) data() protocol.BrokerData {
	return protocol.BrokerData{Cluster: "DefaultCluster", BrokerName: b.Name, BrokerAddrs: map[int64]string{0: b.Addr()}}
}

func (b *Broker) queueData(name string) (protocol.QueueData, bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[name]
	if t == nil {
		return protocol.QueueData{}, false
	}
	n := int32(len(t.queues))
	return protocol.QueueData{BrokerName: b.Name, ReadQueueNums: n, WriteQueueNums: n, Perm: t.perm}, true
}

func (b *Broker) topicNames() []string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return slices.Collect(maps.Keys(b.topics))
}

// handle answers what clients and operators ask brokers.
func (b *Broker) handle(ctx context.Context, conn *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	switch req.RequestCode() {
	case protocol.SendMessageV2, protocol.SendBatchMessage:
		return b.send(req)
	case protocol.PullMessage:
		return b.pull(ctx, req)
	case protocol.Heartbeat:
		return b.heartbeat(conn, req)
	case protocol.UnregisterClient:
		return b.unregister(req)
	case protocol.GetConsumerListByGroup:
		return b.list(req)
	case protocol.QueryConsumerOffset, protocol.UpdateConsumerOffset, protocol.GetMaxOffset, protocol.GetMinOffset,
		protocol.SearchOffsetByTimestamp:
		return b.offset(req)
	}
	return b.admin(req)
}

func (b *Broker) send(req *protocol.Command) (*protocol.Command, error) {
	var h protocol.SendMessageRequest
	if err := h.DecodeSend(req); err != nil {
		return nil, err
	}
	b.mu.Lock()
	defer b.mu.Unlock()
	name := string(h.Topic)
	t := b.topics[name]
	if t == nil {
		lender := b.topics[string(h.DefaultTopic)]
		if lender == nil {
			return nil, protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist", name)
		}
		t = &topic{perm: 6, queues: make([]queue, min(int(h.DefaultTopicQueueNums), len(lender.queues)))}
		b.topics[name] = t
	}
	if t.perm&protocol.PermWrite == 0 {
		return nil, protocol.Errorf(protocol.NoPermission, "topic[%s] is not writable", name)
	}
	if h.QueueID < 0 || int(h.QueueID) >= len(t.queues) {
		return nil, protocol.Errorf(protocol.InvalidParameter, "request queueId[%d] is illegal", h.QueueID)
	}
	q := &t.queues[h.QueueID]
	m := message.Message{
		Topic: name, QueueID: h.QueueID, Flag: h.Flag, SysFlag: message.SysFlag(h.SysFlag),
		BornTimestamp: h.BornTimestamp, ReconsumeTimes: h.ReconsumeTimes,
		BornHost: netip.MustParseAddrPort("127.0.0.1:1"), StoreHost: b.s.addr,
		StoreTimestamp: time.Now().UnixMilli(),
	}
	resp := protocol.SendMessageResponse{QueueID: h.QueueID, QueueOffset: q.max(), MsgID: message.OffsetID(m.StoreHost, b.physical)}
	if !h.Batch {
		m.Body, m.Properties = req.Body, slices.Clone(h.Properties)
		b.appendLocked(q, m)
		return ok(&resp), nil
	}
	err := message.EachBatchEntry(req.Body, func(e *message.Message) error {
		one := m
		one.Flag, one.Body, one.Properties = e.Flag, e.Body, e.Properties
		b.appendLocked(q, one)
		return nil
	})
	return ok(&resp), err
}

func (b *Broker) appendLocked(q *queue, m message.Message) {
	m.QueueOffset, m.PhysicalOffset = q.max(), b.physical
	b.physical += int64(message.RecordSize(&m, false))
	q.messages = append(q.messages, m)
	close(b.arrived)
	b.arrived = make(chan struct{})
}

func (b *Broker) pull(ctx context.Context, req *protocol.Command) (*protocol.Command, error) {
	var h protocol.PullMessageRequest
	if err := req.DecodeHeader(&h); err != nil {
		return nil, err
	}
	hold := time.NewTimer(time.Duration(h.SuspendTimeoutMillis) * time.Millisecond)
	defer hold.Stop()
	for {
		resp, arrived, err := b.pullOnce(&h)
		if err != nil || resp.ResponseCode() != protocol.PullNotFound || h.SysFlag&protocol.PullSuspend == 0 {
			return resp, err
		}
		select {
		case <-arrived:
		case <-hold.C:
			return resp, nil
		case <-ctx.Done():
			return nil, nil
		}
	}
}

func (b *Broker) pullOnce(h *protocol.PullMessageRequest) (*protocol.Command, <-chan struct{}, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	t := b.topics[string(h.Topic)]
	if t == nil || int(h.QueueID) >= len(t.queues) {
		return nil, nil, protocol.Errorf(protocol.TopicNotExist, "topic[%s] not exist", h.Topic)
	}
	q := &t.queues[h.QueueID]
	header := protocol.PullMessageResponse{MinOffset: q.min, MaxOffset: q.max(), NextBeginOffset: h.QueueOffset}
	switch {
	case h.QueueOffset < q.min:
		header.NextBeginOffset = q.min
		return protocol.NewResponse(protocol.PullOffsetMoved, "OFFSET_TOO_SMALL", &header, nil), nil, nil
	case h.QueueOffset > q.max():
		header.NextBeginOffset = q.max()
		return protocol.NewResponse(protocol.PullOffsetMoved, "OFFSET_OVERFLOW_BADLY", &header, nil), nil, nil
	case h.QueueOffset == q.max():
		return protocol.NewResponse(protocol.PullNotFound, "OFFSET_OVERFLOW_ONE", &header, nil), b.arrived, nil
	}
	var records []byte
	found := q.messages[h.QueueOffset-q.min:]
	found = found[:min(len(found), int(h.MaxMsgNums))]
	for i := range found {
		var err error
		if records, err = message.AppendRecord(records, &found[i], false); err != nil {
			return nil, nil, fmt.Errorf("encode: %w", err)
		}
	}
	header.NextBeginOffset += int64(len(found))
	return protocol.NewResponse(protocol.Success, "FOUND", &header, records), nil, nil
}
