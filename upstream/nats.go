package upstream

import (
	"context"
	"crypto/tls"
	"errors"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"net"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"
	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/protocol/message"
)

// NATSOptions configure a NATS sender. Only URL is required.
type NATSOptions struct {
	URL  string // nats://host:port, several joined by commas
	Name string // of the connection, as the server lists it; default "sluice"
	TLS  *tls.Config

	User, Password  string
	Token           string
	CredentialsFile string // JWT and seed, as made by nsc

	// Stream, when set, is the only stream that may take the messages: a subject
	// that leads to another one is an error.
	Stream string

	// Subject is the template of subjects, with {topic} and {queue}; default
	// "sluice.{topic}". Characters of a topic that subjects do not allow become
	// '_'.
	Subject string

	// MaxPending is the most messages without acknowledgement at once; default 4096.
	// On a connection to a near server fewer are, see nearWindow.
	MaxPending int

	AckTimeout time.Duration // of one message; default 10 s

	// ReconnectWait is the pause between attempts to connect, to which up to the
	// same is added at random; default 1 s.
	ReconnectWait time.Duration

	// Create, when set, makes Stream if it does not exist. A stream that exists is
	// left as it is.
	Create *StreamOptions

	// OnDuplicate, when set, hears of each message that the server recognised as
	// one that it has. It must not wait.
	OnDuplicate func(topic string, queue int, m *message.Message)

	Logger *slog.Logger // nil: discard
}

// StreamOptions are those of a stream in file storage that the sender creates.
type StreamOptions struct {
	Subjects   []string      // default: NATSOptions.Subject with '*' for its variables
	Replicas   int           // default 1
	MaxBytes   int64         // 0: no limit
	MaxAge     time.Duration // 0: no limit
	Duplicates time.Duration // how long message ids are remembered; default 2 min
}

func (o NATSOptions) withDefaults() (NATSOptions, error) {
	if o.URL == "" {
		return o, errors.New("no URL")
	}
	if o.Name == "" {
		o.Name = "sluice"
	}
	if o.Subject == "" {
		o.Subject = "sluice.{topic}"
	}
	if strings.ContainsAny(o.Subject, " \t\r\n*>") || strings.Contains(o.Subject, "..") ||
		strings.Trim(o.Subject, ".") != o.Subject || strings.HasPrefix(o.Subject, "$") {
		return o, fmt.Errorf("subject %q is not one that can be published to", o.Subject)
	}
	if o.MaxPending == 0 {
		o.MaxPending = 4096
	}
	if o.MaxPending < 0 {
		return o, fmt.Errorf("max pending %d is negative", o.MaxPending)
	}
	if o.AckTimeout == 0 {
		o.AckTimeout = 10 * time.Second
	}
	if o.ReconnectWait == 0 {
		o.ReconnectWait = time.Second
	}
	if o.Create != nil && o.Stream == "" {
		return o, errors.New("a stream to create needs a name")
	}
	if o.Logger == nil {
		o.Logger = slog.New(slog.DiscardHandler)
	}
	return o, nil
}

// NATS sends to NATS JetStream: each message with its unique key as message id,
// so that the stream drops doubles that come within its duplicate window.
//
// The messages of a lane are published in order on one connection, up to the
// window ahead of their acknowledgements. A lost connection loses an end of what was
// published on it, and nothing that was under way on it goes on on the next one,
// so what is stored stays in order. Two cases are left in which a stream can get
// messages in another order or twice: when the server refuses one message of
// several under way and takes later ones (a full or restarting stream), and when
// an outcome stays unknown for longer than the stream's duplicate window. Readers
// that must not see either compare the queue offset in the headers.
type NATS struct {
	o      NATSOptions
	logger *slog.Logger

	conn atomic.Pointer[natsConn] // nil while there is none
	down atomic.Pointer[error]    // why there is none

	encoders sync.Pool // of *encoder

	mu        sync.Mutex
	uncertain map[laneKey]int // messages at the front that may be stored already

	stored, resent, duplicates, rejected atomic.Uint64
}

var _ Sender = (*NATS)(nil)

// NewNATS checks o; it opens no connection.
func NewNATS(o NATSOptions) (*NATS, error) {
	o, err := o.withDefaults()
	if err != nil {
		return nil, fmt.Errorf("nats upstream: %w", err)
	}
	s := &NATS{
		o: o, logger: o.Logger, uncertain: make(map[laneKey]int),
	}
	s.encoders.New = func() any { return s.newEncoder() }
	s.down.Store(&errNotRunning)
	return s, nil
}

var (
	errNotRunning   = errors.New("not running")
	errNotConnected = errors.New("no connection yet")
)

// Run keeps a connection until ctx ends: it connects again for as long as it
// takes. While there is none, Send fails at once and nothing piles up in memory.
//
// Each connection is a client of its own, as one that connects again by itself
// would carry a lane's later messages over to the new connection and leave a hole
// where the old one broke.
func (s *NATS) Run(ctx context.Context) error {
	defer s.down.Store(&errNotRunning)
	s.down.Store(&errNotConnected)
	servers := s.o.URL
	for failures := 0; ; failures++ {
		nc, err := nats.Connect(servers, s.connectOptions(ctx)...)
		if err == nil {
			servers = withDiscovered(s.o.URL, nc)
			failures = 0
			err = s.serve(ctx, nc)
		}
		if ctx.Err() != nil {
			return nil
		}
		err = fmt.Errorf("not connected to %s: %w", s.o.URL, err)
		s.down.Store(&err)
		if failures == 0 {
			s.logger.Warn("nats disconnected", "err", err)
		}
		wait := s.o.ReconnectWait
		if !pause(ctx, wait+rand.N(wait)) {
			return nil
		}
	}
}

// serve lets senders use a connection until it breaks or ctx ends.
func (s *NATS) serve(ctx context.Context, nc *nats.Conn) error {
	defer nc.Close()
	defer context.AfterFunc(ctx, nc.Close)() // whatever waits for the server
	s.logger.Info("nats connected", "server", nc.ConnectedUrlRedacted())
	c, err := newNATSConn(nc, s.o.MaxPending)
	if err != nil {
		return err
	}
	group, running := errgroup.WithContext(ctx)
	if s.o.Create != nil {
		c.missing.Store(&errNotConnected)
		group.Go(func() error { return s.create(running, c) })
	}
	group.Go(func() error {
		select {
		case <-running.Done():
			return nil
		case <-c.closed:
			return c.broken()
		}
	})
	s.conn.Store(c)
	err = group.Wait()
	s.conn.Store(nil)
	c.fail(nats.ErrConnectionClosed)
	return err
}

// withDiscovered adds the servers of the cluster that the connection has heard of.
func withDiscovered(url string, nc *nats.Conn) string {
	return strings.Join(append([]string{url}, nc.DiscoveredServers()...), ",")
}

// pause waits for d and says whether ctx still lives.
func pause(ctx context.Context, d time.Duration) bool {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-ctx.Done():
		return false
	case <-timer.C:
		return true
	}
}

func (s *NATS) connectOptions(ctx context.Context) []nats.Option {
	opts := []nats.Option{
		nats.Name(s.o.Name),
		nats.SetCustomDialer(contextDialer{ctx}),
		nats.NoReconnect(),
		nats.SkipSubjectValidation(), // withDefaults and subjectToken see to it
		nats.PingInterval(20 * time.Second),
		nats.FlusherTimeout(10 * time.Second),
		nats.ErrorHandler(func(_ *nats.Conn, _ *nats.Subscription, err error) { s.logger.Warn("nats error", "err", err) }),
	}
	if s.o.TLS != nil {
		opts = append(opts, nats.Secure(s.o.TLS))
	}
	if s.o.User != "" {
		opts = append(opts, nats.UserInfo(s.o.User, s.o.Password))
	}
	if s.o.Token != "" {
		opts = append(opts, nats.Token(s.o.Token))
	}
	if s.o.CredentialsFile != "" {
		opts = append(opts, nats.UserCredentials(s.o.CredentialsFile))
	}
	return opts
}

// A contextDialer gives up when Run's context ends.
type contextDialer struct{ ctx context.Context }

// Dial is net.Dialer's, with a time-out.
func (d contextDialer) Dial(network, address string) (net.Conn, error) {
	dialer := net.Dialer{Timeout: 5 * time.Second}
	return dialer.DialContext(d.ctx, network, address)
}

// create makes the stream, trying again until it is there.
func (s *NATS) create(ctx context.Context, c *natsConn) error {
	subjects := s.o.Create.Subjects
	if len(subjects) == 0 {
		subjects = []string{strings.NewReplacer("{topic}", "*", "{queue}", "*").Replace(s.o.Subject)}
	}
	config := jetstream.StreamConfig{
		Name: s.o.Stream, Subjects: subjects, Storage: jetstream.FileStorage, Replicas: max(s.o.Create.Replicas, 1),
		MaxBytes: orNoLimit(s.o.Create.MaxBytes), MaxAge: s.o.Create.MaxAge, Duplicates: s.o.Create.Duplicates,
	}
	js, err := jetstream.New(c.nc)
	if err != nil {
		return fmt.Errorf("create stream %s: %w", s.o.Stream, err)
	}
	backoff := Backoff{Min: 200 * time.Millisecond, Max: 10 * time.Second}
	for failures := 0; ; failures++ {
		attempt, cancel := context.WithTimeout(ctx, s.o.AckTimeout)
		_, err := js.CreateStream(attempt, config)
		cancel()
		// A stream of that name with other settings is the operator's.
		if err == nil || errors.Is(err, jetstream.ErrStreamNameAlreadyInUse) {
			c.missing.Store(nil)
			s.logger.Info("stream is there", "stream", s.o.Stream, "created", err == nil)
			return nil
		}
		c.missing.Store(&err)
		if failures%10 == 9 {
			s.logger.Warn("stream not created", "stream", s.o.Stream, "err", err)
		}
		if !pause(ctx, backoff.Delay(failures)) {
			return nil
		}
	}
}

func orNoLimit(n int64) int64 {
	if n == 0 {
		return -1
	}
	return n
}

// Queues is 0: streams have no queues.
func (s *NATS) Queues(context.Context, string) (int, error) { return 0, nil }

// Stats counts what was sent.
func (s *NATS) Stats() Stats {
	return Stats{
		Stored: s.stored.Load(), Resent: s.resent.Load(),
		Duplicates: s.duplicates.Load(), Rejected: s.rejected.Load(),
	}
}
