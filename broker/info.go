package broker

import (
	"context"
	"fmt"
	"net/netip"
	"sort"
	"strconv"
	"strings"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

// informant answers runtime info (28) and configuration (26). The exporter reads
// most runtime keys as numbers and drops a broker that lacks one, so all of them
// are there from the first second.
type informant struct {
	options  Options
	address  netip.AddrPort
	spool    *spool.Spool
	counters *Counters
	rates    *rates
	booted   time.Time // monotonic and wall
	version  func() protocol.DataVersion
}

func (i *informant) runtimeInfo(context.Context, *remoting.Conn, *protocol.Command) (*protocol.Command, error) {
	return protocol.NewJSONResponse(nil, protocol.KVTable{Table: i.runtimeTable()})
}

func (i *informant) runtimeTable() map[string]string {
	t, st := i.counters.Totals(), i.spool.Stats()
	number := func(n int64) string { return strconv.FormatInt(n, 10) }
	info := map[string]string{
		"brokerVersion":     strconv.Itoa(protocol.CurrentVersion),
		"brokerVersionDesc": "sluice (V5_3_3)",
		"brokerActive":      "true",
		"bootTimestamp":     number(i.booted.UnixMilli()),
		"runtime":           uptime(time.Since(i.booted)),

		"msgPutTotalTodayNow": number(t.Stored), "msgGetTotalTodayNow": number(t.Pulled),
		"msgPutTotalTodayMorning": "0", "msgPutTotalYesterdayMorning": "0",
		"msgGetTotalTodayMorning": "0", "msgGetTotalYesterdayMorning": "0",

		"putMessageTimesTotal": number(t.Stored), "putMessageFailedTimes": number(t.Refused),
		"putMessageSizeTotal":   number(t.StoredBytes),
		"putMessageAverageSize": strconv.FormatFloat(float64(t.StoredBytes)/float64(max(t.Stored, 1)), 'f', 1, 64),
		"putLatency99":          "-1", "putLatency999": "-1",
		"putMessageEntireTimeMax": "0", "getMessageEntireTimeMax": "0", "pageCacheLockTimeMills": "0",
		"putMessageDistributeTime": emptyDistribution,

		"commitLogMinOffset": number(st.MinOffset), "commitLogMaxOffset": number(st.MaxOffset),
		"dispatchBehindBytes":             number(max(st.MaxOffset-st.DispatchedOffset, 0)),
		"dispatchMaxBuffer":               "0",
		"remainHowManyDataToFlush":        humanBytes(st.MaxOffset - st.DurableOffset),
		"remainTransientStoreBufferNumbs": "2147483647",
		"commitLogDiskRatio":              ratio(usedRatio(st)), "consumeQueueDiskRatio": ratio(usedRatio(st)),
		"commitLogDirCapacity":     fmt.Sprintf("Total : %s, Free : %s.", humanBytes(st.DiskTotal), humanBytes(st.DiskFree)),
		"earliestMessageTimeStamp": number(i.earliest(st.MinOffset)), "startAcceptSendRequestTimeStamp": "0",

		"timerReadBehind": "0", "timerOffsetBehind": "0", "timerCongestNum": "0", "timerEnqueueTps": "0.0", "timerDequeueTps": "0.0",
	}
	for key, figure := range map[string]func(Totals) int64{
		"putTps":            func(t Totals) int64 { return t.Stored },
		"getFoundTps":       func(t Totals) int64 { return t.Pulled },
		"getMissTps":        func(t Totals) int64 { return t.EmptyPulls },
		"getTotalTps":       func(t Totals) int64 { return t.Pulled + t.EmptyPulls },
		"getTransferredTps": func(t Totals) int64 { return t.Pulled },
		"getTransferedTps":  func(t Totals) int64 { return t.Pulled },
	} {
		info[key] = i.rates.text(figure)
	}
	// Requests are handled on their connections, so there are no thread-pool
	// queues to fill; tools still want the figures.
	for _, pool := range []string{"send", "pull", "litePull", "query", "ack"} {
		info[pool+"ThreadPoolQueueSize"] = "0"
		info[pool+"ThreadPoolQueueCapacity"] = "0"
		info[pool+"ThreadPoolQueueHeadWaitTimeMills"] = "0"
	}
	info["EndTransactionQueueSize"], info["EndTransactionThreadPoolQueueCapacity"] = "0", "0"
	return info
}

// earliest is the store time of the log's first record, -1 when there is none.
func (i *informant) earliest(at int64) int64 {
	var records spool.Records
	defer records.Release()
	stored := int64(-1)
	if i.spool.ReadAt(at, &records) == nil {
		records.Each(func(record []byte) bool {
			if v, err := message.ViewOf(record); err == nil {
				stored = v.StoreTimestamp()
			}
			return false
		})
	}
	return stored
}

func usedRatio(st spool.Stats) float64 {
	if st.DiskTotal <= 0 {
		return 0
	}
	return 1 - float64(max(st.DiskFree, 0))/float64(st.DiskTotal)
}

const emptyDistribution = "[<=0ms]:0 [0~10ms]:0 [10~50ms]:0 [50~100ms]:0 [100~200ms]:0 [200~500ms]:0 [500ms~1s]:0 " +
	"[1~2s]:0 [2~3s]:0 [3~4s]:0 [4~5s]:0 [5~10s]:0 [10s~]:0 "

func ratio(f float64) string { return strconv.FormatFloat(f, 'f', 4, 64) }

func uptime(d time.Duration) string {
	s := int64(d.Seconds())
	return fmt.Sprintf("[ %d days, %d hours, %d minutes, %d seconds ]", s/86400, s/3600%24, s/60%60, s%60)
}

// humanBytes writes a size the way that tools split on spaces: "1.5 GiB".
func humanBytes(n int64) string {
	f, unit := float64(max(n, 0)), "B"
	for _, u := range []string{"KiB", "MiB", "GiB", "TiB"} {
		if f < 1024 {
			break
		}
		f, unit = f/1024, u
	}
	return fmt.Sprintf("%.1f %s", f, unit)
}

// config answers code 26: the options as properties text, in Apache's names.
func (i *informant) config(context.Context, *remoting.Conn, *protocol.Command) (*protocol.Command, error) {
	o := i.options
	values := map[string]string{
		"brokerName": o.Name, "brokerClusterName": o.Cluster, "brokerId": strconv.FormatInt(o.ID, 10),
		"namesrvAddr": strings.Join(o.NameServers, ";"), "brokerRole": "ASYNC_MASTER",
		"flushDiskType": o.flushName(), "autoCreateTopicEnable": strconv.FormatBool(o.AutoCreateTopics),
		"autoCreateSubscriptionGroup": "true", "defaultTopicQueueNums": strconv.Itoa(o.DefaultQueues),
		"maxMessageSize": strconv.Itoa(o.MaxMessageBytes), "brokerPermission": "6",
		"maxTransferCountOnMessageInMemory": strconv.Itoa(o.MaxPullMessages), "brokerIP1": i.address.Addr().String(),
		"listenPort": strconv.Itoa(int(i.address.Port())),
	}
	keys := make([]string, 0, len(values))
	for k := range values {
		keys = append(keys, k)
	}
	sort.Strings(keys)
	var text strings.Builder
	for _, k := range keys {
		fmt.Fprintf(&text, "%s=%s\n", k, values[k])
	}
	version, err := protocol.Marshal(i.version())
	if err != nil {
		return nil, err
	}
	return protocol.NewResponse(protocol.Success, "", &protocol.GetBrokerConfigResponse{Version: string(version)}, []byte(text.String())), nil
}
