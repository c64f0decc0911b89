// Package topics is the table of a broker's topics: which there are, how many
// queues they have, who may read or write them.
package topics

import (
	"maps"
	"strings"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// A Topic is one version of a topic's settings. It never changes, its attribute
// map included; an update puts another Topic in its place.
type Topic struct {
	protocol.TopicConfig
	// Name is the one copy of the topic's name that the broker passes around.
	Name          string
	Readable      bool
	Writable      bool
	SendForbidden bool // the broker itself writes here, clients must not
	System        bool // cannot be updated or deleted by request
}

func (t *Table) newTopic(c protocol.TopicConfig) *Topic {
	if c.TopicFilterType == "" {
		c.TopicFilterType = protocol.SingleTag
	}
	if c.Attributes == nil {
		c.Attributes = map[string]string{}
	}
	return &Topic{
		TopicConfig:   c,
		Name:          c.TopicName,
		Readable:      c.Perm&protocol.PermRead != 0,
		Writable:      c.Perm&protocol.PermWrite != 0,
		SendForbidden: message.IsSendForbidden(c.TopicName),
		System:        t.system(c.TopicName),
	}
}

// equalConfig compares what is stored of a topic.
func equalConfig(a, b *protocol.TopicConfig) bool {
	return a.TopicName == b.TopicName && a.ReadQueueNums == b.ReadQueueNums && a.WriteQueueNums == b.WriteQueueNums &&
		a.Perm == b.Perm && a.TopicFilterType == b.TopicFilterType && a.TopicSysFlag == b.TopicSysFlag &&
		a.Order == b.Order && maps.Equal(a.Attributes, b.Attributes)
}

// ReadWrite is the configuration of an ordinary topic: so many queues, for
// reading and writing.
func ReadWrite(name string, queues int) protocol.TopicConfig {
	return readWrite(name, queues, protocol.PermRead|protocol.PermWrite)
}

func readWrite(name string, queues int, perm int32) protocol.TopicConfig {
	return protocol.TopicConfig{
		TopicName: name, ReadQueueNums: int32(queues), WriteQueueNums: int32(queues),
		Perm: perm, TopicFilterType: protocol.SingleTag,
	}
}

// systemTopics are the topics that exist from the start. Those of features that
// this broker does not have (delay levels, transactions, pop) are left out, so
// that nothing seems to serve them.
func systemTopics(o *Options) []protocol.TopicConfig {
	const all = protocol.PermRead | protocol.PermWrite | protocol.PermInherit
	var list []protocol.TopicConfig
	if o.AutoCreate {
		list = append(list, readWrite(message.TopicAutoCreate, o.DefaultQueues, all))
	}
	if o.Cluster != "" {
		list = append(list, readWrite(o.Cluster, 16, all), readWrite(replyTopic(o.Cluster), 1, protocol.PermRead|protocol.PermWrite))
	}
	if o.Broker != "" && o.Broker != o.Cluster {
		list = append(list, readWrite(o.Broker, 1, all))
	}
	return append(list,
		readWrite(message.TopicSelfTest, 1, protocol.PermRead|protocol.PermWrite),
		readWrite(message.TopicOffsetMoved, 1, protocol.PermRead|protocol.PermWrite))
}

func replyTopic(cluster string) string { return cluster + message.ReplyTopicSuffix }

// system says whether requests must leave the topic alone.
func (t *Table) system(name string) bool {
	return message.IsSystemTopic(name) || name == t.o.Cluster || name == t.o.Broker || name == replyTopic(t.o.Cluster)
}

// internal says whether only the broker may bring a topic of this name to life.
func internal(name string) bool {
	return message.IsSendForbidden(name) || strings.HasPrefix(name, message.SystemTopicPrefix)
}
