package broker

import (
	"bufio"
	"bytes"
	"maps"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

const (
	defaultRegion = "DefaultRegion"
	maxPullHold   = 5 * time.Minute
	// adminLimit bounds the operator requests of one kind under way at once.
	adminLimit = 64
)

// parts are what answers requests.
type parts struct {
	sender    *sender
	puller    *puller
	positions *positions
	topics    *topicAdmin
	groups    *groupAdmin
	members   *membership
	info      *informant
}

// table maps every request code that this engine answers to its handler: the
// whole API on one screen. Inline handlers never wait; those that may touch the
// disk for long have their own goroutine.
func (p *parts) table(more remoting.Table) remoting.Table {
	send, pull := p.sender.streams(), p.puller.streams()
	table := remoting.Table{
		protocol.SendMessage:      {Stream: send},
		protocol.SendMessageV2:    {Stream: send},
		protocol.SendBatchMessage: {Stream: send},
		protocol.PullMessage:      {Stream: pull},
		protocol.LitePullMessage:  {Stream: pull},

		protocol.QueryConsumerOffset:     {Handler: p.positions.committed, Inline: true},
		protocol.UpdateConsumerOffset:    {Handler: p.positions.commit, Inline: true},
		protocol.GetMaxOffset:            {Handler: p.positions.last, Inline: true},
		protocol.GetMinOffset:            {Handler: p.positions.first, Inline: true},
		protocol.SearchOffsetByTimestamp: {Handler: p.positions.byTime, Limit: adminLimit},
		protocol.GetEarliestMsgStoreTime: {Handler: p.positions.earliest, Limit: adminLimit},

		protocol.Heartbeat:              {Handler: p.members.heartbeat},
		protocol.UnregisterClient:       {Handler: p.members.unregister},
		protocol.GetConsumerListByGroup: {Handler: p.members.list, Inline: true},

		protocol.UpdateAndCreateTopic:         {Handler: p.topics.update, Limit: adminLimit},
		protocol.DeleteTopicInBroker:          {Handler: p.topics.remove, Limit: adminLimit},
		protocol.GetAllTopicConfig:            {Handler: p.topics.all, Limit: adminLimit},
		protocol.GetTopicConfig:               {Handler: p.topics.config, Limit: adminLimit},
		protocol.GetSystemTopicListFromBroker: {Handler: p.topics.system, Limit: adminLimit},

		protocol.UpdateAndCreateSubscriptionGroup: {Handler: p.groups.update, Limit: adminLimit},
		protocol.GetAllSubscriptionGroupConfig:    {Handler: p.groups.all, Limit: adminLimit},
		protocol.DeleteSubscriptionGroup:          {Handler: p.groups.remove, Limit: adminLimit},
		protocol.GetSubscriptionGroupConfig:       {Handler: p.groups.config, Limit: adminLimit},

		protocol.GetBrokerRuntimeInfo: {Handler: p.info.runtimeInfo, Limit: adminLimit},
		protocol.GetBrokerConfig:      {Handler: p.info.config, Limit: adminLimit},
	}
	maps.Copy(table, more)
	return table
}

// stamps are the properties that an engine sets on every single message.
func stamps(cluster string) []byte {
	s := message.AppendProperty(nil, message.PropertyMessageRegion, defaultRegion)
	s = message.AppendProperty(s, message.PropertyTraceOn, "true")
	return message.AppendProperty(s, message.PropertyCluster, cluster)
}

// memoryShare is 40 % of the machine's memory: how far behind the log's end a
// record still counts as in memory, as in Apache's broker.
func memoryShare() int64 {
	const fallback = 1 << 30
	text, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return fallback
	}
	lines := bufio.NewScanner(bytes.NewReader(text))
	for lines.Scan() {
		fields := strings.Fields(lines.Text())
		if len(fields) >= 2 && fields[0] == "MemTotal:" {
			if kib, err := strconv.ParseInt(fields[1], 10, 64); err == nil {
				return kib * 1024 / 10 * 4
			}
		}
	}
	return fallback
}
