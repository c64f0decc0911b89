package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"path"
	"sort"
	"strings"
	"sync"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
	"github.com/sluicemq/sluice/upstream"
)

// A LaneRule sends the topics that match one of its patterns to an upstream.
// Patterns are shell patterns (path.Match): "*", "plant-*", "orders".
type LaneRule struct {
	Topics   []string
	Upstream string
}

func (r LaneRule) matches(topic string) bool {
	for _, pattern := range r.Topics {
		if ok, _ := path.Match(pattern, topic); ok {
			return true
		}
	}
	return false
}

// An Upstream is a destination of lanes: its sender and the name that its
// cursors are kept under. The name, not the address, is the identity: an address
// may change without anything being sent again or lost.
type Upstream struct {
	Name    string
	Sender  upstream.Sender
	Limit   spool.Limit // most messages and bytes in one batch
	Backoff upstream.Backoff
}

// lanes keeps one lane running for each local queue and upstream that the rules
// join, as queues come into being.
type lanes struct {
	spool *spool.Spool
	park  func(ctx context.Context, upstream string, m *message.Message, reason string) error
	pace  *pacer
	log   *slog.Logger

	mu        sync.Mutex
	rules     []LaneRule
	changed   chan struct{} // closed and replaced when the rules change
	upstreams map[string]Upstream
	running   map[laneKey]*lane
	progress  map[string]*progress
	buffers   map[string]*buffers
}

type laneKey struct {
	upstream string
	queue    *spool.Queue
}

func newLanes(sp *spool.Spool, ups map[string]Upstream, log *slog.Logger) *lanes {
	l := &lanes{spool: sp, upstreams: ups, log: log,
		changed: make(chan struct{}), running: map[laneKey]*lane{}, progress: map[string]*progress{}, buffers: map[string]*buffers{}}
	for name := range ups {
		l.progress[name], l.buffers[name] = newProgress(), newBuffers()
	}
	return l
}

// forwarded says whether a topic's messages go upstream at all: system, retry
// and dead-letter topics are local matters.
func forwarded(topic string) bool {
	return !message.IsSystemTopic(topic) && !strings.HasPrefix(topic, message.RetryPrefix) &&
		!strings.HasPrefix(topic, message.DeadLetterPrefix)
}

// run keeps the lanes of the present rules running until ctx ends and every lane
// has stopped. New rules stop all lanes at a batch boundary and start them anew;
// their cursors stay.
func (l *lanes) run(ctx context.Context) error {
	for ctx.Err() == nil {
		if err := l.round(ctx); err != nil {
			return err
		}
	}
	return nil
}

// round runs the lanes of one set of rules: for the queues that are there and
// for those that come.
func (l *lanes) round(ctx context.Context) error {
	var group sync.WaitGroup
	laneCtx, stop := context.WithCancel(ctx)
	defer func() {
		stop()
		group.Wait()
		l.mu.Lock()
		clear(l.running)
		l.mu.Unlock()
	}()
	l.mu.Lock()
	changed := l.changed
	l.mu.Unlock()
	known := 0
	for {
		queues, more := l.spool.QueuesAfter(known)
		for _, queue := range queues {
			if err := l.open(laneCtx, queue, &group); err != nil {
				return err
			}
		}
		known += len(queues)
		select {
		case <-ctx.Done():
			return nil
		case <-changed:
			return nil
		case <-more:
		}
	}
}

// setRules replaces the rules. Every upstream that they name must be known.
func (l *lanes) setRules(rules []LaneRule) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rule := range rules {
		if _, ok := l.upstreams[rule.Upstream]; !ok {
			return fmt.Errorf("lane %v: there is no upstream %q", rule.Topics, rule.Upstream)
		}
	}
	l.rules = rules
	close(l.changed)
	l.changed = make(chan struct{})
	return nil
}

// open starts a queue's lanes, one for each upstream that a rule names.
func (l *lanes) open(ctx context.Context, queue *spool.Queue, group *sync.WaitGroup) error {
	if !forwarded(queue.Topic()) {
		return nil
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, rule := range l.rules {
		key := laneKey{rule.Upstream, queue}
		if _, ok := l.running[key]; ok || !rule.matches(queue.Topic()) {
			continue
		}
		lane, err := l.newLane(key)
		if err != nil {
			return err
		}
		l.running[key] = lane
		group.Add(1)
		go func() {
			defer group.Done()
			lane.run(ctx)
		}()
	}
	return nil
}

func (l *lanes) newLane(key laneKey) (*lane, error) {
	up := l.upstreams[key.upstream]
	lane := &lane{
		upstream: key.upstream, queue: key.queue, sender: up.Sender, spool: l.spool,
		limit: up.Limit, backoff: up.Backoff, progress: l.progress[key.upstream], pace: l.pace, buffers: l.buffers[key.upstream], log: l.log,
		park: func(ctx context.Context, m *message.Message, reason string) error {
			return l.park(ctx, key.upstream, m, reason)
		},
	}
	_, err := lane.open()
	return lane, err
}

// destinations are the upstreams that a topic's messages go to, in the order of
// the rules.
func (l *lanes) destinations(topic string) []Upstream {
	l.mu.Lock()
	defer l.mu.Unlock()
	var ups []Upstream
	for _, rule := range l.rules {
		if rule.matches(topic) {
			ups = append(ups, l.upstreams[rule.Upstream])
		}
	}
	return ups
}

// A LaneStatus describes the lanes of one upstream and topic.
type LaneStatus struct {
	Upstream string `json:"upstream"`
	Topic    string `json:"topic"`
	Backlog  int64  `json:"backlog"`
	State    string `json:"state"` // the worst of its queues: retrying, sending or idle
}

// status lists the lanes by upstream and topic, sorted.
func (l *lanes) status() []LaneStatus {
	l.mu.Lock()
	defer l.mu.Unlock()
	type key struct{ upstream, topic string }
	backlog, worst := map[key]int64{}, map[key]laneState{}
	for k, lane := range l.running {
		id := key{k.upstream, k.queue.Topic()}
		backlog[id] += lane.backlog()
		worst[id] = max(worst[id], laneState(lane.state.Load()))
	}
	list := make([]LaneStatus, 0, len(backlog))
	for id, n := range backlog {
		list = append(list, LaneStatus{id.upstream, id.topic, n, worst[id].String()})
	}
	sort.Slice(list, func(i, j int) bool {
		a, b := list[i], list[j]
		return a.Upstream < b.Upstream || a.Upstream == b.Upstream && a.Topic < b.Topic
	})
	return list
}
