package main

import (
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/sluicemq/sluice/broker"
	"github.com/sluicemq/sluice/configs"
	"github.com/sluicemq/sluice/namesrv"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/sidecar"
	"github.com/sluicemq/sluice/spool"
	"github.com/sluicemq/sluice/upstream"
)

// build opens everything that the configuration names, stores recovered and addresses bound,
// and starts nothing. After an error, close releases what is open.
func (p *process) build(c *configs.Config) error {
	for _, role := range []struct {
		name  string
		build func(*configs.Config) error
	}{
		{configs.RoleNamesrv, p.buildNamesrv},
		{configs.RoleBroker, p.buildBroker},
		{configs.RoleSidecar, p.buildSidecar},
	} {
		if !c.Has(role.name) {
			continue
		}
		if err := role.build(c); err != nil {
			return named(c, role.name, err)
		}
	}
	return nil
}

// named says whose error it is: the key's of an address that cannot be listened on, else the role's.
func named(c *configs.Config, role string, err error) error {
	var refused *net.OpError
	if errors.As(err, &refused) && refused.Op == "listen" && refused.Addr != nil {
		for key, address := range map[string]string{
			"namesrv.listen":                c.Namesrv.Listen,
			"broker.listen":                 c.Broker.Listen,
			"sidecar.doors.rocketmq.listen": c.Sidecar.Doors.RocketMQ.Listen,
			"sidecar.doors.http.listen":     c.Sidecar.Doors.HTTP.Listen,
		} {
			if strings.HasPrefix(key, role) && address == refused.Addr.String() {
				return fmt.Errorf("%s: %w", key, refused)
			}
		}
	}
	return fmt.Errorf("%s: %w", role, err)
}

func (p *process) buildNamesrv(c *configs.Config) error {
	certificate, err := serverTLS(c.Namesrv.TLS)
	if err != nil {
		return err
	}
	n, err := namesrv.New(namesrv.Options{
		Listen:        c.Namesrv.Listen,
		KVPath:        filepath.Join(c.Data, "namesrv", "kvConfig.json"),
		BrokerTimeout: time.Duration(c.Namesrv.BrokerTimeout),
		Server:        remoting.ServerOptions{TLS: certificate},
		Logger:        p.log.With("role", configs.RoleNamesrv),
	})
	if err != nil {
		return err
	}
	p.base = append(p.base, part{configs.RoleNamesrv, n.Run})
	p.addresses = append(p.addresses, listener{"namesrv", n.Addr().String()})
	return nil
}

func (p *process) buildBroker(c *configs.Config) error {
	b := &c.Broker
	certificate, err := serverTLS(b.TLS)
	if err != nil {
		return err
	}
	if b.ID > 0 {
		p.log.Warn("clients send to the broker with id 0 only, and nothing is copied from there to this one",
			"role", configs.RoleBroker, "broker", b.Name, "id", b.ID)
	}
	dir := filepath.Join(c.Data, "broker")
	store, err := p.openStore("broker", storeOptions(dir, b.Flush, b.FlushInterval, b.Store, b.MaxMessage))
	if err != nil {
		return err
	}
	engine, err := broker.New(broker.Options{
		Listen: b.Listen, Advertise: b.Advertise, Cluster: b.Cluster, Name: b.Name, ID: b.ID, NameServers: b.Namesrv,
		Dir: dir, AutoCreateTopics: b.AutoCreateTopic, DefaultQueues: int(b.DefaultQueues),
		MaxMessageBytes: int(b.MaxMessage), FlushSync: b.Flush == configs.FlushSync, TLS: certificate,
		Logger: p.log.With("role", configs.RoleBroker),
	}, store)
	if err != nil {
		return err
	}
	p.roles = append(p.roles, part{configs.RoleBroker, engine.Run})
	p.addresses = append(p.addresses, listener{"broker", engine.Addr().String()})
	return nil
}

func (p *process) buildSidecar(c *configs.Config) error {
	s := &c.Sidecar
	upstreams := map[string]sidecar.Upstream{}
	for name, u := range s.Upstreams {
		sender, err := newSender(u, p.log.With("upstream", name))
		if err != nil {
			return fmt.Errorf("upstream %s: %w", name, err)
		}
		upstreams[name] = sidecar.Upstream{
			Name: name, Sender: sender,
			Limit:   spool.Limit{Messages: int(u.Batch.Messages), Bytes: int(u.Batch.Bytes)},
			Backoff: upstream.Backoff{Min: time.Duration(u.Backoff.Min), Max: time.Duration(u.Backoff.Max)},
		}
	}
	dir := filepath.Join(c.Data, "sidecar")
	options := storeOptions(dir, s.Flush, s.FlushInterval, s.Store, s.MaxMessage)
	options.KeepUnread = true
	store, err := p.openStore("sidecar", options)
	if err != nil {
		return err
	}
	p.sidecar, err = sidecar.New(sidecar.Options{
		Dir: dir, DefaultQueues: int(s.DefaultQueues), MaxMessage: int(s.MaxMessage),
		RocketMQ: sidecar.RocketMQDoor{Listen: s.Doors.RocketMQ.Listen, Advertise: s.Doors.RocketMQ.Advertise},
		HTTP:     sidecar.HTTPDoor{Listen: s.Doors.HTTP.Listen, MaxBody: int64(s.Doors.HTTP.MaxBody)},
		Lanes:    laneRules(c), Upstreams: upstreams,
		Logger: p.log.With("role", configs.RoleSidecar),
	}, store)
	if err != nil {
		return err
	}
	p.roles = append(p.roles, part{configs.RoleSidecar, p.sidecar.Run})
	if s.Doors.RocketMQ.Listen != "" {
		p.addresses = append(p.addresses, listener{"sidecar rocketmq", p.sidecar.RocketMQAddr().String()})
	}
	if s.Doors.HTTP.Listen != "" {
		p.addresses = append(p.addresses, listener{"sidecar http", p.sidecar.HTTPAddr()})
	}
	return nil
}

func laneRules(c *configs.Config) []sidecar.LaneRule {
	rules := make([]sidecar.LaneRule, len(c.Sidecar.Lanes))
	for i, lane := range c.Sidecar.Lanes {
		rules[i] = sidecar.LaneRule{Topics: lane.Topics, Upstream: lane.Upstream}
	}
	return rules
}

// openStore opens a spool, which recovers it, and lets it run outside of the roles.
func (p *process) openStore(name string, o spool.Options) (*spool.Spool, error) {
	o.Logger = p.log.With("store", name)
	store, err := spool.Open(o)
	if err != nil {
		return nil, err
	}
	p.closers = append(p.closers, store)
	p.base = append(p.base, part{name + " store", store.Run})
	return store, nil
}

func storeOptions(dir, flush string, interval configs.Duration, s configs.Store, maxMessage configs.Size) spool.Options {
	o := spool.Options{
		Dir: dir, SegmentBytes: int64(s.Segment), FlushInterval: time.Duration(interval), MaxBytes: int64(s.MaxBytes),
		MaxAge: time.Duration(s.MaxAge), MaxMessageBytes: int(maxMessage),
	}
	if flush == configs.FlushAsync {
		o.Flush = spool.FlushAsync
	}
	if o.MaxAge == 0 {
		o.MaxAge = math.MaxInt64 // never by age
	}
	return o
}

func newSender(u configs.Upstream, log *slog.Logger) (upstream.Sender, error) {
	secured, err := clientTLS(u.TLS)
	if err != nil {
		return nil, err
	}
	if u.Kind == configs.KindRocketMQ {
		return upstream.NewRocketMQ(upstream.RocketMQOptions{
			NameServers: u.Namesrv, TLS: secured, Group: u.Group, MaxBatchBytes: int(u.Batch.Bytes),
			Timeout: time.Duration(u.Timeout), Logger: log,
		})
	}
	o := upstream.NATSOptions{
		URL: u.URL, TLS: secured, User: u.User, Password: u.Password, Token: u.Token, CredentialsFile: u.Credentials,
		Stream: u.Stream, Subject: strings.ReplaceAll(u.Subject, "{stream}", u.Stream), MaxPending: int(u.MaxPending),
		AckTimeout: time.Duration(u.Timeout), Logger: log,
	}
	if u.CreateStream {
		o.Create = &upstream.StreamOptions{Replicas: int(u.Replicas), Duplicates: time.Duration(u.DuplicateWindow)}
	}
	return upstream.NewNATS(o)
}
