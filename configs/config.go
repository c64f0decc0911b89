// Package configs loads, checks and watches the configuration of the sluice binary.
//
// Four sources are laid over each other, each later one winning key by key: the defaults
// embedded in the binary (default.yaml), one YAML file, environment variables named SLUICE_…
// and --set key=value flags. Every value keeps the place where it came from, every problem is
// reported with that place, and all problems are reported at once.
//
// The structs here are what a configuration says, in its own words. The options that the roles
// take are defined by the roles; cmd/sluice turns the one into the other.
package configs

// A Config is one whole, checked configuration. It is immutable once loaded: a reload makes a
// new one.
type Config struct {
	Roles   []string `koanf:"roles"`
	Data    string   `koanf:"data"`
	Log     Log      `koanf:"log"`
	Namesrv Namesrv  `koanf:"namesrv"`
	Broker  Broker   `koanf:"broker"`
	Sidecar Sidecar  `koanf:"sidecar"`

	origins map[string]Origin // by full key, for example "broker.store.segment"
}

// The roles a process can take, any number of them at once.
const (
	RoleNamesrv = "namesrv"
	RoleBroker  = "broker"
	RoleSidecar = "sidecar"
)

// The values of the keys named flush.
const (
	FlushSync  = "sync"  // a message is flushed to the device before it is acknowledged
	FlushAsync = "async" // flushed in the background, every flush_interval
)

// The kinds of upstream.
const (
	KindRocketMQ = "rocketmq"
	KindNATS     = "nats"
)

// Log says what is logged, on stderr.
type Log struct {
	Level  string `koanf:"level" oneof:"debug,info,warn,error"`
	Format string `koanf:"format" oneof:"text,json"`
}

// TLS is the certificate of a listener. Both empty: the listener speaks plain text only.
type TLS struct {
	Cert string `koanf:"cert"` // PEM file, the chain with the leaf first
	Key  string `koanf:"key"`  // PEM file
}

// ClientTLS says how a connection to an upstream is secured.
type ClientTLS struct {
	Enabled bool   `koanf:"enabled"`
	CA      string `koanf:"ca"`   // PEM file; empty: the system's roots
	Cert    string `koanf:"cert"` // PEM file of our own certificate, for mutual TLS
	Key     string `koanf:"key"`
}

// Store is one spool on disk.
type Store struct {
	Segment  Size     `koanf:"segment"`   // ≥ 64 KiB, a multiple of 4096
	MaxBytes Size     `koanf:"max_bytes"` // of the commit log; 0: no limit; else ≥ 3 segments
	MaxAge   Duration `koanf:"max_age"`   // from which messages may be deleted; 0: never by age
}

// Namesrv is the name server role.
type Namesrv struct {
	Listen        string   `koanf:"listen"`
	BrokerTimeout Duration `koanf:"broker_timeout"` // a broker silent for longer leaves the routes
	TLS           TLS      `koanf:"tls"`
}

// Broker is the broker role.
type Broker struct {
	Listen          string   `koanf:"listen"`
	Advertise       string   `koanf:"advertise"` // the address clients are told; empty: listen
	Cluster         string   `koanf:"cluster"`
	Name            string   `koanf:"name"`
	ID              int64    `koanf:"id"` // 0 is the master of its name
	Namesrv         []string `koanf:"namesrv"`
	Flush           string   `koanf:"flush" oneof:"sync,async"`
	FlushInterval   Duration `koanf:"flush_interval"` // under flush: async
	Store           Store    `koanf:"store"`
	MaxMessage      Size     `koanf:"max_message"` // body of one message
	AutoCreateTopic bool     `koanf:"auto_create_topic"`
	DefaultQueues   int64    `koanf:"default_queues"` // of an auto-created topic
	TLS             TLS      `koanf:"tls"`
}

// Sidecar is the role that takes local traffic into a spool and forwards it.
type Sidecar struct {
	Flush         string              `koanf:"flush" oneof:"sync,async"`
	FlushInterval Duration            `koanf:"flush_interval"`
	Store         Store               `koanf:"store"`
	MaxMessage    Size                `koanf:"max_message"`
	DefaultQueues int64               `koanf:"default_queues"` // of a topic that the upstream does not know
	Doors         Doors               `koanf:"doors"`
	Upstreams     map[string]Upstream `koanf:"upstreams"`
	Lanes         []Lane              `koanf:"lanes"`
}

// Doors are where local producers come in. A door with an empty listen address is shut.
type Doors struct {
	RocketMQ RocketMQDoor `koanf:"rocketmq"`
	HTTP     HTTPDoor     `koanf:"http"`
}

// RocketMQDoor speaks RocketMQ remoting, name server and broker on one port.
type RocketMQDoor struct {
	Listen    string `koanf:"listen"`
	Advertise string `koanf:"advertise"` // what route answers name; empty: listen
}

// HTTPDoor takes messages over HTTP and serves health and metrics.
type HTTPDoor struct {
	Listen  string `koanf:"listen"`
	MaxBody Size   `koanf:"max_body"` // of one request
}

// An Upstream is a place that lanes forward to. Keys tagged with a kind belong to that kind
// only; setting one on an upstream of another kind is an error.
type Upstream struct {
	Kind string `koanf:"kind" oneof:"rocketmq,nats"`

	Namesrv []string `koanf:"namesrv" kind:"rocketmq"`
	Group   string   `koanf:"group" kind:"rocketmq" default:"SLUICE_SIDECAR"` // producer group shown upstream

	URL             string   `koanf:"url" kind:"nats"`    // one or more, comma separated
	Stream          string   `koanf:"stream" kind:"nats"` // the only stream that may take the messages
	Subject         string   `koanf:"subject" kind:"nats" default:"{stream}.{topic}"`
	MaxPending      int64    `koanf:"max_pending" kind:"nats" default:"4096"` // messages without acknowledgement
	CreateStream    bool     `koanf:"create_stream" kind:"nats" default:"false"`
	Replicas        int64    `koanf:"replicas" kind:"nats" default:"1"`          // of a stream that is created
	DuplicateWindow Duration `koanf:"duplicate_window" kind:"nats" default:"2m"` // of a stream that is created
	Credentials     string   `koanf:"credentials" kind:"nats"`                   // file as made by nsc
	User            string   `koanf:"user" kind:"nats"`
	Password        string   `koanf:"password" kind:"nats" secret:"true"`
	Token           string   `koanf:"token" kind:"nats" secret:"true"`

	TLS     ClientTLS `koanf:"tls"`
	Timeout Duration  `koanf:"timeout" default:"10s"` // of one request or acknowledgement
	Batch   Batch     `koanf:"batch"`
	Backoff Backoff   `koanf:"backoff"`
}

// Batch limits what a lane takes from the spool at once, and what goes into one request. NATS
// takes messages one by one, and the pause between two batches is all that a limit costs there.
type Batch struct {
	Messages int64 `koanf:"messages" default:"1024" default_nats:"4096"`
	Bytes    Size  `koanf:"bytes" default:"1MiB" default_nats:"4MiB"`
}

// Backoff is the exponential delay, with full jitter, between attempts at an upstream that
// does not take a batch.
type Backoff struct {
	Min Duration `koanf:"min" default:"500ms"`
	Max Duration `koanf:"max" default:"1m"`
}

// A Lane sends the topics that match one of its patterns to one upstream. A topic that several
// lanes match goes to each of their upstreams.
type Lane struct {
	Topics   []string `koanf:"topics"` // names, "*" stands for any run of characters
	Upstream string   `koanf:"upstream"`
}

// Has tells whether the process takes this role.
func (c *Config) Has(role string) bool {
	for _, r := range c.Roles {
		if r == role {
			return true
		}
	}
	return false
}
