package upstream

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/nats-io/nats-server/v2/server"
	"github.com/nats-io/nats.go"
	"github.com/nats-io/nats.go/jetstream"

	"github.com/sluicemq/sluice/client/clienttest"
	"github.com/sluicemq/sluice/protocol/message"
)

// A jetStreamServer is a NATS server in this process that can stop and start
// again with its files at its port.
type jetStreamServer struct {
	t       testing.TB
	options server.Options
	s       *server.Server
}

func startJetStream(t testing.TB) *jetStreamServer {
	t.Helper()
	j := &jetStreamServer{t: t, options: server.Options{
		Host: "127.0.0.1", Port: server.RANDOM_PORT, JetStream: true, StoreDir: t.TempDir(), NoLog: true, NoSigs: true,
		MaxPayload: 64 << 10,
	}}
	j.start()
	t.Cleanup(j.stop)
	return j
}

func (j *jetStreamServer) start() {
	j.t.Helper()
	o := j.options
	s, err := server.NewServer(&o)
	if err != nil {
		j.t.Fatal(err)
	}
	s.Start()
	if !s.ReadyForConnections(10 * time.Second) {
		j.t.Fatal("nats server does not start")
	}
	j.s = s
	j.options.Port = o.Port
}

func (j *jetStreamServer) stop() {
	j.s.Shutdown()
	j.s.WaitForShutdown()
}

func (j *jetStreamServer) url() string { return fmt.Sprintf("nats://127.0.0.1:%d", j.options.Port) }

// admin calls f with a connection of its own.
func (j *jetStreamServer) admin(f func(ctx context.Context, js jetstream.JetStream)) {
	j.t.Helper()
	nc, err := nats.Connect(j.url())
	if err != nil {
		j.t.Fatal(err)
	}
	defer nc.Close()
	js, err := jetstream.New(nc)
	if err != nil {
		j.t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(j.t.Context(), 10*time.Second)
	defer cancel()
	f(ctx, js)
}

func (j *jetStreamServer) update(config jetstream.StreamConfig) {
	j.t.Helper()
	j.admin(func(ctx context.Context, js jetstream.JetStream) {
		if _, err := js.CreateOrUpdateStream(ctx, config); err != nil {
			j.t.Fatal(err)
		}
	})
}

// messages reads the whole stream in order.
func (j *jetStreamServer) messages(stream string) (all []*jetstream.RawStreamMsg) {
	j.t.Helper()
	j.admin(func(ctx context.Context, js jetstream.JetStream) {
		s, err := js.Stream(ctx, stream)
		if err != nil {
			j.t.Fatal(err)
		}
		state := s.CachedInfo().State
		for seq := state.FirstSeq; state.Msgs > 0 && seq <= state.LastSeq; seq++ {
			m, err := s.GetMsg(ctx, seq)
			if err != nil {
				j.t.Fatal(err)
			}
			all = append(all, m)
		}
	})
	return all
}

func (j *jetStreamServer) bodies(stream string) (list []string) {
	j.t.Helper()
	for _, m := range j.messages(stream) {
		list = append(list, string(m.Data))
	}
	return list
}

// toNATS is a sender that runs and is connected.
func toNATS(t testing.TB, j *jetStreamServer, o NATSOptions) *NATS {
	t.Helper()
	o.URL, o.ReconnectWait = j.url(), 10*time.Millisecond
	s, err := NewNATS(o)
	if err != nil {
		t.Fatal(err)
	}
	running(t, s)
	awaitConnected(t, s)
	return s
}

func awaitConnected(t testing.TB, s *NATS) {
	t.Helper()
	clienttest.Await(t, "the connection", func() bool {
		_, err := s.connected()
		return err == nil
	})
}

// edge is a sender to the stream EDGE, which it creates.
func edge(t testing.TB, j *jetStreamServer) *NATS {
	return toNATS(t, j, NATSOptions{Stream: "EDGE", Create: &StreamOptions{}})
}

func TestNATSCarriesMessageIDHeadersAndProperties(t *testing.T) {
	j := startJetStream(t)
	s := edge(t, j)
	m := spooled(7, 8)[0]
	m.Flag = 3
	plain := bytes.Repeat([]byte("text "), 2000)
	packed, err := message.Compress(message.CompressionZstd, plain)
	if err != nil {
		t.Fatal(err)
	}
	m.Body, m.SysFlag = packed, message.Compressed|message.CompressionZstd
	for _, p := range [][2]string{
		{message.PropertyKeys, "a b"}, {message.PropertyTags, "tag"}, {"mine", "ü = 1"},
		{"two\nlines", "x"}, {"lines", "1\r\n2"}, {"blank", " x "}, {"Nats-Rollup", "all"},
	} {
		m.SetProperty(p[0], p[1])
	}
	sendAll(t, s, []message.Message{m})
	got := j.messages("EDGE")[0]
	if got.Subject != "sluice.orders" || !bytes.Equal(got.Data, plain) {
		t.Errorf("subject %q, %d bytes", got.Subject, len(got.Data))
	}
	want := map[string]string{
		"Nats-Msg-Id": "KEY00007", HeaderKeys: "a b", HeaderTags: "tag", HeaderOrigin: "0/7/1700000000007", HeaderFlag: "3", "Sluice-Property-mine": "ü = 1",
		"Sluice-Property-Nats-Rollup": "all", HeaderProperties: "blank=+x+&lines=1%0D%0A2&two%0Alines=x",
		"Nats-Expected-Stream": "EDGE",
	}
	for name, value := range want {
		if got.Header.Get(name) != value {
			t.Errorf("header %s is %q, want %q", name, got.Header.Get(name), value)
		}
	}
	if len(got.Header) != len(want) {
		t.Errorf("headers %v", got.Header)
	}
}

func TestNATSSubjectTemplate(t *testing.T) {
	for _, tt := range []struct{ template, topic, want string }{
		{"", "orders", "sluice.orders"},
		{"site7.{topic}.q{queue}", "orders", "site7.orders.q3"},
		{"all", "orders", "all"},
		{"{topic}", "ns%orders|x", "ns%orders|x"},
		{"s.{topic}", "a.b *>", "s.a_b___"},
	} {
		s, err := NewNATS(NATSOptions{URL: "nats://127.0.0.1:4222", Subject: tt.template})
		if err != nil {
			t.Fatal(err)
		}
		if got := s.subject(tt.topic, 3); got != tt.want {
			t.Errorf("%q for %q: %q, want %q", tt.template, tt.topic, got, tt.want)
		}
		m := spooled(0, 1)[0]
		e := s.newEncoder()
		e.begin("x", tt.topic, 3)
		named := e.encode(&m).Header.Get(HeaderTopic)
		if lost := !strings.Contains(tt.want, tt.topic); lost != (named == tt.topic) {
			t.Errorf("%q for %q: header %q", tt.template, tt.topic, named)
		}
	}
}

func TestNATSDuplicatesAreStoredOnceAndCounted(t *testing.T) {
	j := startJetStream(t)
	var heard atomic.Int32
	s := toNATS(t, j, NATSOptions{
		Stream: "EDGE", Create: &StreamOptions{},
		OnDuplicate: func(topic string, queue int, m *message.Message) {
			if topic == "orders" && queue == 0 && len(m.Body) == 5 {
				heard.Add(1)
			}
		},
	})
	ms := spooled(0, 50)
	sendAll(t, s, ms[:30])
	sendAll(t, s, ms)
	if got := j.bodies("EDGE"); !slices.Equal(got, bodies(ms)) {
		t.Errorf("stored %v", got)
	}
	if st := s.Stats(); st.Duplicates != 30 || st.Stored != 80 || heard.Load() != 30 {
		t.Errorf("stats %+v, heard of %d", st, heard.Load())
	}
}

func TestNATSWithoutStreamSaysSo(t *testing.T) {
	j := startJetStream(t)
	s := toNATS(t, j, NATSOptions{Stream: "EDGE"})
	n, err := s.Send(t.Context(), "orders", 0, spooled(0, 3))
	if n != 0 || !errors.Is(err, ErrNoStream) || !errors.Is(err, ErrUnavailable) ||
		!strings.Contains(err.Error(), "sluice.orders") || !strings.Contains(err.Error(), "EDGE") {
		t.Errorf("%d, %v", n, err)
	}
	j.update(jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"sluice.>"}})
	n, err = s.Send(t.Context(), "orders", 0, spooled(0, 3))
	if n != 0 || !errors.Is(err, ErrNoStream) || !strings.Contains(err.Error(), "another stream") {
		t.Errorf("wrong stream: %d, %v", n, err)
	}
	j.update(jetstream.StreamConfig{Name: "OTHER", Subjects: []string{"other"}})
	j.update(jetstream.StreamConfig{Name: "EDGE", Subjects: []string{"sluice.>"}})
	sendAll(t, s, spooled(0, 3))
}

func TestNATSLeavesAnExistingStreamAsItIs(t *testing.T) {
	j := startJetStream(t)
	j.update(jetstream.StreamConfig{Name: "EDGE", Subjects: []string{"sluice.>"}, MaxMsgs: 1000, Duplicates: time.Minute})
	s := edge(t, j)
	sendAll(t, s, spooled(0, 3))
	j.admin(func(ctx context.Context, js jetstream.JetStream) {
		stream, err := js.Stream(ctx, "EDGE")
		if err != nil {
			t.Fatal(err)
		}
		if c := stream.CachedInfo().Config; c.MaxMsgs != 1000 || c.Duplicates != time.Minute {
			t.Errorf("config %+v", c)
		}
	})
}

func TestNATSCreatesStreamInFiles(t *testing.T) {
	j := startJetStream(t)
	s := toNATS(t, j, NATSOptions{
		Stream: "EDGE", Subject: "site.{topic}.{queue}",
		Create: &StreamOptions{Duplicates: time.Hour, MaxAge: 24 * time.Hour, MaxBytes: 1 << 20},
	})
	sendAll(t, s, spooled(0, 1))
	j.admin(func(ctx context.Context, js jetstream.JetStream) {
		stream, err := js.Stream(ctx, "EDGE")
		if err != nil {
			t.Fatal(err)
		}
		c := stream.CachedInfo().Config
		if c.Storage != jetstream.FileStorage || !slices.Equal(c.Subjects, []string{"site.*.*"}) ||
			c.Duplicates != time.Hour || c.MaxAge != 24*time.Hour || c.MaxBytes != 1<<20 || c.Replicas != 1 {
			t.Errorf("config %+v", c)
		}
	})
}

func TestNATSAcceptsAPrefixWhereverItFails(t *testing.T) {
	const count = 12
	j := startJetStream(t)
	for _, window := range []int{4096, 5} {
		for position := 1; position < count; position++ {
			t.Run(fmt.Sprintf("window %d, message %d", window, position), func(t *testing.T) {
				stream := fmt.Sprintf("EDGE-%d-%d", window, position)
				config := jetstream.StreamConfig{
					Name: stream, Subjects: []string{stream}, Discard: jetstream.DiscardNew,
					MaxMsgs: int64(position), // the stream is full then
				}
				j.update(config)
				s := toNATS(t, j, NATSOptions{Stream: stream, Subject: stream, MaxPending: window})
				ms := spooled(0, count)
				n, err := s.Send(t.Context(), "orders", 0, ms)
				var rejected *RejectedError
				if n != position || !errors.Is(err, ErrUnavailable) || errors.As(err, &rejected) {
					t.Fatalf("accepted %d: %v", n, err)
				}
				config.MaxMsgs = -1
				j.update(config)
				sendAll(t, s, ms[n:])
				if got := j.bodies(stream); !slices.Equal(got, bodies(ms)) {
					t.Errorf("stored %v", got)
				}
				if st := s.Stats(); st.Stored != count || st.Resent == 0 {
					t.Errorf("stats %+v", st)
				}
			})
		}
	}
}

func TestNATSRejectsWhatIsTooLarge(t *testing.T) {
	j := startJetStream(t)
	for name, limit := range map[string]int32{"server": -1, "stream": 1000} {
		for _, bad := range []int{0, 3, 9} {
			t.Run(fmt.Sprintf("%s, message %d", name, bad), func(t *testing.T) {
				stream := fmt.Sprintf("EDGE-%s-%d", name, bad)
				subject := strings.ToLower(stream)
				j.update(jetstream.StreamConfig{Name: stream, Subjects: []string{subject}, MaxMsgSize: limit})
				s := toNATS(t, j, NATSOptions{Stream: stream, Subject: subject})
				ms := spooled(0, 10)
				ms[bad].Body = make([]byte, 70<<10)
				if limit > 0 {
					ms[bad].Body = make([]byte, 1100)
				}
				n, err := s.Send(t.Context(), "orders", 0, ms)
				var rejected *RejectedError
				if n != bad || !errors.As(err, &rejected) || errors.Is(err, ErrUnavailable) {
					t.Fatalf("accepted %d: %v", n, err)
				}
				if bad+1 < len(ms) {
					sendAll(t, s, ms[bad+1:])
				}
				want := bodies(slices.Delete(slices.Clone(ms), bad, bad+1))
				if got := j.bodies(stream); !slices.Equal(got, want) {
					t.Errorf("stored %v", got)
				}
			})
		}
	}
}

func TestNATSFailsAtOnceWhileDisconnected(t *testing.T) {
	j := startJetStream(t)
	s := edge(t, j)
	sendAll(t, s, spooled(0, 3))
	j.stop()
	clienttest.Await(t, "the loss of the connection", func() bool {
		_, err := s.connected()
		return err != nil
	})
	if n, err := s.Send(t.Context(), "orders", 0, spooled(3, 6)); n != 0 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("%d, %v", n, err)
	}
	j.start()
	awaitConnected(t, s)
	sendAll(t, s, spooled(3, 6))
	if got := j.bodies("EDGE"); !slices.Equal(got, bodies(spooled(0, 6))) {
		t.Errorf("stored %v", got)
	}
}

func TestNATSKeepsOrderAcrossRestartsOfTheServer(t *testing.T) {
	j := startJetStream(t)
	s := edge(t, j)
	ms := spooled(0, 20000)
	kill, restarted := make(chan struct{}, 2), make(chan struct{})
	go func() {
		defer close(restarted)
		for range kill { // while the sender goes on
			j.stop()
			j.start()
		}
	}()
	kills := []int{6000, 12000}
	for sent := 0; sent < len(ms); {
		if len(kills) > 0 && sent >= kills[0] {
			kill <- struct{}{}
			kills = kills[1:]
		}
		n, err := s.Send(t.Context(), "orders", 0, ms[sent:min(sent+500, len(ms))])
		if err != nil && !errors.Is(err, ErrUnavailable) {
			t.Fatalf("after %d: %v", sent, err)
		}
		sent += n
		if err != nil {
			awaitConnected(t, s)
		}
	}
	close(kill)
	<-restarted
	j.admin(func(ctx context.Context, js jetstream.JetStream) {
		stream, err := js.OrderedConsumer(ctx, "EDGE", jetstream.OrderedConsumerConfig{})
		if err != nil {
			t.Fatal(err)
		}
		var got []string
		for len(got) < len(ms) {
			batch, err := stream.Fetch(1000, jetstream.FetchMaxWait(time.Second))
			if err != nil {
				t.Fatal(err)
			}
			before := len(got)
			for m := range batch.Messages() {
				got = append(got, string(m.Data()))
			}
			if len(got) == before {
				break
			}
		}
		if !slices.Equal(got, bodies(ms)) {
			t.Errorf("%d of %d messages, or in another order", len(got), len(ms))
		}
	})
}

func TestNATSRunsBeforeTheServerDoes(t *testing.T) {
	j := startJetStream(t)
	j.stop()
	s, err := NewNATS(NATSOptions{URL: j.url(), ReconnectWait: 10 * time.Millisecond, Stream: "EDGE", Create: &StreamOptions{}})
	if err != nil {
		t.Fatal(err)
	}
	if n, err := s.Send(t.Context(), "orders", 0, spooled(0, 1)); n != 0 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("not running: %d, %v", n, err)
	}
	running(t, s)
	if n, err := s.Send(t.Context(), "orders", 0, spooled(0, 1)); n != 0 || !errors.Is(err, ErrUnavailable) {
		t.Errorf("no server: %d, %v", n, err)
	}
	j.start()
	awaitConnected(t, s)
	sendAll(t, s, spooled(0, 3))
}

func TestNATSSendsManyQueuesAtOnce(t *testing.T) {
	j := startJetStream(t)
	s := toNATS(t, j, NATSOptions{
		Stream: "EDGE", Subject: "sluice.{topic}.{queue}", MaxPending: 64, Create: &StreamOptions{},
	})
	var all sync.WaitGroup
	for queue := range 6 {
		all.Go(func() {
			ms := spooled(queue*1000, queue*1000+300)
			for sent := 0; sent < len(ms); sent += 100 {
				if n, err := s.Send(t.Context(), "orders", queue, ms[sent:sent+100]); n != 100 || err != nil {
					t.Errorf("queue %d: %d, %v", queue, n, err)
				}
			}
		})
	}
	all.Wait()
	perSubject := make(map[string][]string)
	for _, m := range j.messages("EDGE") {
		perSubject[m.Subject] = append(perSubject[m.Subject], string(m.Data))
	}
	for subject, list := range perSubject {
		if len(list) != 300 || !slices.IsSorted(list) {
			t.Errorf("%s: %d messages", subject, len(list))
		}
	}
	if len(perSubject) != 6 {
		t.Errorf("%d subjects", len(perSubject))
	}
}

func TestNATSSendEndsWithItsContext(t *testing.T) {
	j := startJetStream(t)
	s := edge(t, j)
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	if n, err := s.Send(ctx, "orders", 0, spooled(0, 3)); n != 0 || !errors.Is(err, context.Canceled) {
		t.Errorf("%d, %v", n, err)
	}
}

func TestNewNATSChecksOptions(t *testing.T) {
	const url = "nats://127.0.0.1:4222"
	for name, o := range map[string]NATSOptions{
		"no url":          {},
		"wildcard":        {URL: url, Subject: "a.*"},
		"empty token":     {URL: url, Subject: "a..b"},
		"dot at the end":  {URL: url, Subject: "a."},
		"system subject":  {URL: url, Subject: "$JS.{topic}"},
		"nameless stream": {URL: url, Create: &StreamOptions{}},
		"pending":         {URL: url, MaxPending: -1},
	} {
		if _, err := NewNATS(o); err == nil {
			t.Errorf("%s: accepted", name)
		}
	}
}
