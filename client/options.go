package client

import (
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"strings"
	"time"
)

// Options configure a Client. Only NameServers is required; zero durations take
// the defaults of RocketMQ's Java client.
type Options struct {
	// NameServers are addresses as host:port. They know nothing of each other:
	// one is chosen at random and kept until it fails.
	NameServers []string

	// InstanceName tells clients of one host apart in the client id,
	// ip@instanceName. Empty takes process id and start time.
	InstanceName string

	TLS *tls.Config // nil: plain TCP

	CallTimeout       time.Duration // one call whose context has no deadline; default 3 s
	RouteInterval     time.Duration // default 30 s
	HeartbeatInterval time.Duration // default 30 s
	StopTimeout       time.Duration // consumers' last commits and unregistering, at Run's end; default 5 s

	Logger *slog.Logger // nil: discard
}

var errNoNameServer = errors.New("no name server configured")

// withDefaults checks o and fills what is not set.
func (o Options) withDefaults() (Options, error) {
	if len(o.NameServers) == 0 {
		return o, errNoNameServer
	}
	for _, addr := range o.NameServers {
		if _, _, err := net.SplitHostPort(addr); err != nil {
			return o, fmt.Errorf("name server %q: %w", addr, err)
		}
	}
	if strings.ContainsAny(o.InstanceName, "@ \x01\x02") {
		return o, fmt.Errorf("instance name %q: '@', blanks and control characters are not allowed", o.InstanceName)
	}
	if o.InstanceName == "" || o.InstanceName == "DEFAULT" {
		o.InstanceName = fmt.Sprintf("%d#%d", os.Getpid(), time.Now().UnixNano())
	}
	setDefault(&o.CallTimeout, 3*time.Second)
	setDefault(&o.RouteInterval, 30*time.Second)
	setDefault(&o.HeartbeatInterval, 30*time.Second)
	setDefault(&o.StopTimeout, 5*time.Second)
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

func setDefault[T int | time.Duration](v *T, fallback T) {
	if *v == 0 {
		*v = fallback
	}
}

// orNone turns a number whose zero value means "the default" and whose negative
// values mean "none" into a plain one.
func orNone(v, fallback int) int {
	switch {
	case v == 0:
		return fallback
	case v < 0:
		return 0
	}
	return v
}
