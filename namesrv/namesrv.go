// Package namesrv is the role that tells clients which brokers serve which
// topic. Brokers register with every name server and name servers do not know
// each other, so all state but the key-value settings is in memory and comes
// back with the brokers' next registrations.
package namesrv

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net/netip"
	"time"

	"golang.org/x/sync/errgroup"
	"golang.org/x/time/rate"

	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool/segment"
)

// Defaults of Options, after Apache's name server.
const (
	DefaultListen        = "127.0.0.1:9876"
	DefaultScanInterval  = 5 * time.Second
	DefaultBrokerTimeout = 120 * time.Second
)

// Options configure a NameServer. Zero values mean the defaults.
type Options struct {
	Listen string // host:port, DefaultListen; port 0 takes a free one
	// KVPath is the JSON file of the key-value settings; empty keeps them in
	// memory only.
	KVPath string
	// ScanInterval is how often silent brokers are looked for.
	ScanInterval time.Duration
	// BrokerTimeout is the silence after which a broker is taken out, unless it
	// asked for another.
	BrokerTimeout time.Duration
	// MaxBrokers and MaxTopics bound the route table, DeleteTopics makes
	// registrations complete; see RouteOptions.
	MaxBrokers, MaxTopics int
	DeleteTopics          bool
	// WaitForBrokers lets route queries fail with a clear code for this long
	// after the start, until brokers have had time to register: a client that
	// is told "no such topic" might create it elsewhere. 0 does not wait.
	WaitForBrokers time.Duration
	// OrderMessages adds the order configuration of a topic to its route.
	OrderMessages bool
	Server        remoting.ServerOptions // but Listen, OnClose and Logger
	FS            segment.FS             // of the settings file; nil: the operating system's
	Logger        *slog.Logger           // nil: no log
}

func (o *Options) setDefaults() {
	if o.Listen == "" {
		o.Listen = DefaultListen
	}
	if o.ScanInterval <= 0 {
		o.ScanInterval = DefaultScanInterval
	}
	if o.FS == nil {
		o.FS = segment.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
}

// A NameServer answers brokers and clients on one port. See New.
type NameServer struct {
	o      Options
	routes *RouteTable
	server *remoting.Server
}

// New loads the settings and binds the port, so that Addr is known; it serves
// nobody before Run.
func New(o Options) (*NameServer, error) {
	o.setDefaults()
	kv, err := openKV(o.FS, o.KVPath, o.Logger)
	if err != nil {
		return nil, err
	}
	n := &NameServer{o: o, routes: NewRouteTable(RouteOptions{
		BrokerTimeout: o.BrokerTimeout, MaxBrokers: o.MaxBrokers, MaxTopics: o.MaxTopics, DeleteTopics: o.DeleteTopics,
	})}
	h := &handlers{
		routes: n.routes, kv: kv, log: o.Logger, orderMessages: o.OrderMessages,
		started: time.Now(), wait: o.WaitForBrokers, complaints: rate.NewLimiter(1, 20),
	}
	so := o.Server
	so.Listen, so.OnClose, so.Logger = o.Listen, n.connClosed, o.Logger
	if n.server, err = remoting.NewServer(so, h.table()); err != nil {
		return nil, fmt.Errorf("name server on %s: %w", o.Listen, err)
	}
	return n, nil
}

// Addr is the address that the name server listens on.
func (n *NameServer) Addr() netip.AddrPort { return n.server.Addr() }

// Run serves until ctx ends or the listener breaks. When it returns, all its
// goroutines have ended. It may be called once.
func (n *NameServer) Run(ctx context.Context) error {
	n.o.Logger.Info("name server listens", "addr", n.Addr())
	g, ctx := errgroup.WithContext(ctx)
	g.Go(func() error { return n.server.Run(ctx) })
	g.Go(func() error { return expireSilent(ctx, n.routes, n.o.ScanInterval, n.o.Logger) })
	if err := g.Wait(); err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("name server on %v: %w", n.Addr(), err)
	}
	return nil
}

// connClosed takes out the brokers of a connection at once: their clients
// should not wait for the time-out.
func (n *NameServer) connClosed(c *remoting.Conn) {
	for _, l := range n.routes.ConnClosed(c) {
		n.o.Logger.Info("broker unregistered, its connection closed",
			"cluster", l.Cluster, "broker", l.Name, "id", l.ID, "addr", l.Addr)
	}
}
