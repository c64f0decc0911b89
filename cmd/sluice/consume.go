package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"sync"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/protocol/message"
)

// consuming is what the flags of consume say.
type consuming struct {
	*reach
	group, from, expression string
	count                   int
	asJSON                  bool
}

func newConsume() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "consume TOPIC",
		Short: "Print messages as a member of a consumer group",
		Long: `Print messages as a member of a consumer group, until interrupted or until --count messages are
printed. What is printed is committed: the group goes on from there next time.

--from counts only where the group has not consumed yet; while a queue's first message is still in the
memory of its broker, brokers let a new group begin there, whatever --from says. TIME is RFC 3339 (2026-01-31T08:00:00Z) or
a duration that lies back (15m).`,
		Example: `  sluice consume orders --group billing
  sluice consume orders --group test --from first --count 10 --json
  sluice consume orders --group test --from 15m --tag 'new || paid'`,
		Args: cobra.ExactArgs(1),
	}
	o := &consuming{reach: addReachFlags(cmd)}
	o.warn = true
	cmd.Flags().StringVarP(&o.group, "group", "g", "", "consumer `GROUP` (required)")
	cmd.Flags().StringVar(&o.from, "from", "last", "where a new group starts: `first|last|TIME`")
	cmd.Flags().StringVar(&o.expression, "tag", "*", "tags to take, joined by ||")
	cmd.Flags().IntVar(&o.count, "count", 0, "stop after `N` messages; 0: never")
	cmd.Flags().BoolVar(&o.asJSON, "json", false, "print one JSON object for each message instead of its body")
	_ = cmd.MarkFlagRequired("group")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := message.ValidateTopic(args[0]); err != nil {
			return usageError{err}
		}
		push, err := o.options(args[0], time.Now())
		if err != nil {
			return usageError{err}
		}
		return o.with(cmd, func(ctx context.Context, c *client.Client) error {
			return o.consume(ctx, c, push, cmd.OutOrStdout())
		})
	}
	return cmd
}

func (o *consuming) options(topic string, now time.Time) (client.PushOptions, error) {
	p := client.PushOptions{Group: o.group, Subscriptions: map[string]string{topic: o.expression}}
	if o.count < 0 {
		return p, fmt.Errorf("--count: want 0 or more, have %d", o.count)
	}
	switch o.from {
	case "first":
		p.FromWhere = client.FromFirst
	case "last":
		p.FromWhere = client.FromLast
	default:
		p.FromWhere = client.FromTimestamp
		if back, err := time.ParseDuration(o.from); err == nil && back > 0 {
			p.FromTime = now.Add(-back)
		} else if p.FromTime, err = time.Parse(time.RFC3339, o.from); err != nil {
			return p, fmt.Errorf("--from: %q is neither first, last, a time such as 2026-01-31T08:00:00Z nor a duration such as 15m", o.from)
		}
	}
	return p, nil
}

// errEnough stops messages beyond --count from being committed.
var errEnough = errors.New("enough messages")

func (o *consuming) consume(ctx context.Context, c *client.Client, push client.PushOptions, out io.Writer) error {
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	var mu sync.Mutex // queues are consumed at once, lines are printed one by one
	var failed error
	printed := 0
	push.Listener = func(_ context.Context, ms []*message.Message) error {
		mu.Lock()
		defer mu.Unlock()
		for _, m := range ms {
			if failed != nil || (o.count > 0 && printed == o.count) {
				return errEnough
			}
			if failed = o.print(out, m); failed != nil {
				stop()
				return failed
			}
			if printed++; printed == o.count {
				stop()
			}
		}
		return nil
	}
	consumer, err := client.NewPushConsumer(c, push)
	if err != nil {
		return usageError{err}
	}
	if err := consumer.Run(ctx); err != nil && ctx.Err() == nil {
		return err
	}
	mu.Lock()
	defer mu.Unlock()
	return failed
}

func (o *consuming) print(out io.Writer, m *message.Message) error {
	if !o.asJSON {
		_, err := out.Write(append(m.Body[:len(m.Body):len(m.Body)], '\n'))
		return err
	}
	return json.NewEncoder(out).Encode(shown(m))
}
