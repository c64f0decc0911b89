package broker

import (
	"crypto/tls"
	"fmt"
	"log/slog"
	"net"
	"net/netip"
	"time"

	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
	"github.com/sluicemq/sluice/spool/segment"
)

// Options configure a Broker. Zero values take the defaults.
type Options struct {
	Listen      string   // address of the door; "" opens none
	Advertise   string   // address that clients are told; the one listened on
	Cluster     string   // "DefaultCluster"
	Name        string   // "broker-a"
	ID          int64    // 0 is the master
	NameServers []string // each is registered with; none for an engine that stands alone
	Dir         string   // where the tables are kept, as <Dir>/config/*.json

	AutoCreateTopics bool
	DefaultQueues    int // queues of the template for automatic topics; 8
	// AutoQueues (may be nil) decides the queues of a topic about to be created
	// by its first message, whatever the client or the template says.
	AutoQueues      func(topic string) int
	Delayed         DelayPolicy
	MaxMessageBytes int  // of one body; 4 MiB
	MaxPullMessages int  // in one answer; 32
	FlushSync       bool // what code 26 reports; the spool's option decides

	TLS    *tls.Config    // nil: plain only
	Routes remoting.Table // requests of the role that embeds the engine
	FS     segment.FS     // of the tables; segment.OS
	Logger *slog.Logger
	Now    func() time.Time
}

func (o *Options) setDefaults() {
	if o.Cluster == "" {
		o.Cluster = "DefaultCluster"
	}
	if o.Name == "" {
		o.Name = "broker-a"
	}
	if o.DefaultQueues == 0 {
		o.DefaultQueues = 8
	}
	if o.MaxMessageBytes == 0 {
		o.MaxMessageBytes = 4 << 20
	}
	if o.MaxPullMessages == 0 {
		o.MaxPullMessages = 32
	}
	if o.FS == nil {
		o.FS = segment.OS()
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	if o.Now == nil {
		o.Now = time.Now
	}
}

// check refuses names that would become files or routes.
func (o *Options) check() error {
	for what, name := range map[string]string{"cluster": o.Cluster, "broker name": o.Name} {
		if err := message.ValidateTopic(name); err != nil {
			return fmt.Errorf("%s: %w", what, err)
		}
	}
	return nil
}

func (o *Options) flushName() string {
	if o.FlushSync {
		return "SYNC_FLUSH"
	}
	return "ASYNC_FLUSH"
}

// advertised is the address that clients are told, and that stands in records
// and message ids as the store host.
func advertised(o *Options, listening netip.AddrPort) (netip.AddrPort, error) {
	if o.Advertise == "" {
		if listening.Addr().IsUnspecified() {
			return netip.AddrPort{}, fmt.Errorf("listening on every address (%s): say with advertise which one clients can reach", listening)
		}
		return listening, nil
	}
	address, err := net.ResolveTCPAddr("tcp", o.Advertise)
	if err != nil {
		return netip.AddrPort{}, fmt.Errorf("advertise %q: %w", o.Advertise, err)
	}
	ap := netip.AddrPortFrom(address.AddrPort().Addr().Unmap(), address.AddrPort().Port())
	if !ap.Addr().IsValid() || ap.Addr().IsUnspecified() || ap.Port() == 0 {
		return netip.AddrPort{}, fmt.Errorf("advertise %q: no client can reach that, want host:port", o.Advertise)
	}
	return ap, nil
}
