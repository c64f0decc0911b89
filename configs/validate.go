package configs

import (
	"fmt"
	"net"
	"net/netip"
	"net/url"
	"slices"
	"strconv"
	"strings"
)

// Limits of what can be configured.
const (
	MinSegment     Size  = 64 << 10 // a segment must hold the largest header and then some
	SegmentUnit    Size  = 4096     // segments are whole pages
	MaxSegment     Size  = 1 << 30  // what Apache's tools expect at most
	MinSegments          = 3        // the one being written, the one being read, the one ready
	MaxQueues      int64 = 1024     // of one topic
	MaxMessageSize Size  = 15 << 20 // a frame with its headers has 16 MiB at most
	MaxBatchBytes  Size  = 4 << 20  // what a RocketMQ broker takes in one request by default
)

// defaultFlushInterval is that of default.yaml.
const defaultFlushInterval = Duration(500e6)

// checker collects what is wrong with a Config.
type checker struct {
	c        *Config
	problems Problems
}

func (k *checker) failf(key, format string, args ...any) {
	k.problems = append(k.problems, Problem{Key: key, Origin: k.c.nearestOrigin(key), Text: fmt.Sprintf(format, args...)})
}

// clash reports a value that does not go with that of another key. Where the one is a
// default, the place to look at is where the other was set.
func (k *checker) clash(key, other, format string, args ...any) {
	origin := k.c.nearestOrigin(key)
	if !k.c.given(key) && k.c.given(other) {
		origin = k.c.Origin(other)
	}
	k.problems = append(k.problems, Problem{Key: key, Origin: origin, Text: fmt.Sprintf(format, args...)})
}

// Validate checks the whole configuration and returns everything that is wrong, as Problems.
// It looks at what is written, not at the machine: files and addresses may still turn out to
// be unusable.
func (c *Config) Validate() error {
	k := &checker{c: c}
	k.roles()
	if c.Data == "" {
		k.failf("data", "want a directory")
	}
	k.namesrv()
	k.broker()
	k.sidecar()
	k.listeners()
	return k.problems.err()
}

func (k *checker) roles() {
	known := []string{RoleNamesrv, RoleBroker, RoleSidecar}
	if len(k.c.Roles) == 0 {
		k.failf("roles", "want at least one of %s", strings.Join(known, ", "))
	}
	for i, r := range k.c.Roles {
		switch {
		case !slices.Contains(known, r):
			k.failf("roles", "unknown role %q; the nearest known role is %s", r, nearest(r, known))
		case slices.Contains(k.c.Roles[:i], r):
			k.failf("roles", "%s is given twice", r)
		}
	}
}

func (k *checker) namesrv() {
	n := &k.c.Namesrv
	k.listen("namesrv.listen", n.Listen)
	k.positive("namesrv.broker_timeout", n.BrokerTimeout)
	k.tls("namesrv.tls", n.TLS)
}

func (k *checker) broker() {
	b := &k.c.Broker
	k.listen("broker.listen", b.Listen)
	k.advertise("broker", b.Listen, b.Advertise)
	k.word("broker.cluster", b.Cluster)
	k.word("broker.name", b.Name)
	if b.ID < 0 {
		k.failf("broker.id", "want 0 for a master or a positive number")
	}
	k.addresses("broker.namesrv", b.Namesrv)
	k.flush("broker", b.Flush, b.FlushInterval)
	k.store("broker.store", b.Store)
	k.message("broker", b.MaxMessage, b.DefaultQueues, b.Store)
	k.tls("broker.tls", b.TLS)
}

func (k *checker) sidecar() {
	s := &k.c.Sidecar
	k.flush("sidecar", s.Flush, s.FlushInterval)
	k.store("sidecar.store", s.Store)
	k.message("sidecar", s.MaxMessage, s.DefaultQueues, s.Store)
	k.doors(&s.Doors)
	for _, name := range sortedKeys(s.Upstreams) {
		k.upstream("sidecar.upstreams."+name, s.Upstreams[name])
	}
	k.lanes(s)
}

func (k *checker) doors(d *Doors) {
	if d.RocketMQ.Listen == "" && d.HTTP.Listen == "" && k.c.Has(RoleSidecar) {
		k.failf("sidecar.doors", "both doors are shut; give at least one a listen address")
	}
	if d.RocketMQ.Listen != "" {
		k.listen("sidecar.doors.rocketmq.listen", d.RocketMQ.Listen)
		k.advertise("sidecar.doors.rocketmq", d.RocketMQ.Listen, d.RocketMQ.Advertise)
	}
	if d.HTTP.Listen != "" {
		k.listen("sidecar.doors.http.listen", d.HTTP.Listen)
	}
	if d.HTTP.MaxBody < 1024 || d.HTTP.MaxBody > 1<<30 {
		k.failf("sidecar.doors.http.max_body", "want 1KiB to 1GiB, have %s", d.HTTP.MaxBody)
	}
}

func (k *checker) flush(key, mode string, interval Duration) {
	if interval < Duration(1e6) || interval > Duration(60e9) {
		k.failf(key+".flush_interval", "want 1ms to 1m, have %s", interval)
	}
	// A file may spell out every default, as the one that "config default" prints does.
	if mode == FlushSync && interval != defaultFlushInterval && k.c.given(key+".flush_interval") {
		k.failf(key+".flush_interval", "has no effect under flush: sync (%s)", k.c.Origin(key+".flush"))
	}
}

func (k *checker) store(key string, s Store) {
	if s.Segment < MinSegment || s.Segment > MaxSegment {
		k.failf(key+".segment", "want %s to %s, have %s", MinSegment, MaxSegment, s.Segment)
	} else if s.Segment%SegmentUnit != 0 {
		k.failf(key+".segment", "want a multiple of %d bytes, have %s", SegmentUnit, s.Segment)
	}
	if s.MaxBytes != 0 && s.MaxBytes < MinSegments*s.Segment {
		k.clash(key+".max_bytes", key+".segment", "want 0 (no limit) or at least %d segments of %s, have %s", MinSegments, s.Segment, s.MaxBytes)
	}
	if s.MaxAge < 0 {
		k.failf(key+".max_age", "want 0 (no limit) or a positive duration, have %s", s.MaxAge)
	}
}

func (k *checker) message(key string, maxMessage Size, queues int64, s Store) {
	if maxMessage < 1024 || maxMessage > MaxMessageSize {
		k.failf(key+".max_message", "want 1KiB to %s, have %s", MaxMessageSize, maxMessage)
	} else if maxMessage >= s.Segment && s.Segment >= MinSegment {
		k.clash(key+".max_message", key+".store.segment", "a message of %s does not fit into a segment of %s; lower the one or raise the other", maxMessage, s.Segment)
	}
	if queues < 1 || queues > MaxQueues {
		k.failf(key+".default_queues", "want 1 to %d, have %d", MaxQueues, queues)
	}
}

func (k *checker) positive(key string, d Duration) {
	if d <= 0 {
		k.failf(key, "want a positive duration, have %s", d)
	}
}

// word checks a cluster or broker name: it becomes part of file names and of JSON keys.
func (k *checker) word(key, name string) {
	if !elementName.MatchString(name) {
		k.failf(key, "want a name of letters, digits, - and _, have %q", name)
	}
}

func (k *checker) tls(key string, t TLS) {
	if (t.Cert == "") != (t.Key == "") {
		k.failf(key, "want both cert and key, or neither")
	}
}

// listen demands host:port with the host written out: listening on every interface must be
// said, not happen.
func (k *checker) listen(key, address string) {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		k.failf(key, "%q is not host:port", address)
		return
	}
	if host == "" {
		k.failf(key, "%q names no host; say 127.0.0.1:%s, or 0.0.0.0:%s to listen on every interface", address, port, port)
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil {
		k.failf(key, "%q has no valid port", address)
	} else if host != "" && badHost(host) {
		k.failf(key, "%q has no valid host (port %d)", address, p)
	}
}

// advertise demands an address that clients can dial.
func (k *checker) advertise(key, listen, advertise string) {
	if advertise == "" {
		if host, _, err := net.SplitHostPort(listen); err == nil && unspecified(host) {
			k.clash(key+".advertise", key+".listen", "must be given: clients cannot dial the listen address %s", listen)
		}
		return
	}
	if text := badAddress(advertise); text != "" {
		k.failf(key+".advertise", "%s", text)
	}
}

func (k *checker) addresses(key string, list []string) {
	for i, a := range list {
		if text := badAddress(a); text != "" {
			k.failf(key, "%s", text)
		} else if slices.Contains(list[:i], a) {
			k.failf(key, "%s is given twice", a)
		}
	}
}

// badAddress says what is wrong with an address to dial; "" when nothing is.
func badAddress(address string) string {
	host, port, err := net.SplitHostPort(address)
	if err != nil {
		return fmt.Sprintf("%q is not host:port", address)
	}
	if p, err := strconv.ParseUint(port, 10, 16); err != nil || p == 0 {
		return fmt.Sprintf("%q has no valid port", address)
	}
	if host == "" || badHost(host) {
		return fmt.Sprintf("%q has no valid host", address)
	}
	if unspecified(host) {
		return fmt.Sprintf("%q cannot be dialled", address)
	}
	return ""
}

func badHost(host string) bool {
	if _, err := netip.ParseAddr(host); err == nil {
		return false
	}
	return strings.Trim(host, "0123456789.") == "" || strings.ContainsAny(host, " /:@[]\t")
}

func unspecified(host string) bool {
	a, err := netip.ParseAddr(host)
	return err == nil && a.IsUnspecified()
}

// listeners demands that no two listeners of the chosen roles claim one address. Port 0 is
// never the same twice.
func (k *checker) listeners() {
	taken := map[string]string{}
	claim := func(role, key, address string) {
		if _, port, err := net.SplitHostPort(address); err != nil || port == "0" || !k.c.Has(role) {
			return
		}
		if other, ok := taken[address]; ok {
			k.failf(key, "%s is also %s", address, other)
		}
		taken[address] = key
	}
	claim(RoleNamesrv, "namesrv.listen", k.c.Namesrv.Listen)
	claim(RoleBroker, "broker.listen", k.c.Broker.Listen)
	claim(RoleSidecar, "sidecar.doors.rocketmq.listen", k.c.Sidecar.Doors.RocketMQ.Listen)
	claim(RoleSidecar, "sidecar.doors.http.listen", k.c.Sidecar.Doors.HTTP.Listen)
}

// natsURLs splits the url of a NATS upstream into its servers.
func natsURLs(list string) ([]string, error) {
	var out []string
	for part := range strings.SplitSeq(list, ",") {
		part = strings.TrimSpace(part)
		u, err := url.Parse(part)
		if err != nil || u.Host == "" || !slices.Contains([]string{"nats", "tls", "ws", "wss"}, u.Scheme) {
			return nil, fmt.Errorf("%q is not a URL such as nats://127.0.0.1:4222", part)
		}
		out = append(out, part)
	}
	return out, nil
}
