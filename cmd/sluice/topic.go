package main

import (
	"context"
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/client/admin"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

func newTopic() *cobra.Command {
	cmd := group("topic", "List, create, delete and describe topics", "  sluice topic list\n  sluice topic create orders --queues 8")
	cmd.AddCommand(newTopicList(), newTopicCreate(), newTopicDelete(), newTopicDescribe())
	return cmd
}

// checkTopics refuses arguments that no topic can be named.
func checkTopics(n int) cobra.PositionalArgs {
	return func(cmd *cobra.Command, args []string) error {
		if err := cobra.ExactArgs(n)(cmd, args); err != nil {
			return err
		}
		for _, topic := range args {
			if err := message.ValidateTopic(topic); err != nil {
				return err
			}
		}
		return nil
	}
}

func newTopicList() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "list",
		Short:   "Print the topics that a name server knows",
		Example: "  sluice topic list\n  sluice topic list --system -n 10.0.0.11:9876",
		Args:    cobra.NoArgs,
	}
	r := addReachFlags(cmd)
	system := cmd.Flags().Bool("system", false, "also system, retry and dead-letter topics")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		return r.with(cmd, func(ctx context.Context, c *client.Client) error {
			topics, err := admin.Topics(ctx, c)
			if err != nil {
				return err
			}
			info, err := admin.Cluster(ctx, c)
			if err != nil {
				return err
			}
			for _, topic := range topics {
				if *system || users(topic, info) {
					fmt.Fprintln(cmd.OutOrStdout(), topic)
				}
			}
			return nil
		})
	}
	return cmd
}

// users tells a user's topic from those that brokers make for themselves. Every cluster and
// every broker has topics of its own name.
func users(topic string, info *protocol.ClusterInfo) bool {
	name := strings.TrimSuffix(topic, message.ReplyTopicSuffix)
	if _, ok := info.ClusterAddrTable[name]; ok {
		return false
	}
	if _, ok := info.BrokerAddrTable[topic]; ok {
		return false
	}
	// Newer brokers have system topics that this binary does not know, under one prefix.
	if strings.HasPrefix(strings.ToLower(topic), message.SystemTopicPrefix) {
		return false
	}
	return !message.IsSystemTopic(topic) && !strings.HasPrefix(topic, message.RetryPrefix) &&
		!strings.HasPrefix(topic, message.DeadLetterPrefix)
}

func newTopicCreate() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "create TOPIC",
		Short: "Create a topic, or change its queues and permission",
		Example: `  sluice topic create orders --queues 8
  sluice topic create orders --broker 10.0.0.21:10911 --perm r`,
		Args: checkTopics(1),
	}
	r := addReachFlags(cmd)
	queues := cmd.Flags().Int32("queues", 8, "queues on each broker")
	perm := cmd.Flags().String("perm", "rw", "`rw|r|w`: what clients may do")
	where := addWhereFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		bits, err := permission(*perm)
		if err != nil {
			return err
		}
		if *queues < 1 {
			return usagef("--queues: want at least 1, have %d", *queues)
		}
		config := protocol.TopicConfig{
			TopicName: args[0], ReadQueueNums: *queues, WriteQueueNums: *queues, Perm: bits, TopicFilterType: protocol.SingleTag,
		}
		return r.with(cmd, func(ctx context.Context, c *client.Client) error {
			return where.each(ctx, c, func(addr string) error {
				if err := admin.CreateTopic(ctx, c, addr, config); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: %d queues, %s\n", addr, *queues, *perm)
				return err
			})
		})
	}
	return cmd
}

func permission(text string) (int32, error) {
	switch text {
	case "rw", "wr":
		return protocol.PermRead | protocol.PermWrite, nil
	case "r":
		return protocol.PermRead, nil
	case "w":
		return protocol.PermWrite, nil
	}
	return 0, usagef("--perm: %q is none of rw, r, w", text)
}

func newTopicDelete() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "delete TOPIC",
		Short:   "Delete a topic with its messages",
		Long:    `Delete a topic with its messages on the master brokers, and its route on the name servers.`,
		Example: "  sluice topic delete orders",
		Args:    checkTopics(1),
	}
	r := addReachFlags(cmd)
	where := addWhereFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return r.with(cmd, func(ctx context.Context, c *client.Client) error {
			if _, err := admin.Route(ctx, c, args[0]); err != nil {
				return err
			}
			err := where.each(ctx, c, func(addr string) error {
				if err := admin.DeleteTopic(ctx, c, addr, args[0]); err != nil {
					return err
				}
				_, err := fmt.Fprintf(cmd.OutOrStdout(), "%s: deleted\n", addr)
				return err
			})
			// With one broker picked out, the others still serve the topic.
			if err != nil || where.broker != "" {
				return err
			}
			return admin.DeleteTopicRoute(ctx, c, args[0])
		})
	}
	return cmd
}

// where says which brokers a change goes to: one, or all masters of a cluster or of all.
type where struct{ broker, cluster string }

func addWhereFlags(cmd *cobra.Command) *where {
	w := &where{}
	cmd.Flags().StringVar(&w.broker, "broker", "", "only on the broker at `ADDR` (host:port)")
	cmd.Flags().StringVar(&w.cluster, "cluster", "", "only on the masters of the cluster `NAME`; default: all masters")
	cmd.MarkFlagsMutuallyExclusive("broker", "cluster")
	return w
}

// each calls f for every broker, the others too when one fails.
func (w *where) each(ctx context.Context, c *client.Client, f func(addr string) error) error {
	addrs := []string{w.broker}
	if w.broker == "" {
		var err error
		if addrs, err = admin.Masters(ctx, c, w.cluster); err != nil {
			return err
		}
	}
	var failures []error
	for _, addr := range addrs {
		failures = append(failures, f(addr))
	}
	return errors.Join(failures...)
}

func newTopicDescribe() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "describe TOPIC",
		Short:   "Print a topic's queues with their offsets",
		Example: "  sluice topic describe orders",
		Args:    checkTopics(1),
	}
	r := addReachFlags(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return r.with(cmd, func(ctx context.Context, c *client.Client) error {
			route, err := c.Route(ctx, args[0])
			if err != nil {
				return err
			}
			rows := [][]any{{"BROKER", "QUEUE", "MIN", "MAX", "MESSAGES"}}
			for _, q := range route.Read {
				low, err := c.MinOffset(ctx, q)
				if err != nil {
					return err
				}
				high, err := c.MaxOffset(ctx, q)
				if err != nil {
					return err
				}
				rows = append(rows, []any{q.BrokerName, q.QueueID, low, high, high - low})
			}
			return table(cmd.OutOrStdout(), rows)
		})
	}
	return cmd
}
