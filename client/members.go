package client

import (
	"context"
	"maps"
	"slices"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

// members are the producer groups and the push consumers that live on a client:
// what its heartbeats report.
type members struct {
	mu        sync.Mutex
	producers map[string]int           // group → producers made
	consumers map[string]*PushConsumer // group → the one that runs
	left      chan struct{}            // closed when the next consumer leaves
}

func (m *members) addProducer(group string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.producers == nil {
		m.producers = make(map[string]int)
	}
	m.producers[group]++
}

func (m *members) removeProducer(group string) (last bool) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.producers[group]--; m.producers[group] > 0 {
		return false
	}
	delete(m.producers, group)
	return true
}

// addConsumer refuses a second consumer of a group: a broker would take both for
// one member.
func (m *members) addConsumer(p *PushConsumer) bool {
	m.mu.Lock()
	defer m.mu.Unlock()
	if m.consumers[p.o.Group] != nil {
		return false
	}
	if m.consumers == nil {
		m.consumers = make(map[string]*PushConsumer)
	}
	m.consumers[p.o.Group] = p
	return true
}

func (m *members) removeConsumer(p *PushConsumer) {
	m.mu.Lock()
	defer m.mu.Unlock()
	delete(m.consumers, p.o.Group)
	if m.left != nil {
		close(m.left)
		m.left = nil
	}
}

// waitConsumers returns true once no consumer runs, false when ctx ends first.
func (m *members) waitConsumers(ctx context.Context) bool {
	for {
		m.mu.Lock()
		if len(m.consumers) == 0 {
			m.mu.Unlock()
			return true
		}
		if m.left == nil {
			m.left = make(chan struct{})
		}
		left := m.left
		m.mu.Unlock()
		select {
		case <-left:
		case <-ctx.Done():
			return false
		}
	}
}

func (m *members) consumer(group string) *PushConsumer {
	m.mu.Lock()
	defer m.mu.Unlock()
	return m.consumers[group]
}

func (m *members) producerGroups() []string {
	m.mu.Lock()
	defer m.mu.Unlock()
	return slices.Sorted(maps.Keys(m.producers))
}

// heartbeat is the report of all members; nil when there is none.
func (m *members) heartbeat(clientID string) *protocol.HeartbeatData {
	m.mu.Lock()
	defer m.mu.Unlock()
	if len(m.producers)+len(m.consumers) == 0 {
		return nil
	}
	data := &protocol.HeartbeatData{
		ClientID:        clientID,
		ProducerDataSet: []protocol.ProducerData{},
		ConsumerDataSet: []protocol.ConsumerData{},
	}
	for _, group := range slices.Sorted(maps.Keys(m.producers)) {
		data.ProducerDataSet = append(data.ProducerDataSet, protocol.ProducerData{GroupName: group})
	}
	for _, group := range slices.Sorted(maps.Keys(m.consumers)) {
		data.ConsumerDataSet = append(data.ConsumerDataSet, m.consumers[group].heartbeat())
	}
	return data
}

// sendHeartbeats reports to the brokers at every interval.
func (c *Client) sendHeartbeats(ctx context.Context) error {
	return every(ctx, c.o.HeartbeatInterval, c.heartbeatAll)
}

// atOnce bounds how many brokers are called at the same time by one round.
const atOnce = 16

// heartbeatAll reports the members of this client to all brokers of known
// routes; to slaves only when there are consumers, which may read from them. A
// client without members reports nothing.
func (c *Client) heartbeatAll(ctx context.Context) {
	data := c.members.heartbeat(c.id)
	if data == nil {
		return
	}
	body, err := protocol.Marshal(data)
	if err != nil {
		c.logger.Error("heartbeat not encoded", "err", err)
		return
	}
	var round errgroup.Group
	round.SetLimit(atOnce)
	for _, addr := range c.routes.addresses(len(data.ConsumerDataSet) > 0) {
		round.Go(func() error {
			// A heartbeat under way is waited for even at the end: the broker might
			// handle one that was given up after the unregistering that follows.
			call, cancel := context.WithTimeout(context.WithoutCancel(ctx), c.o.CallTimeout)
			defer cancel()
			cmd := protocol.NewRequest(protocol.Heartbeat, nil, body)
			if _, err := c.CallOK(call, addr, cmd); err != nil && ctx.Err() == nil {
				c.logger.Warn("heartbeat failed", "broker", addr, "err", err)
			}
			return nil
		})
	}
	_ = round.Wait() // failures were logged one by one
}

// unregister tells all brokers that a group's member leaves. It is a courtesy:
// brokers also notice the closed connection, so failures are only logged.
func (c *Client) unregister(ctx context.Context, header protocol.UnregisterClientRequest) {
	var round errgroup.Group
	round.SetLimit(atOnce)
	for _, addr := range c.routes.addresses(header.ConsumerGroup != "") {
		round.Go(func() error {
			h := header
			ctx, cancel := context.WithTimeout(ctx, min(c.o.CallTimeout, time.Second))
			defer cancel()
			if _, err := c.CallOK(ctx, addr, protocol.NewRequest(protocol.UnregisterClient, &h, nil)); err != nil {
				c.logger.Debug("not unregistered", "broker", addr, "err", err)
			}
			return nil
		})
	}
	_ = round.Wait()
}

// membersChanged answers a broker's push that a consumer group has other members
// or subscriptions now: the group's consumer here rebalances at once.
func (c *Client) membersChanged(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var header protocol.NotifyConsumerIDsChangedRequest
	if err := req.DecodeHeader(&header); err != nil {
		return nil, err
	}
	if p := c.members.consumer(header.ConsumerGroup); p != nil {
		p.RebalanceNow()
	}
	return nil, nil
}
