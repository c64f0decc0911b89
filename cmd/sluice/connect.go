package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"text/tabwriter"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/client"
)

// reach are the flags of commands that talk to a cluster.
type reach struct {
	nameServers []string
	timeout     time.Duration
	verbose     bool
	warn        bool // log warnings even so: for commands that would else wait in silence
}

func addReachFlags(cmd *cobra.Command) *reach {
	r := &reach{}
	cmd.Flags().StringSliceVarP(&r.nameServers, "namesrv", "n", []string{"127.0.0.1:9876"},
		"name server `ADDR` (host:port), repeatable or comma separated; a sidecar's RocketMQ door serves as one")
	cmd.Flags().DurationVar(&r.timeout, "timeout", 3*time.Second, "of one call")
	cmd.Flags().BoolVarP(&r.verbose, "verbose", "v", false, "log what the client does on stderr")
	return r
}

// with runs f with a client, and returns when the client has said goodbye to its servers.
func (r *reach) with(cmd *cobra.Command, f func(ctx context.Context, c *client.Client) error) error {
	if r.timeout <= 0 {
		return usagef("--timeout: want a positive duration, have %s", r.timeout)
	}
	log := slog.New(slog.DiscardHandler)
	if r.verbose || r.warn {
		level := slog.LevelWarn
		if r.verbose {
			level = slog.LevelDebug
		}
		log = slog.New(slog.NewTextHandler(cmd.ErrOrStderr(), &slog.HandlerOptions{Level: level}))
	}
	c, err := client.New(client.Options{NameServers: r.nameServers, CallTimeout: r.timeout, Logger: log})
	if err != nil {
		return usageError{err}
	}
	ctx, stop := context.WithCancel(cmd.Context())
	defer stop()
	ended := make(chan error, 1)
	go func() { ended <- c.Run(ctx) }()
	err = f(ctx, c)
	stop()
	return errors.Join(err, <-ended)
}

// table writes rows as aligned columns.
func table(w io.Writer, rows [][]any) error {
	t := tabwriter.NewWriter(w, 0, 4, 2, ' ', 0)
	for _, row := range rows {
		for i, cell := range row {
			if i > 0 {
				fmt.Fprint(t, "\t")
			}
			fmt.Fprint(t, cell)
		}
		fmt.Fprintln(t)
	}
	return t.Flush()
}
