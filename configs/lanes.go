package configs

import (
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strings"
)

// upstreamSchema describes one upstream; its tags say which keys belong to which kind.
func upstreamSchema() *node { return schemaOf("", reflect.TypeFor[Upstream]()) }

func (k *checker) upstream(key string, u Upstream) {
	if u.Kind == "" {
		k.failf(key+".kind", "must be given: %s or %s", KindRocketMQ, KindNATS)
		return
	}
	upstreamSchema().walk("", func(name string, n *node) {
		if n.only != "" && n.only != u.Kind && k.c.given(join(key, name)) {
			k.failf(join(key, name), "belongs to kind %s, this upstream is of kind %s", n.only, u.Kind)
		}
	})
	switch u.Kind {
	case KindRocketMQ:
		if len(u.Namesrv) == 0 {
			k.failf(key+".namesrv", "must be given for kind rocketmq")
		}
		k.addresses(key+".namesrv", u.Namesrv)
		k.word(key+".group", u.Group)
	case KindNATS:
		k.nats(key, u)
	}
	k.clientTLS(key+".tls", u.TLS)
	k.positive(key+".timeout", u.Timeout)
	k.positive(key+".backoff.min", u.Backoff.Min)
	if u.Backoff.Max < u.Backoff.Min {
		k.clash(key+".backoff.max", key+".backoff.min", "%s is less than min, %s", u.Backoff.Max, u.Backoff.Min)
	}
	if u.Batch.Messages < 1 || u.Batch.Messages > 65536 {
		k.failf(key+".batch.messages", "want 1 to 65536, have %d", u.Batch.Messages)
	}
	if u.Batch.Bytes < 4096 || u.Batch.Bytes > MaxBatchBytes {
		k.failf(key+".batch.bytes", "want 4KiB to %s, have %s", MaxBatchBytes, u.Batch.Bytes)
	}
}

func (k *checker) nats(key string, u Upstream) {
	if u.URL == "" {
		k.failf(key+".url", "must be given for kind nats")
	} else if _, err := natsURLs(u.URL); err != nil {
		k.failf(key+".url", "%s", err)
	}
	if u.Stream == "" {
		k.failf(key+".stream", "must be given for kind nats")
	} else if strings.ContainsAny(u.Stream, " .*>/\\\t") {
		k.failf(key+".stream", "%q is not a stream name: no spaces, points, *, > or slashes", u.Stream)
	}
	if !strings.Contains(u.Subject, "{topic}") {
		k.failf(key+".subject", "%q lacks {topic}: all topics would fall into one subject", u.Subject)
	} else if strings.ContainsAny(u.Subject, " \t*>") || strings.Contains("."+u.Subject+".", "..") || u.Subject[0] == '$' {
		k.failf(key+".subject", "%q is not a subject that can be published to", u.Subject)
	}
	if u.MaxPending < 1 || u.MaxPending > 1<<20 {
		k.failf(key+".max_pending", "want 1 to 1048576, have %d", u.MaxPending)
	}
	k.createStream(key, u)
	ways := 0
	for _, given := range []bool{u.Credentials != "", u.User != "" || u.Password != "", u.Token != ""} {
		if given {
			ways++
		}
	}
	if ways > 1 {
		k.failf(key, "credentials, user with password, and token exclude each other")
	}
	if (u.User == "") != (u.Password == "") {
		k.failf(key+".user", "want both user and password, or neither")
	}
}

func (k *checker) createStream(key string, u Upstream) {
	if !u.CreateStream {
		for _, name := range []string{"replicas", "duplicate_window"} {
			if k.c.given(join(key, name)) {
				k.failf(join(key, name), "has no effect without create_stream: true")
			}
		}
	}
	if u.Replicas < 1 || u.Replicas > 5 {
		k.failf(key+".replicas", "want 1 to 5, have %d", u.Replicas)
	}
	k.positive(key+".duplicate_window", u.DuplicateWindow)
}

func (k *checker) clientTLS(key string, t ClientTLS) {
	if (t.Cert == "") != (t.Key == "") {
		k.failf(key, "want both cert and key, or neither")
	}
	if !t.Enabled && (t.CA != "" || t.Cert != "" || t.Key != "") {
		k.failf(key+".enabled", "is false, so the files given here have no effect")
	}
}

func (k *checker) lanes(s *Sidecar) {
	if len(s.Lanes) == 0 && k.c.Has(RoleSidecar) {
		k.failf("sidecar.lanes", "no lanes: nothing would ever be forwarded")
	}
	earlier := map[string][]string{} // patterns by upstream
	for i, lane := range s.Lanes {
		key := fmt.Sprintf("sidecar.lanes[%d]", i)
		if _, ok := s.Upstreams[lane.Upstream]; !ok {
			k.failf(key+".upstream", "%s", unknownUpstream(lane.Upstream, sortedKeys(s.Upstreams)))
		}
		if len(lane.Topics) == 0 {
			k.failf(key+".topics", "want at least one topic or pattern")
		}
		for _, pattern := range lane.Topics {
			if err := checkPattern(pattern); err != nil {
				k.failf(key+".topics", "%s", err)
			} else if by := covered(pattern, earlier[lane.Upstream]); by != "" {
				k.failf(key+".topics", "%q has no effect: %q before it sends the same topics to %s", pattern, by, lane.Upstream)
			}
			earlier[lane.Upstream] = append(earlier[lane.Upstream], pattern)
		}
	}
}

func unknownUpstream(name string, known []string) string {
	switch {
	case len(known) == 0:
		return "there are no upstreams"
	case name == "":
		return "must be given: one of " + strings.Join(known, ", ")
	}
	return fmt.Sprintf("no upstream is named %q; the nearest is %s", name, nearest(name, known))
}

// checkPattern accepts topic names in which "*" stands for any run of characters.
func checkPattern(pattern string) error {
	if pattern == "" {
		return fmt.Errorf("an empty topic pattern matches nothing")
	}
	if len(pattern) > 127 {
		return fmt.Errorf("the topic pattern %.20q… is longer than 127 bytes", pattern)
	}
	for _, r := range pattern {
		if !strings.ContainsRune("%|-_*", r) && (r > 'z' || !isAlphanumeric(byte(r))) {
			return fmt.Errorf("the topic pattern %q has %q; topics are made of letters, digits, %%, |, - and _, and * stands for any of them", pattern, r)
		}
	}
	return nil
}

func isAlphanumeric(b byte) bool {
	return b >= '0' && b <= '9' || b >= 'A' && b <= 'Z' || b >= 'a' && b <= 'z'
}

// covered finds the earlier pattern that leaves nothing for this one. That is so when it matches
// the pattern's own text: a star in it can then only be part of a longer run.
func covered(pattern string, earlier []string) string {
	for _, e := range earlier {
		if matches(e, pattern) {
			return e
		}
	}
	return ""
}

// matches tells whether a pattern matches the text, where "*" in the pattern stands for any
// run of characters.
func matches(pattern, text string) bool {
	parts := strings.Split(pattern, "*")
	if len(parts) == 1 {
		return pattern == text
	}
	text, ok := strings.CutPrefix(text, parts[0])
	if !ok {
		return false
	}
	last := len(parts) - 1
	for _, part := range parts[1:last] {
		i := strings.Index(text, part)
		if i < 0 {
			return false
		}
		text = text[i+len(part):]
	}
	return strings.HasSuffix(text, parts[last])
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }
