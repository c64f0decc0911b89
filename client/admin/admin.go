// Package admin has the operator's calls to name servers and brokers: plain
// functions over a client, used by the command line.
//
// Errors wrap a *protocol.Error when a server refused, or client.ErrUnavailable
// when it did not answer.
package admin

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/protocol"
)

// Route returns what a name server knows of a topic. The error wraps
// client.ErrTopicNotFound when it knows nothing.
func Route(ctx context.Context, c *client.Client, topic string) (*protocol.TopicRouteData, error) {
	return c.QueryRoute(ctx, topic)
}

// Cluster returns the clusters, broker names and addresses that a name server
// knows.
func Cluster(ctx context.Context, c *client.Client) (*protocol.ClusterInfo, error) {
	info := new(protocol.ClusterInfo)
	err := askNameServer(ctx, c, protocol.GetBrokerClusterInfo, info)
	return info, err
}

// Topics returns the names of all topics that a name server knows, sorted.
func Topics(ctx context.Context, c *client.Client) ([]string, error) {
	var list protocol.TopicList
	err := askNameServer(ctx, c, protocol.GetAllTopicListFromNameServer, &list)
	slices.Sort(list.TopicList)
	return list.TopicList, err
}

// Masters returns the addresses of the master brokers, of one cluster or, when
// cluster is empty, of all, sorted.
func Masters(ctx context.Context, c *client.Client, cluster string) ([]string, error) {
	info, err := Cluster(ctx, c)
	if err != nil {
		return nil, err
	}
	var addrs []string
	for _, name := range slices.Sorted(maps.Keys(info.BrokerAddrTable)) {
		broker := info.BrokerAddrTable[name]
		if cluster != "" && broker.Cluster != cluster {
			continue
		}
		if addr, ok := broker.BrokerAddrs[0]; ok {
			addrs = append(addrs, addr)
		}
	}
	slices.Sort(addrs)
	if len(addrs) == 0 {
		if cluster == "" {
			return nil, errors.New("no master broker: none with id 0 is registered")
		}
		return nil, fmt.Errorf("no master broker in cluster %q: none with id 0 is registered", cluster)
	}
	return addrs, nil
}

// CreateTopic creates a topic on the broker at addr, or changes its settings
// there. The broker tells the name servers.
func CreateTopic(ctx context.Context, c *client.Client, addr string, t protocol.TopicConfig) error {
	header := protocol.CreateTopicRequest{
		Topic:           t.TopicName,
		DefaultTopic:    client.DefaultTopic,
		ReadQueueNums:   t.ReadQueueNums,
		WriteQueueNums:  t.WriteQueueNums,
		Perm:            t.Perm,
		TopicFilterType: "SINGLE_TAG",
		TopicSysFlag:    protocol.Some(t.TopicSysFlag),
		Order:           t.Order,
	}
	return tell(ctx, c, addr, protocol.NewRequest(protocol.UpdateAndCreateTopic, &header, nil))
}

// DeleteTopic deletes a topic with its messages on the broker at addr.
func DeleteTopic(ctx context.Context, c *client.Client, addr, topic string) error {
	return tell(ctx, c, addr, protocol.NewRequest(protocol.DeleteTopicInBroker, &protocol.TopicRequest{Topic: topic}, nil))
}

// DeleteTopicRoute makes every name server forget a topic; they know nothing of
// each other. All are tried; the error joins the failures.
func DeleteTopicRoute(ctx context.Context, c *client.Client, topic string) error {
	var failures []error
	for _, addr := range c.NameServers() {
		header := protocol.DeleteTopicFromNameServerRequest{Topic: topic}
		failures = append(failures, tell(ctx, c, addr, protocol.NewRequest(protocol.DeleteTopicInNameServer, &header, nil)))
	}
	return errors.Join(failures...)
}

// CreateGroup creates a consumer group on the broker at addr, or changes its
// settings there.
func CreateGroup(ctx context.Context, c *client.Client, addr string, g protocol.SubscriptionGroupConfig) error {
	body, err := protocol.Marshal(&g)
	if err != nil {
		return fmt.Errorf("create group %s: %w", g.GroupName, err)
	}
	return tell(ctx, c, addr, protocol.NewRequest(protocol.UpdateAndCreateSubscriptionGroup, nil, body))
}

// RuntimeInfo returns the figures of the broker at addr, by name.
func RuntimeInfo(ctx context.Context, c *client.Client, addr string) (map[string]string, error) {
	resp, err := c.CallOK(ctx, addr, protocol.NewRequest(protocol.GetBrokerRuntimeInfo, nil, nil))
	if err != nil {
		return nil, err
	}
	var table protocol.KVTable
	if err := protocol.Unmarshal(resp.Body, &table); err != nil {
		return nil, fmt.Errorf("runtime info of %s: %w", addr, err)
	}
	return table.Table, nil
}

func tell(ctx context.Context, c *client.Client, addr string, cmd *protocol.Command) error {
	_, err := c.CallOK(ctx, addr, cmd)
	return err
}

func askNameServer(ctx context.Context, c *client.Client, code protocol.RequestCode, into any) error {
	resp, err := c.CallNameServer(ctx, func() *protocol.Command { return protocol.NewRequest(code, nil, nil) })
	if err != nil {
		return fmt.Errorf("%s: %w", code, err)
	}
	if err := resp.Err(); err != nil {
		return fmt.Errorf("%s: %w", code, err)
	}
	if err := protocol.Unmarshal(resp.Body, into); err != nil {
		return fmt.Errorf("%s: %w", code, err)
	}
	return nil
}
