package namesrv

import (
	"context"
	"log/slog"
	"time"
)

// expireSilent looks for silent brokers at every interval until ctx ends.
func expireSilent(ctx context.Context, routes *RouteTable, interval time.Duration, log *slog.Logger) error {
	tick := time.NewTicker(interval)
	defer tick.Stop()
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-tick.C:
			// Not the tick's own time: on a busy machine it may be older than
			// a registration that has come since.
			for _, l := range routes.Expire(time.Now()) {
				log.Warn("broker unregistered, it fell silent", "cluster", l.Cluster,
					"broker", l.Name, "id", l.ID, "addr", l.Addr, "silent", l.Silent.Round(time.Millisecond))
			}
		}
	}
}
