//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
)

// An upstreamServer is what a sidecar forwards to.
type upstreamServer struct {
	config  string // YAML of the sidecar's upstream
	kill    func()
	restart func(t *testing.T)
	// read returns what is stored of a topic, doubles included, once expect
	// different messages are there.
	read func(t *testing.T, topic string, expect int) []received
}

// upstreams start one server of each kind that a sidecar can forward to.
var upstreams = map[string]func(t *testing.T) *upstreamServer{
	"sluice": func(t *testing.T) *upstreamServer { return clusterUpstream(startSluiceCluster(t)) },
	"apache": func(t *testing.T) *upstreamServer { return clusterUpstream(startApache(t)) },
	"nats":   natsUpstream,
}

func clusterUpstream(c *cluster) *upstreamServer {
	return &upstreamServer{
		config:  fmt.Sprintf("{kind: rocketmq, namesrv: [%s]}", c.namesrv),
		kill:    func() { c.broker.kill() },
		restart: func(t *testing.T) { c.restart(t) },
		read: func(t *testing.T, topic string, expect int) []received {
			return java540.consume(t, expect, "--namesrv", c.namesrv, "--topic", topic, "--group", topic+"-reader", "--timeout", "120")
		},
	}
}

func natsUpstream(t *testing.T) *upstreamServer {
	n := startNATS(t)
	return &upstreamServer{
		config:  fmt.Sprintf("{kind: nats, url: %q, stream: EDGE, create_stream: true}", n.url),
		kill:    func() { n.process.kill() },
		restart: func(t *testing.T) { n.restart(t) },
		read:    n.read,
	}
}

// read reads the subject of a topic from its beginning. A message's queue and
// sharding key come from the headers that the sidecar sets; its offset is the
// stream's sequence, the order in which NATS has it.
func (n *natsServer) read(t *testing.T, topic string, expect int) []received {
	t.Helper()
	nc, err := nats.Connect(n.url)
	if err != nil {
		t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	var consumer jetstream.Consumer
	err = eventually(bootTime, func(context.Context) error { // the sidecar creates the stream
		consumer, err = js.OrderedConsumer(ctx, "EDGE", jetstream.OrderedConsumerConfig{FilterSubjects: []string{"EDGE." + topic}})
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	var all []received
	seen := map[string]bool{}
	for len(seen) < expect {
		batch, err := consumer.Fetch(min(1000, expect-len(seen)), jetstream.FetchMaxWait(time.Second))
		if err != nil && !errors.Is(err, nats.ErrTimeout) {
			t.Fatal(err)
		}
		for m := range batch.Messages() {
			all = append(all, fromNATS(t, m))
			seen[all[len(all)-1].id] = true
		}
		if ctx.Err() != nil {
			t.Fatalf("%d of %d messages came", len(seen), expect)
		}
	}
	return all
}

func fromNATS(t *testing.T, m jetstream.Msg) received {
	t.Helper()
	meta, err := m.Metadata()
	if err != nil {
		t.Fatal(err)
	}
	h := m.Headers()
	first, _, _ := strings.Cut(h.Get("Sluice-Origin"), "/")
	queue, err := strconv.Atoi(first)
	if err != nil {
		t.Fatal(err)
	}
	return received{
		queue: queue, offset: int64(meta.Sequence.Stream), id: h.Get(jetstream.MsgIDHeader), key: h.Get("Sluice-Keys"),
		tag: h.Get("Sluice-Tags"), shard: h.Get("Sluice-Property-__SHARDINGKEY"), digest: digest(m.Data()),
	}
}
