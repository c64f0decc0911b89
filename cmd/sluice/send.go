package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"io"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/protocol/message"
)

// maxLine bounds one line of stdin, at what brokers take as a body by default.
const maxLine = 4 << 20

// sending is what the flags of send say.
type sending struct {
	*reach
	group, tag string
	keys       []string
	properties map[string]string
	quiet      bool
}

func newSend(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "send TOPIC [MESSAGE|-]",
		Short: "Send a message, or every line of stdin as one",
		Long: `Send one message, or every line of stdin as a message when MESSAGE is - or missing. Empty lines
are skipped. For each message that is stored its id, queue and offset are printed.`,
		Example: `  sluice send orders hello
  sluice send orders --tag new --key 4711 --property shop=7 '{"total": 12}'
  seq 1000 | sluice send -n 127.0.0.1:9800 readings -     # through a sidecar's door`,
		Args: cobra.RangeArgs(1, 2),
	}
	o := &sending{reach: addReachFlags(cmd)}
	cmd.Flags().StringVar(&o.group, "group", "sluice-cli", "producer `GROUP`")
	cmd.Flags().StringVar(&o.tag, "tag", "", "tag that consumers can filter by")
	cmd.Flags().StringArrayVar(&o.keys, "key", nil, "key that the message can be found by; repeatable")
	cmd.Flags().StringToStringVar(&o.properties, "property", nil, "user property `NAME=VALUE`; repeatable")
	cmd.Flags().BoolVarP(&o.quiet, "quiet", "q", false, "print only how many messages were stored")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := message.ValidateTopic(args[0]); err != nil {
			return usageError{err}
		}
		template, err := o.message(args[0])
		if err != nil {
			return usageError{err}
		}
		bodies := one(args[len(args)-1])
		if len(args) == 1 || args[1] == "-" {
			bodies = lines(s.in)
		}
		return o.with(cmd, func(ctx context.Context, c *client.Client) error {
			return o.send(ctx, c, template, bodies, cmd.OutOrStdout())
		})
	}
	return cmd
}

// message is the message that the flags describe, still without a body.
func (o *sending) message(topic string) (message.Message, error) {
	m := message.Message{Topic: topic}
	for name, value := range o.properties {
		if message.IsSystemProperty(name) {
			return m, fmt.Errorf("--property %s: this name belongs to the system", name)
		}
		if strings.ContainsAny(name+value, "\x01\x02") || name == "" {
			return m, fmt.Errorf("--property %q: names and values must not hold the bytes 1 and 2, nor names be empty", name)
		}
		m.SetProperty(name, value)
	}
	if o.tag != "" {
		m.SetProperty(message.PropertyTags, o.tag)
	}
	if len(o.keys) > 0 {
		m.SetProperty(message.PropertyKeys, strings.Join(o.keys, " "))
	}
	return m, nil
}

func (o *sending) send(ctx context.Context, c *client.Client, m message.Message, bodies func() ([]byte, error), out io.Writer) error {
	producer, err := client.NewProducer(c, client.ProducerOptions{Group: o.group, Timeout: o.timeout})
	if err != nil {
		return usageError{err}
	}
	stored := 0
	if o.quiet {
		defer func() { fmt.Fprintf(out, "%d stored\n", stored) }()
	}
	for {
		body, err := bodies()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return fmt.Errorf("after %d messages: %w", stored, err)
		}
		m.Body = body
		result, err := producer.Send(ctx, &m)
		if err != nil {
			return fmt.Errorf("after %d messages: %w", stored, err)
		}
		stored++
		if !o.quiet {
			fmt.Fprintf(out, "%s %s %s/%d offset %d\n", result.Status, result.MessageID, result.Queue.BrokerName,
				result.Queue.QueueID, result.QueueOffset)
		}
	}
}

// one yields a single body.
func one(text string) func() ([]byte, error) {
	given := false
	return func() ([]byte, error) {
		if given {
			return nil, io.EOF
		}
		given = true
		return []byte(text), nil
	}
}

// lines yields every line that is not empty. A body is valid until the next call.
func lines(in io.Reader) func() ([]byte, error) {
	scanner := bufio.NewScanner(in)
	scanner.Buffer(make([]byte, 0, 64<<10), maxLine)
	return func() ([]byte, error) {
		for scanner.Scan() {
			if len(scanner.Bytes()) > 0 {
				return scanner.Bytes(), nil
			}
		}
		if errors.Is(scanner.Err(), bufio.ErrTooLong) {
			return nil, fmt.Errorf("read stdin: the next line is longer than %d bytes", maxLine)
		}
		if err := scanner.Err(); err != nil {
			return nil, fmt.Errorf("read stdin: %w", err)
		}
		return nil, io.EOF
	}
}
