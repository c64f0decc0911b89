package main

import (
	"context"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/client/admin"
	"github.com/sluicemq/sluice/protocol"
)

func newRoute() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "route TOPIC",
		Short:   "Print where a topic's queues are, as a name server answers it",
		Example: "  sluice route orders\n  sluice route orders -n 127.0.0.1:9800 --json",
		Args:    checkTopics(1),
	}
	r := addReachFlags(cmd)
	asJSON := cmd.Flags().Bool("json", false, "print the whole answer")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return r.with(cmd, func(ctx context.Context, c *client.Client) error {
			route, err := admin.Route(ctx, c, args[0])
			if err != nil {
				return err
			}
			if *asJSON {
				e := json.NewEncoder(cmd.OutOrStdout())
				e.SetIndent("", "  ")
				return e.Encode(route)
			}
			return table(cmd.OutOrStdout(), routeRows(route))
		})
	}
	return cmd
}

// routeRows is one row for each broker name, masters (id 0) first among its addresses.
func routeRows(route *protocol.TopicRouteData) [][]any {
	rows := [][]any{{"CLUSTER", "BROKER", "ADDRESSES", "READ", "WRITE", "PERM"}}
	for _, b := range route.BrokerDatas {
		var addrs []string
		for _, id := range slices.Sorted(maps.Keys(b.BrokerAddrs)) {
			addrs = append(addrs, fmt.Sprintf("%d=%s", id, b.BrokerAddrs[id]))
		}
		for _, q := range route.QueueDatas {
			if q.BrokerName == b.BrokerName {
				rows = append(rows, []any{b.Cluster, b.BrokerName, strings.Join(addrs, ","), q.ReadQueueNums, q.WriteQueueNums, permissionText(q.Perm)})
			}
		}
	}
	return rows
}

func permissionText(perm int32) string {
	text := ""
	if perm&protocol.PermRead != 0 {
		text += "r"
	}
	if perm&protocol.PermWrite != 0 {
		text += "w"
	}
	if text == "" {
		return "-"
	}
	return text
}
