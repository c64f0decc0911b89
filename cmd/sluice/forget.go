package main

import (
	"context"
	"fmt"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/spool"
)

func newSpoolForget() *cobra.Command {
	return &cobra.Command{
		Use:   "forget DIR UPSTREAM",
		Short: "Drop the positions of an upstream that is no longer configured",
		Long: `Drop the positions of an upstream in a stopped sidecar's store. What that upstream has not taken is then
no longer kept for it. An upstream that is configured again under the same name begins with the oldest
message that is still there.`,
		Example: "  sluice spool forget sluice-data/sidecar old-core",
		Args:    cobra.ExactArgs(2),
		RunE: func(cmd *cobra.Command, args []string) error {
			store, err := spool.Open(spool.Options{Dir: args[0], KeepUnread: true})
			if err != nil {
				return err
			}
			forgotten, waiting, err := forget(store, args[1])
			// A Run whose context has ended is a clean stop.
			ended, cancel := context.WithCancel(cmd.Context())
			cancel()
			if stopErr := store.Run(ended); err == nil {
				err = stopErr
			}
			if err != nil {
				return err
			}
			if forgotten == 0 {
				return fmt.Errorf("no position of upstream %q in %s", args[1], args[0])
			}
			fmt.Fprintf(cmd.OutOrStdout(), "forgot %d positions of %s; %d messages had not been forwarded to it\n", forgotten, args[1], waiting)
			return nil
		},
	}
}

// forget removes an upstream's cursors and counts the messages they had before
// them.
func forget(store *spool.Spool, upstream string) (forgotten int, waiting int64, err error) {
	for _, c := range store.Cursors() {
		if c.Name != upstream {
			continue
		}
		queue := store.Queue(c.Topic, c.QueueID)
		waiting += max(queue.Max()-c.Offset, 0)
		if err := store.RemoveCursor(c.Name, queue); err != nil {
			return forgotten, waiting, err
		}
		forgotten++
	}
	return forgotten, waiting, nil
}
