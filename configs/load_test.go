package configs

import (
	"errors"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"
)

// write puts a configuration file into a fresh directory and returns its path.
func write(t *testing.T, text string) string {
	t.Helper()
	path := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(path, []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	return path
}

func load(t *testing.T, l Loader) *Config {
	t.Helper()
	c, err := l.Load()
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func TestDefaultsAreTheLocalChain(t *testing.T) {
	c := load(t, Loader{})
	if !reflect.DeepEqual(c.Roles, []string{"namesrv", "broker", "sidecar"}) || c.Data != "./sluice-data" {
		t.Errorf("roles %v, data %q", c.Roles, c.Data)
	}
	if c.Namesrv.Listen != "127.0.0.1:9876" || c.Broker.Listen != "127.0.0.1:10911" ||
		c.Sidecar.Doors.RocketMQ.Listen != "127.0.0.1:9800" || c.Sidecar.Doors.HTTP.Listen != "127.0.0.1:9801" {
		t.Errorf("addresses: %+v", c)
	}
	if c.Broker.Store.Segment != 1<<30 || c.Sidecar.Store.MaxBytes != 10<<30 || c.Broker.Flush != FlushSync {
		t.Errorf("stores: %+v %+v", c.Broker.Store, c.Sidecar.Store)
	}
	core := c.Sidecar.Upstreams["core"]
	if core.Kind != KindRocketMQ || core.Timeout.String() != "10s" || core.Batch.Bytes != 1<<20 || core.Subject != "" {
		t.Errorf("core: %+v", core)
	}
	if !reflect.DeepEqual(c.Sidecar.Lanes, []Lane{{Topics: []string{"*"}, Upstream: "core"}}) {
		t.Errorf("lanes: %+v", c.Sidecar.Lanes)
	}
}

func TestDefaultsOfAnUpstreamFitItsKind(t *testing.T) {
	c := load(t, Loader{Set: []string{
		"sidecar.upstreams.jet.kind=nats", "sidecar.upstreams.jet.url=nats://127.0.0.1:4222", "sidecar.upstreams.jet.stream=EDGE",
		"sidecar.upstreams.jet.batch.bytes=2MiB",
	}})
	if jet := c.Sidecar.Upstreams["jet"]; jet.Batch != (Batch{4096, 2 << 20}) || jet.MaxPending != 4096 {
		t.Errorf("jet: %+v", jet)
	}
	if core := c.Sidecar.Upstreams["core"]; core.Batch != (Batch{1024, 1 << 20}) {
		t.Errorf("core: %+v", core)
	}
}

func TestEverythingListensOnLoopbackByDefault(t *testing.T) {
	for _, s := range load(t, Loader{}).Settings() {
		if strings.HasSuffix(s.Key, ".listen") && !strings.HasPrefix(s.Value, "127.0.0.1:") {
			t.Errorf("%s is %s", s.Key, s.Value)
		}
	}
}

func TestLaterSourcesWin(t *testing.T) {
	file := write(t, "data: /file\nbroker:\n  name: from-file\n  cluster: from-file\n  default_queues: 3\n")
	c := load(t, Loader{
		File:    file,
		Environ: []string{"SLUICE_BROKER_NAME=from-env", "SLUICE_BROKER_CLUSTER=from-env", "HOME=/root", "SLUICE_CONFIG=" + file},
		Set:     []string{"broker.name=from-set", "broker.name=from-last-set"},
	})
	if c.Data != "/file" || c.Broker.DefaultQueues != 3 || c.Broker.Cluster != "from-env" || c.Broker.Name != "from-last-set" {
		t.Errorf("data %s, broker %+v", c.Data, c.Broker)
	}
	for key, want := range map[string]string{
		"data": file + ":1", "broker.default_queues": file + ":5", "broker.cluster": "env SLUICE_BROKER_CLUSTER",
		"broker.name": "--set", "broker.listen": "default",
	} {
		if got := c.Origin(key).String(); got != want {
			t.Errorf("origin of %s is %s, want %s", key, got, want)
		}
	}
}

func TestUpstreamsAndLanesOfAFileReplaceTheDefaults(t *testing.T) {
	c := load(t, Loader{File: write(t, `
sidecar:
  upstreams:
    jet: {kind: nats, url: "nats://127.0.0.1:4222", stream: EDGE}
  lanes: [{topics: [a, b-*], upstream: jet}]
`)})
	if len(c.Sidecar.Upstreams) != 1 || len(c.Sidecar.Lanes) != 1 {
		t.Fatalf("%+v", c.Sidecar)
	}
	jet := c.Sidecar.Upstreams["jet"]
	if jet.Subject != "{stream}.{topic}" || jet.Group != "" || jet.Backoff.Max.String() != "1m" {
		t.Errorf("jet: %+v", jet)
	}
	if got := c.Origin("sidecar.lanes[0].topics").Line; got != 5 {
		t.Errorf("topics on line %d, want 5", got)
	}
}

func TestEnvironmentReachesIntoUpstreams(t *testing.T) {
	c := load(t, Loader{
		File: write(t, "sidecar:\n  upstreams:\n    my-core: {kind: rocketmq, namesrv: [a:1]}\n  lanes: [{topics: ['*'], upstream: my-core}]\n"),
		Environ: []string{
			"SLUICE_SIDECAR_UPSTREAMS_MY_CORE_NAMESRV=b:1, c:2",
			"SLUICE_SIDECAR_UPSTREAMS_MY_CORE_BACKOFF_MAX=7s",
			"SLUICE_SIDECAR_UPSTREAMS_JET_KIND=nats",
			"SLUICE_SIDECAR_UPSTREAMS_JET_URL=nats://127.0.0.1:4222",
			"SLUICE_SIDECAR_UPSTREAMS_JET_STREAM=EDGE",
			"SLUICE_SIDECAR_LANES=[{topics: [x], upstream: jet}, {topics: ['*'], upstream: my-core}]",
		},
	})
	core := c.Sidecar.Upstreams["my-core"]
	if !reflect.DeepEqual(core.Namesrv, []string{"b:1", "c:2"}) || core.Backoff.Max.String() != "7s" {
		t.Errorf("my-core: %+v", core)
	}
	if len(c.Sidecar.Lanes) != 2 || c.Sidecar.Upstreams["jet"].Stream != "EDGE" {
		t.Errorf("%+v", c.Sidecar)
	}
}

func TestKubernetesServiceLinksAreIgnored(t *testing.T) {
	load(t, Loader{Environ: []string{
		"SLUICE_SERVICE_HOST=10.0.0.1", "SLUICE_SERVICE_PORT=9800", "SLUICE_SERVICE_PORT_HTTP=9801", "SLUICE_PORT=tcp://10.0.0.1:9800",
		"SLUICE_PORT_9800_TCP=tcp://10.0.0.1:9800", "SLUICE_PORT_9800_TCP_ADDR=10.0.0.1", "SLUICE_EDGE_SERVICE_HOST=10.0.0.1",
	}})
}

func TestSetTakesListsAndFlow(t *testing.T) {
	c := load(t, Loader{Set: []string{
		"roles=broker,sidecar", "broker.namesrv=[a:1, b:2]", "sidecar.store={segment: 1MiB, max_bytes: 3MiB}", "sidecar.max_message=256KiB",
		"sidecar.upstreams.core.timeout=9s", "broker.auto_create_topic=False",
	}})
	if len(c.Roles) != 2 || len(c.Broker.Namesrv) != 2 || c.Sidecar.Store.MaxBytes != 3<<20 || c.Broker.AutoCreateTopic {
		t.Errorf("%+v", c)
	}
	if c.Sidecar.Store.MaxAge.String() != "72h" || c.Sidecar.Upstreams["core"].Timeout.String() != "9s" {
		t.Errorf("%+v", c.Sidecar)
	}
}

func TestAliasesAreFollowed(t *testing.T) {
	c := load(t, Loader{File: write(t, "broker:\n  store: &s {segment: 8MiB, max_bytes: 80MiB}\nsidecar:\n  store: *s\n")})
	if c.Sidecar.Store.Segment != 8<<20 {
		t.Errorf("%+v", c.Sidecar.Store)
	}
}

// TestProblemsNameKeyPlaceAndWayOut loads wrong configurations and looks for what the user needs
// to read.
func TestProblemsNameKeyPlaceAndWayOut(t *testing.T) {
	tests := []struct {
		name, file string
		env, set   []string
		want       []string
	}{
		{name: "misspelt key", file: "broker:\n  lisen: a:1\n", want: []string{":2: broker.lisen: unknown key", "broker.listen"}},
		{name: "key on the wrong level", file: "segment: 1MiB\n", want: []string{"unknown key", ".store.segment"}},
		{name: "key in a lane", file: "sidecar:\n  lanes:\n    - {topic: [a], upstream: core}\n", want: []string{":3: sidecar.lanes[0].topic: unknown key", "sidecar.lanes[0].topics"}},
		{name: "key in an upstream", set: []string{"sidecar.upstreams.core.ulr=x"}, want: []string{"--set: sidecar.upstreams.core.ulr", "sidecar.upstreams.core.url"}},
		{name: "two at once", file: "dta: x\nrols: y\n", want: []string{":1: dta", "is data", ":2: rols", "is roles"}},
		{name: "variable", env: []string{"SLUICE_BROKER_LISEN=x"}, want: []string{"env SLUICE_BROKER_LISEN: unknown variable", "SLUICE_BROKER_LISTEN"}},
		{name: "variable of an upstream", env: []string{"SLUICE_SIDECAR_UPSTREAMS_CORE_TIMOUT=1s"}, want: []string{"SLUICE_SIDECAR_UPSTREAMS_CORE_TIMEOUT"}},
		{name: "contradicting variables", env: []string{"SLUICE_SIDECAR_STORE={segment: 1MiB}", "SLUICE_SIDECAR_STORE_SEGMENT=2MiB"}, want: []string{"contradicts"}},
		{name: "set without value", set: []string{"broker.name"}, want: []string{`"broker.name" is not key=value`}},
		{name: "size", file: "broker: {store: {segment: 64M}}\n", want: []string{"broker.store.segment", "MB (powers of 1000) or MiB"}},
		{name: "duration", env: []string{"SLUICE_BROKER_FLUSH_INTERVAL=500"}, want: []string{"env SLUICE_BROKER_FLUSH_INTERVAL: broker.flush_interval", "500ms"}},
		{name: "number", set: []string{"broker.id=one"}, want: []string{`"one" is not a whole number`}},
		{name: "boolean", file: "broker: {auto_create_topic: maybe}\n", want: []string{"neither true nor false"}},
		{name: "choice", file: "broker: {flush: often}\n", want: []string{`"often" is none of sync, async`}},
		{name: "section given as text", file: "broker: yes\n", want: []string{"broker: want a section"}},
		{name: "text given as list", file: "data: [a]\n", want: []string{"data: want a text"}},
		{name: "lanes given as text", set: []string{"sidecar.lanes=core"}, want: []string{"YAML flow"}},
		{name: "no value", file: "data:\n", want: []string{"data: has no value"}},
		{name: "given twice", file: "data: a\ndata: b\n", want: []string{":2: data: given twice, first on line 1"}},
		{name: "not YAML", file: "data: [a\n", want: []string{"sluice.yaml:"}},
		{name: "two documents", file: "data: a\n---\ndata: b\n", want: []string{"second YAML document"}},
		{name: "merge key", file: "broker: {<<: {name: x}}\n", want: []string{"merge keys"}},
		{name: "name of an upstream", file: "sidecar: {upstreams: {a.b: {kind: nats}}}\n", want: []string{"letters, digits"}},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			l := Loader{Environ: tt.env, Set: tt.set}
			if tt.file != "" {
				l.File = write(t, tt.file)
			}
			_, err := l.Load()
			if _, ok := errors.AsType[Problems](err); !ok {
				t.Fatalf("got %v, want Problems", err)
			}
			for _, want := range tt.want {
				if !strings.Contains(err.Error(), want) {
					t.Errorf("%q lacks %q", err, want)
				}
			}
			if strings.Contains(err.Error(), "\n") {
				t.Errorf("%q has more than one line", err)
			}
		})
	}
}

func TestMissingFileIsAnError(t *testing.T) {
	_, err := Loader{File: filepath.Join(t.TempDir(), "none.yaml")}.Load()
	if !errors.Is(err, os.ErrNotExist) {
		t.Fatalf("got %v", err)
	}
}

// TestEveryKeyHasItsOwnVariable finds two keys that would be set by the same variable.
func TestEveryKeyHasItsOwnVariable(t *testing.T) {
	seen := map[string]string{}
	newSchema().walk("", func(key string, n *node) {
		name := variableName(key)
		if other, ok := seen[name]; ok {
			t.Errorf("%s sets both %s and %s", name, other, key)
		}
		if serviceLink.MatchString(name) {
			t.Errorf("%s would be taken for a Kubernetes service link", name)
		}
		seen[name] = key
	})
}

// TestEveryKeyHasADefault demands that default.yaml and the tags together leave no key out,
// so that config show is complete. Keys without a sensible default are named here.
func TestEveryKeyHasADefault(t *testing.T) {
	c := load(t, Loader{})
	newSchema().walk("", func(key string, n *node) {
		if !n.leaf() || strings.Contains(key, wildcard) {
			return
		}
		if _, ok := c.origins[key]; !ok {
			t.Errorf("%s has no default", key)
		}
	})
}

func TestDistance(t *testing.T) {
	for _, tt := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"listen", "listen", 0}, {"lisen", "listen", 1}, {"kitten", "sitting", 3}, {"", "abc", 3}, {"LISTEN", "listen", 0}} {
		if got := distance(tt.a, tt.b); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.a, tt.b, got, tt.want)
		}
		if got := distance(tt.b, tt.a); got != tt.want {
			t.Errorf("distance(%q, %q) = %d, want %d", tt.b, tt.a, got, tt.want)
		}
	}
}

// The file that "config default" prints is one to start from: it must load as it is.
func TestPrintedDefaultsAreAFile(t *testing.T) {
	c := load(t, Loader{File: write(t, DefaultYAML())})
	if c.Broker.FlushInterval != defaultFlushInterval || c.Sidecar.FlushInterval != defaultFlushInterval {
		t.Errorf("flush intervals %s and %s, the checker holds %s for the default", c.Broker.FlushInterval, c.Sidecar.FlushInterval, defaultFlushInterval)
	}
	if changed := Changes(load(t, Loader{}), c); len(changed) > 0 {
		t.Errorf("as a file, the defaults change %v", changed)
	}
}

// What clashes with a default is told at the place that somebody wrote.
func TestClashesNameWhatWasSet(t *testing.T) {
	for set, want := range map[string]string{
		"broker.listen=0.0.0.0:10911":            "--set: broker.advertise: must be given",
		"broker.store.segment=1MiB":              "--set: broker.max_message: a message of 4MiB does not fit",
		"sidecar.store.segment=1GiB":             "",
		"sidecar.upstreams.core.backoff.min=2m":  "--set: sidecar.upstreams.core.backoff.max: 1m is less than min, 2m",
		"sidecar.upstreams.core.backoff.max=1ms": "--set: sidecar.upstreams.core.backoff.max",
	} {
		_, err := Loader{Set: []string{set}}.Load()
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: error is %v, want %q", set, err, want)
		}
	}
}
