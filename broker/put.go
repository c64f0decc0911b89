package broker

import (
	"context"
	"net/netip"
	"sync"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// A PutResult says where a message of a Put stands.
type PutResult struct {
	UniqueKey      string
	QueueID        int32
	QueueOffset    int64
	PhysicalOffset int64
}

// putter stores messages for doors other than remoting.
type putter struct {
	admission
	spool    *spool.Spool
	counters *Counters
	batches  sync.Pool // of *spool.Batch
}

// put stores messages of one topic together, in one segment. When it returns nil
// all of them are durable; when it returns an error with a code that refuses (13,
// 16, 17, 29) none was taken; any other error leaves the fate of all of them
// unknown, and sending them again with the same unique keys is right. Messages
// with a negative QueueID go together to a queue that the engine chooses. reserve
// lets them into a store that is at its limit.
func (p *putter) put(ctx context.Context, topicName string, from netip.AddrPort, messages []message.Message, reserve bool) ([]PutResult, error) {
	batch := p.batches.Get().(*spool.Batch)
	defer func() { batch.Reset(); p.batches.Put(batch) }()
	if reserve {
		batch.UseReserve()
	}
	results, err := p.stageAll(batch, topicName, from, messages)
	if err == nil {
		err = batch.Join()
	}
	if err == nil {
		err = p.spool.Append(batch)
	}
	if err == nil {
		err = p.spool.WaitDurable(ctx, batch.End())
	}
	if err != nil {
		p.counters.refused.Add(int64(len(messages)))
		return nil, storeError(err)
	}
	for i := range results {
		r := batch.Result(i)
		results[i].QueueOffset, results[i].PhysicalOffset = r.QueueOffset, r.PhysicalOffset
	}
	p.counters.stored.Add(int64(len(messages)))
	p.counters.storedBytes.Add(int64(batch.Size()))
	return results, nil
}

func (p *putter) stageAll(batch *spool.Batch, topicName string, from netip.AddrPort, messages []message.Message) ([]PutResult, error) {
	results := make([]PutResult, len(messages))
	chosen := int32(-1)
	for i, m := range messages {
		choose := m.QueueID < 0
		if choose {
			m.QueueID = chosen
		}
		topic, queueID, err := p.admit([]byte(topicName), []byte(message.TopicAutoCreate), m.QueueID, 0)
		if err != nil {
			return nil, err
		}
		if choose {
			chosen = queueID
		}
		m.Topic, m.QueueID, m.BornHost, m.StoreHost = topic.Name, queueID, from, p.storeHost
		if results[i], err = p.stage(batch, &m); err != nil {
			return nil, err
		}
	}
	return results, nil
}

func (p *putter) stage(batch *spool.Batch, m *message.Message) (PutResult, error) {
	t, err := p.inspect(m, m.Properties)
	if err != nil {
		return PutResult{}, err
	}
	m.Properties = p.stamp(nil, m.Properties, t)
	key, ok := message.Property(m.Properties, message.PropertyUniqueKey)
	if !ok { // the caller is told the key, so there must be one
		return PutResult{}, storeError(message.ErrPropertiesTooLong)
	}
	result := PutResult{UniqueKey: string(key), QueueID: m.QueueID}
	_, err = batch.Add(p.spool.Queue(m.Topic, m.QueueID), m)
	return result, storeError(err)
}
