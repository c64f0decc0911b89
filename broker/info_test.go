package broker

import (
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool"
)

func (p *peer) runtimeInfo() map[string]string {
	p.t.Helper()
	var table protocol.KVTable
	p.unmarshal(p.must(protocol.GetBrokerRuntimeInfo, nil, nil), &table)
	return table.Table
}

// The forms that tools read values in.
const (
	whole    = `^-?\d+$`
	fraction = `^-?\d+(\.\d+)?$`
	three    = `^\d+(\.\d+)?(e[+-]\d+)? \d+(\.\d+)?(e[+-]\d+)? \d+(\.\d+)?(e[+-]\d+)?$`
	size     = `^\d+(\.\d+)? (B|[KMGTP]iB)$`
)

// runtimeKeys are the keys without which Apache's exporter, dashboard or admin
// tool drop a broker, and the form of their values.
var runtimeKeys = map[string]string{
	whole: `msgPutTotalTodayNow msgPutTotalTodayMorning msgPutTotalYesterdayMorning msgGetTotalTodayNow msgGetTotalTodayMorning
		msgGetTotalYesterdayMorning sendThreadPoolQueueSize sendThreadPoolQueueCapacity sendThreadPoolQueueHeadWaitTimeMills
		pullThreadPoolQueueSize pullThreadPoolQueueCapacity pullThreadPoolQueueHeadWaitTimeMills queryThreadPoolQueueSize
		queryThreadPoolQueueCapacity queryThreadPoolQueueHeadWaitTimeMills litePullThreadPoolQueueSize litePullThreadPoolQueueCapacity
		litePullThreadPoolQueueHeadWaitTimeMills ackThreadPoolQueueSize ackThreadPoolQueueCapacity ackThreadPoolQueueHeadWaitTimeMills
		EndTransactionQueueSize EndTransactionThreadPoolQueueCapacity bootTimestamp commitLogMinOffset commitLogMaxOffset
		dispatchMaxBuffer dispatchBehindBytes pageCacheLockTimeMills getMessageEntireTimeMax putMessageEntireTimeMax
		putMessageTimesTotal putMessageFailedTimes putMessageSizeTotal startAcceptSendRequestTimeStamp earliestMessageTimeStamp
		remainTransientStoreBufferNumbs brokerVersion timerReadBehind timerOffsetBehind timerCongestNum`,
	fraction: `consumeQueueDiskRatio commitLogDiskRatio putMessageAverageSize putLatency99 putLatency999 timerEnqueueTps timerDequeueTps`,
	three:    `putTps getMissTps getTotalTps getFoundTps getTransferredTps getTransferedTps`,
	size:     `remainHowManyDataToFlush`,

	`^\[ \d+ days, \d+ hours, \d+ minutes, \d+ seconds \]$`:                       `runtime`,
	`^Total : \d+\.\d (B|[KMGTP]iB), Free : \d+\.\d (B|[KMGTP]iB)\.$`:             `commitLogDirCapacity`,
	`^\[<=0ms\]:\d+ \[0~10ms\]:\d+ (\[[0-9.ms]+~[0-9.ms]+\]:\d+ )+\[10s~\]:\d+ $`: `putMessageDistributeTime`,
	`.`:      `brokerVersionDesc`,
	`^true$`: `brokerActive`,
}

func checkRuntimeInfo(t *testing.T, info map[string]string) {
	t.Helper()
	for form, keys := range runtimeKeys {
		for key := range strings.FieldsSeq(keys) {
			if value, ok := info[key]; !ok || !regexp.MustCompile(form).MatchString(value) {
				t.Errorf("%s is %q (there: %v), want %s", key, value, ok, form)
			}
		}
	}
}

// TestRuntimeInfo (fault F81): every key is there and readable from the first
// answer on, and tells the truth later.
func TestRuntimeInfo(t *testing.T) {
	dir := t.TempDir()
	e := start(t, dir, nil)
	info := e.runtimeInfo()
	checkRuntimeInfo(t, info)
	for _, key := range []string{"commitLogMaxOffset", "putMessageTimesTotal", "msgGetTotalTodayNow", "dispatchBehindBytes"} {
		if info[key] != "0" {
			t.Errorf("before the first message %s is %s", key, info[key])
		}
	}
	for range 3 {
		e.mustSend("t", 0, "", string(filled(1000, "x")))
	}
	e.awaitMax("t", 0, 3)
	e.send("t", 99, "", "refused")
	e.pullAll("t", 0, 0)
	info = e.runtimeInfo()
	checkRuntimeInfo(t, info)
	for key, want := range map[string]string{
		"putMessageTimesTotal": "3", "msgPutTotalTodayNow": "3", "msgGetTotalTodayNow": "3", "putMessageFailedTimes": "1",
		"commitLogMaxOffset": strconv.FormatInt(e.spool.Stats().MaxOffset, 10), "commitLogMinOffset": "0", "dispatchBehindBytes": "0",
	} {
		if info[key] != want {
			t.Errorf("%s is %s, want %s", key, info[key], want)
		}
	}
	if average, _ := strconv.ParseFloat(info["putMessageAverageSize"], 64); average < 1000 || average > 1500 {
		t.Errorf("putMessageAverageSize is %s for bodies of 1000 bytes", info["putMessageAverageSize"])
	}
	first := e.pull(pullHeader("t", 0, 0, "*", 0)).messages[0]
	if got := info["earliestMessageTimeStamp"]; got != strconv.FormatInt(first.StoreTimestamp, 10) {
		t.Errorf("earliestMessageTimeStamp is %s, want %d", got, first.StoreTimestamp)
	}
	e.stop()
	checkRuntimeInfo(t, start(t, dir, nil).runtimeInfo())
}

// TestRates: speeds are over the last 10, 60 and 600 seconds, or as far back as
// there are readings.
func TestRates(t *testing.T) {
	r := rates{counters: &Counters{}}
	stored := func(t Totals) int64 { return t.Stored }
	if got := r.text(stored); got != "0 0 0" {
		t.Errorf("without readings: %s", got)
	}
	r.sample()
	if got := r.text(stored); got != "0 0 0" {
		t.Errorf("with one reading: %s", got)
	}
	for range 7 {
		r.counters.stored.Add(100)
		r.sample()
	}
	r.counters.stored.Add(500)
	r.sample()
	if got := r.text(stored); got != "50 16.666666666666668 15" {
		t.Errorf("after 80 s: %s", got)
	}
	for range 2 * rateSamples {
		r.sample()
	}
	if got := r.text(stored); got != "0 0 0" || len(r.samples) != rateSamples {
		t.Errorf("after a silence: %s, %d samples", got, len(r.samples))
	}
}

// TestBrokerConfig: 26 answers properties text and a version that tools decode.
func TestBrokerConfig(t *testing.T) {
	e := start(t, t.TempDir(), func(o *Options, _ *spool.Options) {
		o.Name, o.Cluster, o.FlushSync, o.MaxPullMessages = "edge-7", "Edge", true, 64
	})
	answer := e.must(protocol.GetBrokerConfig, nil, nil)
	var h protocol.GetBrokerConfigResponse
	e.decode(answer, &h)
	var version protocol.DataVersion
	if err := protocol.Unmarshal([]byte(h.Version), &version); err != nil {
		t.Errorf("version %q: %v", h.Version, err)
	}
	values := map[string]string{}
	for line := range strings.Lines(string(answer.Body)) {
		key, value, ok := strings.Cut(strings.TrimSuffix(line, "\n"), "=")
		if !ok {
			t.Errorf("line %q", line)
		}
		values[key] = value
	}
	for key, want := range map[string]string{
		"brokerName": "edge-7", "brokerClusterName": "Edge", "brokerId": "0", "flushDiskType": "SYNC_FLUSH",
		"autoCreateTopicEnable": "true", "maxTransferCountOnMessageInMemory": "64", "maxMessageSize": "4194304",
		"brokerIP1": "127.0.0.1", "listenPort": strconv.Itoa(int(e.broker.Addr().Port())), "brokerRole": "ASYNC_MASTER",
	} {
		if values[key] != want {
			t.Errorf("%s is %q, want %q", key, values[key], want)
		}
	}
}
