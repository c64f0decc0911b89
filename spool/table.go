package spool

import (
	"iter"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
)

// A table maps names to queues. Queues are added and never removed: deleting a
// topic empties its queues in place, so that handles stay good.
type table struct {
	mu      sync.RWMutex
	topics  map[string]*topic
	created []*Queue      // every queue, in the order of their making
	more    chan struct{} // closed at the next making; made by the first who asks
}

// A topic is the queues of one name.
type topic struct {
	name   string
	queues map[int32]*Queue // guarded by table.mu
	// deletions counts how often the topic was deleted: it wakes waiters.
	deletions atomic.Int64
	// deletedAt is the log offset before which the topic's records are dead:
	// the topic was deleted there. Guarded by dispatcher.mu.
	deletedAt int64
}

// lookup returns the queue, or nil. It does not allocate.
func (t *table) lookup(name []byte, id int32) *Queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	if tp := t.topics[string(name)]; tp != nil {
		return tp.queues[id]
	}
	return nil
}

// topic returns the topic of that name, made if need be. It allocates only
// when it makes one.
func (t *table) topic(name []byte) *topic {
	t.mu.RLock()
	tp := t.topics[string(name)]
	t.mu.RUnlock()
	if tp != nil {
		return tp
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.topicLocked(string(name))
}

func (t *table) topicLocked(name string) *topic {
	tp := t.topics[name]
	if tp == nil {
		tp = &topic{name: name, queues: make(map[int32]*Queue)}
		t.topics[name] = tp
	}
	return tp
}

// queue returns a topic's queue, made if need be.
func (t *table) queue(s *Spool, tp *topic, id int32) *Queue {
	t.mu.RLock()
	q := tp.queues[id]
	t.mu.RUnlock()
	if q != nil {
		return q
	}
	t.mu.Lock()
	defer t.mu.Unlock()
	if q = tp.queues[id]; q == nil {
		q = &Queue{spool: s, topic: tp, id: id}
		tp.queues[id] = q
		t.created = append(t.created, q)
		if t.more != nil {
			close(t.more)
			t.more = nil
		}
	}
	return q
}

// QueuesAfter returns the queues made since there were known of them, oldest
// first, and a channel that is closed when there are more. A queue may be there
// before it has a message.
func (s *Spool) QueuesAfter(known int) ([]*Queue, <-chan struct{}) {
	t := &s.table
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.more == nil {
		t.more = make(chan struct{})
	}
	return slices.Clone(t.created[min(known, len(t.created)):]), t.more
}

// all returns a snapshot of the queues in no order.
func (t *table) all() []*Queue {
	t.mu.RLock()
	defer t.mu.RUnlock()
	var qs []*Queue
	for _, tp := range t.topics {
		for _, q := range tp.queues {
			qs = append(qs, q)
		}
	}
	return qs
}

// of returns a topic and a snapshot of its queues.
func (t *table) of(name string) (*topic, []*Queue) {
	t.mu.RLock()
	defer t.mu.RUnlock()
	tp := t.topics[name]
	if tp == nil {
		return nil, nil
	}
	qs := make([]*Queue, 0, len(tp.queues))
	for _, q := range tp.queues {
		qs = append(qs, q)
	}
	return tp, qs
}

// validTopic tells whether a name can be a directory's. What names a client
// may use is decided elsewhere; this keeps paths inside the store.
func validTopic(name string) bool {
	return name != "" && name != "." && name != ".." && len(name) <= 255 && !strings.ContainsAny(name, "/\\\x00")
}

// Queue returns the queue with that number of a topic, made on first use. The
// handle stays good for the spool's life, also when the topic is deleted. A
// queue without messages exists in memory only.
func (s *Spool) Queue(topic string, id int32) *Queue {
	s.table.mu.RLock()
	tp := s.table.topics[topic]
	s.table.mu.RUnlock()
	if tp == nil {
		s.table.mu.Lock()
		tp = s.table.topicLocked(topic)
		s.table.mu.Unlock()
	}
	return s.table.queue(s, tp, id)
}

// LookupQueue returns the queue if there is one, else nil. It does not
// allocate and keeps no reference to topic.
func (s *Spool) LookupQueue(topic []byte, id int32) *Queue { return s.table.lookup(topic, id) }

// Queues iterates over the queues that hold or held messages since their topic
// was made, in no order.
func (s *Spool) Queues() iter.Seq[*Queue] {
	return func(yield func(*Queue) bool) {
		for _, q := range s.table.all() {
			if q.Max() > 0 && !yield(q) {
				return
			}
		}
	}
}
