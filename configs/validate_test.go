package configs

import (
	"bytes"
	"errors"
	"path/filepath"
	"strings"
	"testing"
)

const nats = "sidecar.upstreams={jet: {kind: nats, url: 'nats://h:4222', stream: EDGE}}"

const jetLane = "sidecar.lanes=[{topics: ['*'], upstream: jet}]"

// A validation changes the defaults by --set flags and looks for the one problem that must come
// of it, or for none.
type validation struct {
	name string
	set  []string
	want string // "" when nothing is wrong
}

func TestValidate(t *testing.T) {
	validate(t, []validation{
		{"no roles", []string{"roles="}, "want at least one of"},
		{"unknown role", []string{"roles=brokr"}, "nearest known role is broker"},
		{"role twice", []string{"roles=broker,broker"}, "given twice"},
		{"no data", []string{"data="}, "want a directory"},
		{"every interface by omission", []string{"namesrv.listen=:9876"}, "say 127.0.0.1:9876, or 0.0.0.0:9876"},
		{"every interface on purpose", []string{"namesrv.listen=0.0.0.0:9876"}, ""},
		{"no port", []string{"broker.listen=127.0.0.1"}, "is not host:port"},
		{"port too high", []string{"broker.listen=127.0.0.1:70000"}, "no valid port"},
		{"not an address", []string{"broker.listen=127.0.0:1"}, "no valid host"},
		{"IPv6", []string{"broker.listen=[::1]:10911"}, ""},
		{"advertise missing", []string{"broker.listen=0.0.0.0:10911"}, "broker.advertise: must be given"},
		{"advertise anywhere", []string{"broker.advertise=0.0.0.0:10911"}, "cannot be dialled"},
		{"door advertise missing", []string{"sidecar.doors.rocketmq.listen=[::]:9800"}, "sidecar.doors.rocketmq.advertise"},
		{"one address for two", []string{"namesrv.listen=127.0.0.1:9800"}, "is also namesrv.listen"},
		{"one address, one role", []string{"namesrv.listen=127.0.0.1:9800", "roles=namesrv"}, ""},
		{"any port for two", []string{"namesrv.listen=127.0.0.1:0", "broker.listen=127.0.0.1:0"}, ""},
		{"negative id", []string{"broker.id=-1"}, "want 0 for a master"},
		{"name server twice", []string{"broker.namesrv=a:1,a:1"}, "given twice"},
		{"name server port 0", []string{"broker.namesrv=a:0"}, "no valid port"},
		{"interval under sync", []string{"broker.flush_interval=1s"}, "has no effect under flush: sync"},
		{"default interval under sync", []string{"broker.flush_interval=500ms"}, ""},
		{"interval under async", []string{"broker.flush=async", "broker.flush_interval=1s"}, ""},
		{"interval too long", []string{"broker.flush=async", "broker.flush_interval=2h"}, "want 1ms to 1m"},
		{"segment too small", []string{"broker.store.segment=32KiB"}, "want 64KiB to 1GiB, have 32KiB"},
		{"segment not whole pages", []string{"broker.store.segment=100000"}, "multiple of 4096"},
		{"message larger than a segment", []string{"broker.store.segment=1MiB"}, "does not fit into a segment of 1MiB"},
		{"two segments", []string{"sidecar.store.max_bytes=128MiB"}, "at least 3 segments of 64MiB"},
		{"three segments", []string{"sidecar.store.max_bytes=192MiB"}, ""},
		{"unlimited", []string{"sidecar.store.max_bytes=0", "sidecar.store.max_age=0"}, ""},
		{"negative age", []string{"sidecar.store.max_age=-1h"}, "max_age"},
		{"message too small", []string{"sidecar.max_message=1B"}, "want 1KiB to"},
		{"no queues", []string{"broker.default_queues=0"}, "want 1 to 1024"},
		{"half a certificate", []string{"broker.tls.cert=x.pem"}, "broker.tls: want both cert and key"},
	})
}

func TestValidateSidecar(t *testing.T) {
	validate(t, []validation{
		{"doors shut", []string{"sidecar.doors.rocketmq.listen=", "sidecar.doors.http.listen="}, "both doors are shut"},
		{"doors shut without the role", []string{"sidecar.doors.rocketmq.listen=", "sidecar.doors.http.listen=", "roles=broker"}, ""},
		{"one door", []string{"sidecar.doors.rocketmq.listen="}, ""},
		{"no lanes", []string{"sidecar.lanes=[]"}, "no lanes"},
		{"lane to nowhere", []string{"sidecar.lanes=[{topics: [a], upstream: cor}]"}, `no upstream is named "cor"; the nearest is core`},
		{"lane without upstream", []string{"sidecar.lanes=[{topics: [a]}]"}, "must be given: one of core"},
		{"lane without topics", []string{"sidecar.lanes=[{upstream: core}]"}, "at least one topic"},
		{"bad pattern", []string{"sidecar.lanes=[{topics: ['a.b'], upstream: core}]"}, "the topic pattern"},
		{"pattern without effect", []string{"sidecar.lanes=[{topics: ['a*'], upstream: core}, {topics: [ab], upstream: core}]"}, `"ab" has no effect: "a*"`},
		{"one topic to two upstreams", []string{nats, "sidecar.upstreams.core={kind: rocketmq, namesrv: ['a:1']}", "sidecar.lanes=[{topics: ['a*'], upstream: core}, {topics: [ab], upstream: jet}]"}, ""},
		{"defaults left behind", []string{nats}, `no upstream is named "core"; the nearest is jet`},
		{"nats", []string{nats, jetLane}, ""},
		{"nats with name servers", []string{nats, jetLane, "sidecar.upstreams.jet.namesrv=a:1"}, "belongs to kind rocketmq"},
		{"rocketmq with a URL", []string{"sidecar.upstreams.core.url=nats://h:1"}, "belongs to kind nats"},
		{"rocketmq with a bool of nats", []string{"sidecar.upstreams.core.create_stream=false"}, "belongs to kind nats"},
		{"no kind", []string{"sidecar.upstreams.x.url=nats://h:1"}, "sidecar.upstreams.x.kind: must be given"},
		{"no URL", []string{nats, jetLane, "sidecar.upstreams.jet.url="}, "must be given for kind nats"},
		{"bad URL", []string{nats, jetLane, "sidecar.upstreams.jet.url=http://h:1"}, "is not a URL such as"},
		{"stream name", []string{nats, jetLane, "sidecar.upstreams.jet.stream=a.b"}, "is not a stream name"},
		{"subject without topic", []string{nats, jetLane, "sidecar.upstreams.jet.subject=edge"}, "lacks {topic}"},
		{"subject with wildcard", []string{nats, jetLane, "sidecar.upstreams.jet.subject=edge.{topic}.*"}, "is not a subject that can be published to"},
		{"replicas of no stream", []string{nats, jetLane, "sidecar.upstreams.jet.replicas=3"}, "without create_stream"},
		{"replicas", []string{nats, jetLane, "sidecar.upstreams.jet.replicas=3", "sidecar.upstreams.jet.create_stream=true"}, ""},
		{"nothing pending", []string{nats, jetLane, "sidecar.upstreams.jet.max_pending=0"}, "want 1 to 1048576"},
		{"batch larger than a request", []string{"sidecar.upstreams.core.batch.bytes=8MiB"}, "want 4KiB to 4MiB"},
		{"two credentials", []string{nats, jetLane, "sidecar.upstreams.jet.token=t", "sidecar.upstreams.jet.credentials=f"}, "exclude each other"},
		{"user alone", []string{nats, jetLane, "sidecar.upstreams.jet.user=u"}, "both user and password"},
		{"TLS files without TLS", []string{"sidecar.upstreams.core.tls.ca=ca.pem"}, "have no effect"},
		{"no name servers", []string{"sidecar.upstreams.core.namesrv="}, "must be given for kind rocketmq"},
		{"no timeout", []string{"sidecar.upstreams.core.timeout=0"}, "positive duration"},
		{"back-off reversed", []string{"sidecar.upstreams.core.backoff={min: 2s, max: 1s}"}, "1s is less than min, 2s"},
		{"empty batch", []string{"sidecar.upstreams.core.batch.messages=0"}, "want 1 to 65536"},
	})
}

func validate(t *testing.T, tests []validation) {
	t.Helper()
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			_, err := Loader{Set: tt.set}.Load()
			switch {
			case tt.want == "" && err != nil:
				t.Errorf("got %v", err)
			case tt.want != "" && (err == nil || !strings.Contains(err.Error(), tt.want)):
				t.Errorf("got %v, want %q", err, tt.want)
			}
		})
	}
}

func TestValidateReportsAllAtOnce(t *testing.T) {
	_, err := Loader{Set: []string{"data=", "broker.id=-1", "sidecar.max_message=1"}}.Load()
	problems, ok := errors.AsType[Problems](err)
	if !ok || len(problems) != 3 {
		t.Fatalf("got %v", err)
	}
}

func TestMatches(t *testing.T) {
	for _, tt := range []struct {
		pattern, text string
		want          bool
	}{
		{"*", "", true}, {"*", "a", true}, {"a", "a", true}, {"a", "ab", false}, {"a*", "ab", true}, {"*b", "ab", true},
		{"a*c", "abc", true}, {"a*c", "ac", true}, {"a*a", "a", false}, {"a*b*c", "axbxc", true}, {"a*b*c", "acb", false},
		{"*-*", "a-b", true}, {"*ab*ab", "ab", false}, {"*ab*ab", "abab", true},
	} {
		if got := matches(tt.pattern, tt.text); got != tt.want {
			t.Errorf("matches(%q, %q) = %t", tt.pattern, tt.text, got)
		}
	}
}

func TestExamplesLoad(t *testing.T) {
	files, err := filepath.Glob("examples/*.yaml")
	if err != nil || len(files) < 6 {
		t.Fatalf("%d examples, %v", len(files), err)
	}
	for _, file := range files {
		c, err := Loader{File: file}.Load()
		if err != nil {
			t.Errorf("%v", err)
			continue
		}
		if c.given("sidecar.upstreams") != c.Has(RoleSidecar) {
			t.Errorf("%s: the sidecar role and its upstreams do not go together", file)
		}
	}
}

// TestEverythingLocalExampleEqualsTheDefaults keeps the example honest.
func TestEverythingLocalExampleEqualsTheDefaults(t *testing.T) {
	if changed := Changes(load(t, Loader{}), load(t, Loader{File: "examples/everything-local.yaml"})); len(changed) > 0 {
		t.Errorf("differs in %v", changed)
	}
}

func TestShow(t *testing.T) {
	file := write(t, "data: /x\n")
	c := load(t, Loader{File: file, Set: []string{
		"sidecar.upstreams={jet: {kind: nats, url: 'nats://bob:hunter2@h:4222', stream: EDGE, token: hunter2}}",
		"sidecar.lanes=[{topics: ['*'], upstream: jet}]",
	}})
	var out bytes.Buffer
	if err := c.Show(&out); err != nil {
		t.Fatal(err)
	}
	text := strings.Join(strings.Fields(out.String()), " ")
	for _, want := range []string{
		"data: /x # " + file + ":1", "broker.store.segment: 1GiB # default", "sidecar.upstreams.jet.stream: EDGE # --set",
		"sidecar.upstreams.jet.token: ******** # --set", `sidecar.lanes[0].topics: ["*"] # --set`, "sidecar.store.max_age: 72h # default",
		`nats://********@h:4222`, "sidecar.upstreams.jet.timeout: 10s # default",
	} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s", want, out.String())
		}
	}
	if strings.Contains(text, "hunter2") || strings.Contains(text, "jet.namesrv") {
		t.Errorf("a secret or a key of another kind in\n%s", out.String())
	}
}

// TestShowReadsBack loads what config show prints and demands the same configuration.
func TestShowReadsBack(t *testing.T) {
	c := load(t, Loader{Set: []string{"broker.flush=async", "broker.flush_interval=1s", "sidecar.flush=async"}})
	var set []string
	for _, s := range c.Settings() {
		if !strings.Contains(s.Key, "[") {
			set = append(set, s.Key+"="+strings.Trim(s.Value, `"`))
		}
	}
	if changed := Changes(c, load(t, Loader{Set: set})); len(changed) > 0 {
		t.Errorf("differs in %v", changed)
	}
}
