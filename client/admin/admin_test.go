package admin_test

import (
	"context"
	"errors"
	"slices"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/client/admin"
	"github.com/sluicemq/sluice/client/clienttest"
	"github.com/sluicemq/sluice/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func start(t *testing.T, cluster *clienttest.Cluster) *client.Client {
	t.Helper()
	c, err := client.New(client.Options{NameServers: cluster.NameServers()})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	done := make(chan error, 1)
	go func() { done <- c.Run(ctx) }()
	t.Cleanup(func() {
		cancel()
		if err := <-done; err != nil {
			t.Error(err)
		}
	})
	return c
}

func TestTopicsAreCreatedListedAndDeleted(t *testing.T) {
	cluster := clienttest.New(t, 2, 2)
	c, ctx := start(t, cluster), t.Context()
	masters, err := admin.Masters(ctx, c, "")
	if err != nil || len(masters) != 2 {
		t.Fatalf("masters %v, %v", masters, err)
	}
	for _, addr := range masters {
		err := admin.CreateTopic(ctx, c, addr, protocol.TopicConfig{TopicName: "orders", ReadQueueNums: 3, WriteQueueNums: 3, Perm: 6})
		if err != nil {
			t.Fatal(err)
		}
	}
	route, err := admin.Route(ctx, c, "orders")
	if err != nil || len(route.QueueDatas) != 2 || route.QueueDatas[0].WriteQueueNums != 3 {
		t.Errorf("route %+v, %v", route, err)
	}
	topics, err := admin.Topics(ctx, c)
	if err != nil || !slices.Equal(topics, []string{"TBW102", "orders"}) {
		t.Errorf("topics %v, %v", topics, err)
	}
	for _, addr := range masters {
		if err := admin.DeleteTopic(ctx, c, addr, "orders"); err != nil {
			t.Fatal(err)
		}
	}
	if err := admin.DeleteTopicRoute(ctx, c, "orders"); err != nil {
		t.Fatal(err)
	}
	if n := cluster.Requests(protocol.DeleteTopicInNameServer); n != 2 {
		t.Errorf("%d name servers told, want 2", n)
	}
	if _, err := admin.Route(ctx, c, "orders"); !errors.Is(err, client.ErrTopicNotFound) {
		t.Errorf("route of the deleted topic: %v", err)
	}
}

func TestClusterGroupAndRuntimeInfo(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	c, ctx := start(t, cluster), t.Context()
	info, err := admin.Cluster(ctx, c)
	if err != nil || !slices.Equal(info.ClusterAddrTable["DefaultCluster"], []string{"broker-a"}) {
		t.Errorf("cluster %+v, %v", info, err)
	}
	if _, err := admin.Masters(ctx, c, "nowhere"); err == nil {
		t.Error("masters of an unknown cluster")
	}
	addr := cluster.Broker("broker-a").Addr()
	if err := admin.CreateGroup(ctx, c, addr, protocol.SubscriptionGroupConfig{GroupName: "readers"}); err != nil {
		t.Fatal(err)
	}
	if groups := cluster.Broker("broker-a").Groups(); !slices.Equal(groups, []string{"readers"}) {
		t.Errorf("groups %v", groups)
	}
	table, err := admin.RuntimeInfo(ctx, c, addr)
	if err != nil || table["brokerName"] != "broker-a" {
		t.Errorf("runtime info %v, %v", table, err)
	}
}

func TestRefusalsKeepTheirCode(t *testing.T) {
	cluster := clienttest.New(t, 1, 1)
	cluster.Control(protocol.UpdateAndCreateTopic, func(clienttest.Request) clienttest.Verdict {
		return clienttest.Refuse(protocol.InvalidParameter, "bad name")
	})
	err := admin.CreateTopic(t.Context(), start(t, cluster), cluster.Broker("broker-a").Addr(), protocol.TopicConfig{TopicName: "x"})
	var answer *protocol.Error
	if !errors.As(err, &answer) || answer.Code != protocol.InvalidParameter {
		t.Errorf("got %v", err)
	}
}
