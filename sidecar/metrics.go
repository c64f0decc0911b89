package sidecar

import (
	"net/http"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"

	"github.com/sluicemq/sluice/broker"
	"github.com/sluicemq/sluice/spool"
)

// metrics reads the sidecar's figures when it is scraped. The table of
// descriptions is the documentation of what there is; a series goes with the
// lane that it describes.
type metrics struct {
	spool    *spool.Spool
	lanes    *lanes
	counters func() broker.Totals
}

func describe(name, help string, labels ...string) *prometheus.Desc {
	return prometheus.NewDesc("sluice_"+name, help, labels, nil)
}

var (
	laneBacklog   = describe("lane_backlog_messages", "Messages stored and not yet accepted by the upstream.", "upstream", "topic")
	laneForwarded = describe("lane_forwarded_messages_total", "Messages that the upstream has accepted since start.", "upstream")
	laneParked    = describe("lane_parked_messages_total", "Messages that the upstream refused for good and that were put aside.", "upstream")
	laneFailures  = describe("lane_failures_total", "Attempts that the upstream did not accept whole.", "upstream")
	laneResent    = describe("upstream_resent_messages_total", "Messages sent again because the first outcome was unknown.", "upstream")
	laneDoubles   = describe("upstream_duplicate_messages_total", "Messages that the upstream itself recognised as doubles.", "upstream")
	accepted      = describe("accepted_messages_total", "Messages acknowledged to local producers since start.")
	refused       = describe("refused_messages_total", "Sends answered with an error since start.")
	spoolBytes    = describe("spool_bytes", "Bytes of the commit log's segments on disk.")
	spoolLimit    = describe("spool_limit_bytes", "The commit log's configured limit; 0 is none.")
	spoolUnsynced = describe("spool_unflushed_bytes", "Bytes appended and not yet flushed.")
	diskFree      = describe("disk_free_bytes", "Free bytes of the spool's file system.")
	writable      = describe("spool_writable", "1 when sends are accepted, 0 when they are refused.")
)

func (m *metrics) handler() http.Handler {
	registry := prometheus.NewRegistry()
	registry.MustRegister(m, collectors.NewGoCollector(), collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))
	return promhttp.HandlerFor(registry, promhttp.HandlerOpts{})
}

// Describe sends nothing: the series come and go with lanes, so the collector is
// an unchecked one.
func (m *metrics) Describe(chan<- *prometheus.Desc) {}

// Collect reads all figures.
func (m *metrics) Collect(out chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v, labels...)
	}
	counter := func(d *prometheus.Desc, v int64, labels ...string) {
		out <- prometheus.MustNewConstMetric(d, prometheus.CounterValue, float64(v), labels...)
	}
	for _, lane := range m.lanes.status() {
		gauge(laneBacklog, float64(lane.Backlog), lane.Upstream, lane.Topic)
	}
	for name, p := range m.lanes.progress {
		counter(laneForwarded, p.forwarded.Load(), name)
		counter(laneParked, p.parked.Load(), name)
		counter(laneFailures, p.failures.Load(), name)
	}
	for name, up := range m.lanes.upstreams {
		sent := up.Sender.Stats()
		counter(laneResent, int64(sent.Resent), name)
		counter(laneDoubles, int64(sent.Duplicates), name)
	}
	t, st := m.counters(), m.spool.Stats()
	counter(accepted, t.Stored)
	counter(refused, t.Refused)
	gauge(spoolBytes, float64(st.Bytes))
	gauge(spoolLimit, float64(st.MaxBytes))
	gauge(spoolUnsynced, float64(st.MaxOffset-st.DurableOffset))
	gauge(diskFree, float64(st.DiskFree))
	ok := 1.0
	if m.spool.Writable() != nil {
		ok = 0
	}
	gauge(writable, ok)
}
