package broker

import (
	"context"
	"fmt"
	"sync"
	"testing"
	"time"

	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/namesrv"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool"
)

// TestManyTopicsRegisterThoughTheirTableExceedsAFrame is the fault of brokers with
// 60 000 topics, whose registration was dropped for ever.
func TestManyTopicsRegisterThoughTheirTableExceedsAFrame(t *testing.T) {
	n, err := namesrv.New(namesrv.Options{Listen: "127.0.0.1:0"})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	var running sync.WaitGroup
	running.Go(func() { _ = n.Run(ctx) })
	defer running.Wait()
	defer cancel()

	e := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.NameServers = []string{n.Addr().String()} })
	const many = 60_000
	configs := make([]protocol.TopicConfig, many)
	for i := range configs {
		configs[i] = topics.ReadWrite(fmt.Sprintf("a-topic-with-a-name-of-usual-length-and-then-some-to-be-sure-of-the-size-%06d", i), 8)
	}
	if err := e.broker.Topics().Update(configs...); err != nil {
		t.Fatal(err)
	}
	last := configs[many-1].TopicName
	deadline, stop := context.WithTimeout(ctx, 30*time.Second)
	defer stop()
	for {
		answer, err := e.client.Call(deadline, n.Addr().String(), protocol.NewRequest(protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: last}, nil))
		if err != nil {
			t.Fatal(err)
		}
		if answer.ResponseCode() == protocol.Success {
			return
		}
	}
}
