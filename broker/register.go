package broker

import (
	"context"
	"errors"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

const (
	registerInterval = 30 * time.Second
	registerRetry    = 2 * time.Second
	registerTimeout  = 6 * time.Second
	// plainRegistration is the largest body that is sent as it is.
	plainRegistration = 4 << 20
)

// registrar tells every name server what this broker serves: at start, every 30
// seconds, and at once when topics change. A name server that is unreachable is
// tried again sooner and on its own, so that one dead server delays nobody.
type registrar struct {
	servers []string
	header  protocol.RegisterBrokerRequest
	topics  *topics.Table
	client  *remoting.Client
	log     *slog.Logger

	mu      sync.Mutex
	changed chan struct{} // closed and replaced when topics change
}

func newRegistrar(o *Options) *registrar {
	return &registrar{
		servers: o.NameServers, log: o.Logger, changed: make(chan struct{}),
		client: remoting.NewClient(remoting.ClientOptions{Logger: o.Logger}),
		header: protocol.RegisterBrokerRequest{BrokerName: o.Name, ClusterName: o.Cluster, BrokerID: o.ID},
	}
}

// announce sets the address that name servers are told.
func (r *registrar) announce(address string) {
	r.header.BrokerAddr, r.header.HAServerAddr = address, address
}

// run keeps the broker registered everywhere until ctx ends, and then takes the
// registrations back.
func (r *registrar) run(ctx context.Context) error {
	connections, hangUp := context.WithCancel(context.WithoutCancel(ctx))
	var client errgroup.Group
	client.Go(func() error { return r.client.Run(connections) })
	var servers errgroup.Group
	for _, server := range r.servers {
		servers.Go(func() error { return r.keep(ctx, server) })
	}
	<-ctx.Done()
	err := servers.Wait()
	hangUp()
	return errors.Join(err, client.Wait())
}

// topicsChanged makes every name server hear of the change now.
func (r *registrar) topicsChanged() {
	r.mu.Lock()
	defer r.mu.Unlock()
	close(r.changed)
	r.changed = make(chan struct{})
}

func (r *registrar) change() <-chan struct{} {
	r.mu.Lock()
	defer r.mu.Unlock()
	return r.changed
}

// keep registers with one name server until ctx ends, then takes the
// registration back so that clients leave at once.
func (r *registrar) keep(ctx context.Context, server string) error {
	failing := false
	known := false // the server may have a registration of this broker
	for ctx.Err() == nil {
		changed := r.change() // before the snapshot, so that no change falls between
		err := r.register(ctx, server)
		known = known || !errors.Is(err, remoting.ErrNotSent)
		pause := registerInterval
		if err != nil && ctx.Err() == nil {
			pause = registerRetry
			if !failing {
				r.log.Warn("cannot register with the name server; trying on", "namesrv", server, "err", err)
			}
		} else if failing && err == nil {
			r.log.Info("registered with the name server again", "namesrv", server)
		}
		failing = err != nil
		timer := time.NewTimer(pause)
		select {
		case <-ctx.Done():
		case <-changed:
		case <-timer.C:
		}
		timer.Stop()
	}
	if !known {
		return nil
	}
	return r.unregister(context.WithoutCancel(ctx), server)
}

func (r *registrar) register(ctx context.Context, server string) error {
	configs, version := r.topics.Snapshot()
	body := protocol.RegisterBrokerBody{FilterServerList: []string{}}
	body.TopicConfigSerializeWrapper.DataVersion = version
	body.TopicConfigSerializeWrapper.TopicConfigTable = configs
	encoded, err := body.Encode(false)
	header := r.header
	if len(encoded) > plainRegistration {
		// Tens of thousands of topics would not fit a frame. Compressed they do,
		// at the price of flags that name servers do not hand on.
		header.Compressed = true
		encoded, err = body.Encode(true)
	}
	if err != nil {
		return err
	}
	header.BodyCRC32 = protocol.BodyCRC32(encoded)
	ctx, cancel := context.WithTimeout(ctx, registerTimeout)
	defer cancel()
	answer, err := r.client.Call(ctx, server, protocol.NewRequest(protocol.RegisterBroker, &header, encoded))
	if err != nil {
		return err
	}
	return answer.Err()
}

func (r *registrar) unregister(ctx context.Context, server string) error {
	ctx, cancel := context.WithTimeout(ctx, time.Second)
	defer cancel()
	_, err := r.client.Call(ctx, server, protocol.NewRequest(protocol.UnregisterBroker, &protocol.UnregisterBrokerRequest{
		BrokerName: r.header.BrokerName, BrokerAddr: r.header.BrokerAddr,
		ClusterName: r.header.ClusterName, BrokerID: r.header.BrokerID,
	}, nil))
	if err != nil {
		r.log.Info("could not unregister; the name server will notice", "namesrv", server, "err", err)
	}
	return nil
}
