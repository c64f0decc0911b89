package broker

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"path/filepath"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/broker/clients"
	"github.com/sluicemq/sluice/broker/groups"
	"github.com/sluicemq/sluice/broker/offsets"
	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool"
)

// Broker is the list of an engine's parts. No part knows it, and none knows
// another but through what New gives it.
type Broker struct {
	topics    *topics.Table
	groups    *groups.Table
	offsets   *offsets.Table
	clients   *clients.Table
	server    *remoting.Server // nil without a door
	registrar *registrar
	putter    *putter
	rates     *rates
	counters  *Counters
	address   netip.AddrPort
}

// New opens the tables and the door of an engine on an open spool, which the
// caller runs for longer than the Broker. Nothing is served before Run.
func New(o Options, sp *spool.Spool) (*Broker, error) {
	o.setDefaults()
	if err := o.check(); err != nil {
		return nil, err
	}
	b := &Broker{counters: &Counters{}}
	b.rates = &rates{counters: b.counters}
	b.registrar = newRegistrar(&o)
	if err := b.openTables(&o); err != nil {
		return nil, err
	}
	b.registrar.topics = b.topics
	parts := b.compose(&o, sp)
	if err := b.open(&o, parts.table(o.Routes)); err != nil {
		return nil, err
	}
	b.registrar.announce(b.address.String())
	b.putter.storeHost, parts.sender.storeHost = b.address, b.address
	parts.info.address = b.address
	return b, nil
}

func (b *Broker) openTables(o *Options) (err error) {
	dir := filepath.Join(o.Dir, "config")
	if err := o.FS.MkdirAll(dir); err != nil {
		return fmt.Errorf("make the directory of the tables: %w", err)
	}
	path := func(name string) string { return filepath.Join(dir, name) }
	b.topics, err = topics.Open(o.FS, path("topics.json"), topics.Options{
		AutoCreate: o.AutoCreateTopics, DefaultQueues: o.DefaultQueues, Cluster: o.Cluster, Broker: o.Name,
		OnChange: func([]*topics.Topic, []string) { b.registrar.topicsChanged() }, Logger: o.Logger, Now: o.Now,
	})
	if err != nil {
		return err
	}
	b.groups, err = groups.Open(o.FS, path("subscriptionGroup.json"), groups.Options{AutoCreate: true, Logger: o.Logger, Now: o.Now})
	if err != nil {
		return err
	}
	b.offsets, err = offsets.Open(o.FS, path("consumerOffset.json"), offsets.Options{Logger: o.Logger, Now: o.Now})
	if err != nil {
		return err
	}
	b.clients = clients.New(clients.Options{Logger: o.Logger, NotifyEnabled: func(group string) bool {
		g, ok := b.groups.Get(group)
		return !ok || g.NotifyConsumerIDsChangedEnable
	}})
	return nil
}

// compose makes the parts that answer requests.
func (b *Broker) compose(o *Options, sp *spool.Spool) *parts {
	admission := admission{
		topics: b.topics, autoQueues: o.AutoQueues, maxMessage: o.MaxMessageBytes,
		keys:   message.NewUniqueKeys(netip.MustParseAddr("127.0.0.1"), os.Getpid(), o.Now),
		region: defaultRegion, delayed: o.Delayed, stamps: stamps(o.Cluster),
	}
	b.putter = &putter{admission: admission, spool: sp, counters: b.counters,
		batches: sync.Pool{New: func() any { return new(spool.Batch) }}}
	return &parts{
		sender: &sender{admission: admission, spool: sp, counters: b.counters},
		puller: &puller{topics: b.topics, groups: b.groups, clients: b.clients, offsets: b.offsets, spool: sp,
			counters: b.counters, log: o.Logger, maxMessages: o.MaxPullMessages, maxHold: maxPullHold},
		positions: &positions{topics: b.topics, groups: b.groups, offsets: b.offsets, spool: sp, nearEnd: memoryShare()},
		topics:    &topicAdmin{topics: b.topics, offsets: b.offsets, spool: sp, address: b.Advertised, log: o.Logger},
		groups:    &groupAdmin{groups: b.groups, offsets: b.offsets},
		members:   &membership{clients: b.clients, groups: b.groups, topics: b.topics},
		info: &informant{options: *o, spool: sp, counters: b.counters, rates: b.rates, booted: time.Now(),
			version: b.topics.Version},
	}
}

// open binds the door, where there is one.
func (b *Broker) open(o *Options, table remoting.Table) (err error) {
	b.address = netip.MustParseAddrPort("127.0.0.1:0")
	if o.Listen == "" {
		return nil
	}
	b.server, err = remoting.NewServer(remoting.ServerOptions{
		Listen: o.Listen, TLS: o.TLS, Logger: o.Logger, OnClose: func(c *remoting.Conn) { b.clients.ConnClosed(c) },
	}, table)
	if err != nil {
		return fmt.Errorf("open the broker's door: %w", err)
	}
	if b.address, err = advertised(o, b.server.Addr()); err != nil {
		b.Close()
	}
	return err
}

// Run serves until ctx ends. It serves first and registers then, so that no
// client is sent to a broker that is not ready; at the end it is the other way
// round, and the tables are saved when nobody can change them any more.
func (b *Broker) Run(ctx context.Context) error {
	keeping, stopKeeping := context.WithCancel(context.WithoutCancel(ctx))
	defer stopKeeping()
	serving, stopServing := context.WithCancel(keeping)
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return b.offsets.Run(keeping) })
	group.Go(func() error { return b.clients.Run(keeping) })
	group.Go(func() error { return b.rates.run(keeping) })
	group.Go(func() error {
		defer stopKeeping()
		return b.serve(serving)
	})
	group.Go(func() error {
		defer stopServing()
		return b.registrar.run(ctx)
	})
	return group.Wait()
}

func (b *Broker) serve(ctx context.Context) error {
	if b.server == nil {
		<-ctx.Done()
		return nil
	}
	return b.server.Run(ctx)
}

// Close gives back the port of a Broker that will not be run.
func (b *Broker) Close() {
	if b.server != nil {
		ended, cancel := context.WithCancel(context.Background())
		cancel()
		_ = b.server.Run(ended)
	}
}

// Addr is the address that the door listens on; invalid without one.
func (b *Broker) Addr() netip.AddrPort {
	if b.server == nil {
		return netip.AddrPort{}
	}
	return b.server.Addr()
}

// Advertised is the address that clients are told.
func (b *Broker) Advertised() string { return b.address.String() }

// Topics is the table of topics, for the role that embeds the engine.
func (b *Broker) Topics() *topics.Table { return b.topics }

// Totals reads the engine's counters.
func (b *Broker) Totals() Totals { return b.counters.Totals() }

// Put stores messages for a door other than remoting; see putter.put.
func (b *Broker) Put(ctx context.Context, topic string, from netip.AddrPort, messages []message.Message) ([]PutResult, error) {
	return b.putter.put(ctx, topic, from, messages, false)
}

// PutReserved is Put for what must be stored so that a full store can be emptied.
func (b *Broker) PutReserved(ctx context.Context, topic string, from netip.AddrPort, messages []message.Message) ([]PutResult, error) {
	return b.putter.put(ctx, topic, from, messages, true)
}
