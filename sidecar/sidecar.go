package sidecar

import (
	"context"
	"fmt"
	"log/slog"
	"net/netip"
	"strings"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/broker"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
)

// Options configure a Sidecar.
type Options struct {
	Name          string // broker name that local clients see; default "sluice"
	Cluster       string // default "sluice"
	Dir           string // where the engine keeps its tables
	DefaultQueues int    // queues of a local topic whose upstream is unknown; default 4
	MaxMessage    int    // bytes of one body; default 4 MiB
	RocketMQ      RocketMQDoor
	HTTP          HTTPDoor
	Lanes         []LaneRule
	Upstreams     map[string]Upstream
	Logger        *slog.Logger
}

// RocketMQDoor is the door for RocketMQ clients; Listen "" leaves it shut.
type RocketMQDoor struct {
	Listen    string
	Advertise string // address given to clients; default the one listened on
}

// HTTPDoor is the door for everybody else; Listen "" leaves it shut.
type HTTPDoor struct {
	Listen  string
	MaxBody int64 // bytes of one request's body; default 16 MiB
}

// Sidecar takes local traffic into a spool and forwards it. It is the list of
// its parts.
type Sidecar struct {
	engine *broker.Broker
	lanes  *lanes
	http   *httpDoor
	ups    map[string]Upstream
}

func (o *Options) setDefaults() {
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Name == "" {
		o.Name = "sluice"
	}
	if o.Cluster == "" {
		o.Cluster = "sluice"
	}
	if o.DefaultQueues == 0 {
		o.DefaultQueues = 4
	}
	if o.MaxMessage == 0 {
		o.MaxMessage = 4 << 20
	}
	if o.HTTP.MaxBody == 0 {
		o.HTTP.MaxBody = 16 << 20
	}
}

// New opens the doors on a spool that is already open and will be run by the
// caller, for longer than the Sidecar. Nothing is served before Run.
func New(o Options, sp *spool.Spool) (*Sidecar, error) {
	o.setDefaults()
	s := &Sidecar{ups: o.Upstreams, lanes: newLanes(sp, o.Upstreams, o.Logger)}
	if err := s.lanes.setRules(o.Lanes); err != nil {
		return nil, err
	}
	warnOfOrphans(o, sp)
	door := &rocketDoor{cluster: o.Cluster, name: o.Name}
	queues := &queueCounts{lanes: s.lanes, fallback: o.DefaultQueues}
	engine, err := broker.New(broker.Options{
		Listen: o.RocketMQ.Listen, Advertise: o.RocketMQ.Advertise, Cluster: o.Cluster, Name: o.Name,
		Dir: o.Dir, AutoCreateTopics: true, DefaultQueues: o.DefaultQueues, MaxMessageBytes: o.MaxMessage,
		AutoQueues: queues.forTopic, Delayed: broker.DelayForward, Logger: o.Logger, Routes: door.routes(),
	}, sp)
	if err != nil {
		return nil, fmt.Errorf("open the RocketMQ door: %w", err)
	}
	s.engine = engine
	door.topics, door.address, door.ensure = engine.Topics(), engine.Advertised, queues.ensure(engine.Topics())
	s.lanes.park = parker(engine.PutReserved)
	s.lanes.pace = newPacer(func() int64 { return engine.Totals().Stored })
	if o.HTTP.Listen != "" {
		shown := &metrics{spool: sp, lanes: s.lanes, counters: engine.Totals}
		settled := func(topic string) int { return queues.settled(engine.Topics(), topic) }
		s.http, err = newHTTPDoor(o, engine.Put, settled, &health{sp, s.lanes, time.Now()}, shown.handler())
		if err != nil {
			engine.Close()
			return nil, err
		}
	}
	return s, nil
}

// warnOfOrphans names upstreams that the spool keeps messages for and that are
// not configured any more. They are not dropped on their own: a slip in the
// configuration must not cost messages.
func warnOfOrphans(o Options, sp *spool.Spool) {
	waiting := map[string]int64{}
	for _, c := range sp.Cursors() {
		if _, known := o.Upstreams[c.Name]; !known {
			waiting[c.Name] += max(sp.Queue(c.Topic, c.QueueID).Max()-c.Offset, 0)
		}
	}
	for name, n := range waiting {
		o.Logger.Warn("the spool keeps messages for an upstream that is not configured; "+
			"configure it again, or give them up with 'sluice spool forget'", "upstream", name, "messages", n)
	}
}

// Run serves the doors and forwards until ctx ends. Lanes stop after the doors,
// at a batch boundary.
func (s *Sidecar) Run(ctx context.Context) error {
	group, ctx := errgroup.WithContext(ctx)
	group.Go(func() error { return s.engine.Run(ctx) })
	group.Go(func() error { return s.lanes.run(ctx) })
	group.Go(func() error { return s.lanes.pace.run(ctx) })
	if s.http != nil {
		group.Go(func() error { return s.http.run(ctx) })
	}
	for name, up := range s.ups {
		group.Go(func() error {
			if err := up.Sender.Run(ctx); err != nil && ctx.Err() == nil {
				return fmt.Errorf("upstream %s: %w", name, err)
			}
			return nil
		})
	}
	return group.Wait()
}

// Reload puts new lane rules into force, whole or not at all.
func (s *Sidecar) Reload(rules []LaneRule) error { return s.lanes.setRules(rules) }

// RocketMQAddr is the address of the RocketMQ door; invalid when it is shut.
func (s *Sidecar) RocketMQAddr() netip.AddrPort { return s.engine.Addr() }

// HTTPAddr is the address of the HTTP door, "" when it is shut.
func (s *Sidecar) HTTPAddr() string {
	if s.http == nil {
		return ""
	}
	return s.http.listener.Addr().String()
}

// parkedPrefix names the local dead-letter topics of upstreams. Lanes do not
// forward them; stock tools can read them.
const parkedPrefix = message.DeadLetterPrefix + "SLUICE_"

// parker stores a message that an upstream refuses for good in the upstream's
// local dead-letter topic, with where it came from and why it was refused. It may
// use the store's reserve: a full store drains only past such a message.
func parker(put putFunc) func(context.Context, string, *message.Message, string) error {
	return func(ctx context.Context, upstream string, m *message.Message, reason string) error {
		parked := message.Message{Flag: m.Flag, SysFlag: m.SysFlag, BornTimestamp: m.BornTimestamp, QueueID: 0, Body: m.Body}
		parked.Properties = annotate(m.Properties, m.Topic, strings.Map(printable, reason))
		_, err := put(ctx, parkedPrefix+upstream, m.BornHost, []message.Message{parked})
		return err
	}
}

// annotate returns a parked message's properties. What has no room is left out:
// a message that could not be parked would hold up its lane for ever.
func annotate(props []byte, topic, reason string) []byte {
	const mostReason = 512 // bytes
	reason = strings.ToValidUTF8(reason[:min(len(reason), mostReason)], "")
	noted := append([]byte(nil), props...)
	for _, p := range [][2]string{{message.PropertyDeadLetterOriginTopic, topic}, {"SLUICE_REASON", reason}} {
		if longer := message.AppendProperty(noted, p[0], p[1]); len(longer) <= message.MaxPropertiesLen-message.CRCSuffixLen {
			noted = longer
		}
	}
	return noted
}

func printable(r rune) rune {
	if r < ' ' {
		return ' '
	}
	return r
}
