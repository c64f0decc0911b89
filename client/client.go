package client

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// ErrUnavailable is wrapped by errors of calls that got no answer: no
// connection, a broken one or a time-out. What the request asked for may have
// been done.
var ErrUnavailable = errors.New("no answer")

// A Client is one member of a cluster. All methods are safe for concurrent use.
// Calls need Run to be running.
type Client struct {
	o      Options
	id     string
	logger *slog.Logger

	remote *remoting.Client
	names  *nameServers
	routes *routeTable
	keys   *message.UniqueKeys

	members members // what heartbeats report
}

// New checks o. It opens no connection and starts nothing.
func New(o Options) (*Client, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("client options: %w", err)
	}
	ip := localIP()
	c := &Client{
		o:      o,
		id:     ip.String() + "@" + o.InstanceName,
		logger: o.Logger,
		names:  newNameServers(o.NameServers),
		routes: newRouteTable(),
		keys:   newUniqueKeys(ip),
	}
	c.remote = remoting.NewClient(remoting.ClientOptions{
		TLS:    o.TLS,
		Logger: o.Logger,
		Table: remoting.Table{
			protocol.NotifyConsumerIDsChanged: {Handler: c.membersChanged, Inline: true},
		},
	})
	return c, nil
}

// ID is the client id, ip@instanceName.
func (c *Client) ID() string { return c.id }

// Run keeps connections, routes and heartbeats until ctx ends. It then waits,
// up to Options.StopTimeout, for the push consumers of the client to commit
// their offsets, unregisters producers and closes all connections.
func (c *Client) Run(ctx context.Context) error {
	// Consumers and unregistering still need connections after ctx has ended.
	connected, disconnect := context.WithCancel(context.WithoutCancel(ctx))
	defer disconnect()
	var remote errgroup.Group
	remote.Go(func() error { return c.remote.Run(connected) })

	group, running := errgroup.WithContext(ctx)
	group.Go(func() error { return c.refreshRoutes(running) })
	group.Go(func() error { return c.sendHeartbeats(running) })
	err := group.Wait()

	c.stop(connected)
	disconnect()
	return errors.Join(ignoreCancelled(ctx, err), ignoreCancelled(connected, remote.Wait()))
}

// stop ends what needs servers to end well.
func (c *Client) stop(ctx context.Context) {
	ctx, cancel := context.WithTimeout(ctx, c.o.StopTimeout)
	defer cancel()
	if !c.members.waitConsumers(ctx) {
		c.logger.Warn("client stops while consumers are still busy", "client", c.id, "waited", c.o.StopTimeout)
	}
	for _, group := range c.members.producerGroups() {
		c.unregister(ctx, protocol.UnregisterClientRequest{ClientID: c.id, ProducerGroup: group})
	}
}

// Call sends a request to addr and returns its response, whatever its code. The
// deadline of ctx, or else Options.CallTimeout, is the time-out. A server that
// is going away is asked once more on a new connection. Errors wrap
// ErrUnavailable, and remoting.ErrNotSent when the request never left.
func (c *Client) Call(ctx context.Context, addr string, cmd *protocol.Command) (*protocol.Command, error) {
	if _, ok := ctx.Deadline(); !ok {
		limited, cancel := context.WithTimeout(ctx, c.o.CallTimeout)
		defer cancel()
		ctx = limited
	}
	asked := time.Now()
	resp, err := c.remote.Call(ctx, addr, cmd)
	if err == nil && resp.ResponseCode() == protocol.GoAway {
		c.remote.CloseConn(addr)
		resp, err = c.remote.Call(ctx, addr, cmd)
	}
	if err != nil {
		// A host that lost its power answers nothing, and TCP would go on trying
		// for minutes: the next call gets a new connection.
		if errors.Is(err, remoting.ErrTimeout) && time.Since(asked) >= c.o.CallTimeout {
			c.remote.CloseConn(addr)
		}
		return nil, fmt.Errorf("%s to %s: %w: %w", cmd.RequestCode(), addr, ErrUnavailable, err)
	}
	return resp, nil
}

// CallOK is Call for requests that only Success answers well: any other code is
// returned as an error that wraps a *protocol.Error.
func (c *Client) CallOK(ctx context.Context, addr string, cmd *protocol.Command) (*protocol.Command, error) {
	resp, err := c.Call(ctx, addr, cmd)
	if err != nil {
		return nil, err
	}
	if err := resp.Err(); err != nil {
		return nil, fmt.Errorf("%s to %s: %w", cmd.RequestCode(), addr, err)
	}
	return resp, nil
}

// every calls f at once and then at each interval until ctx ends.
func every(ctx context.Context, interval time.Duration, f func(context.Context)) error {
	ticker := time.NewTicker(interval)
	defer ticker.Stop()
	for {
		f(ctx)
		select {
		case <-ctx.Done():
			return ctx.Err()
		case <-ticker.C:
		}
	}
}

// ignoreCancelled drops the error that the end of ctx itself explains.
func ignoreCancelled(ctx context.Context, err error) error {
	if ctx.Err() != nil && errors.Is(err, ctx.Err()) {
		return nil
	}
	return err
}
