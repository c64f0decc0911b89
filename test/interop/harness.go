//go:build interop

package interop

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net"
	"net/http"
	"os"
	"path/filepath"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

const (
	bootTime = 60 * time.Second // for a JVM on a busy machine
	pollTime = 20 * time.Millisecond
)

// freePorts returns the first of count ports in a row, on loopback, that nobody
// uses: Apache's broker takes the port two below its own and the one above.
func freePorts(t *testing.T, count int) int {
	t.Helper()
	for range 100 {
		first, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			t.Fatal(err)
		}
		port := first.Addr().(*net.TCPAddr).Port
		held := []net.Listener{first}
		for i := 1; i < count; i++ {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", port+i))
			if err != nil {
				break
			}
			held = append(held, l)
		}
		for _, l := range held {
			_ = l.Close()
		}
		if len(held) == count {
			return port
		}
	}
	t.Fatal("no free ports")
	return 0
}

func loopback(port int) string { return fmt.Sprintf("127.0.0.1:%d", port) }

// eventually asks until ready answers nil. It is for servers that announce
// nothing; children that print are awaited by what they print.
func eventually(limit time.Duration, ready func(ctx context.Context) error) error {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	tick := time.NewTicker(pollTime)
	defer tick.Stop()
	for {
		err := ready(ctx)
		if err == nil {
			return nil
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", errTime, err)
		}
	}
}

// call asks one question over a connection of its own.
func call(ctx context.Context, addr string, code protocol.RequestCode, h protocol.Header) (*protocol.Command, error) {
	client := remoting.NewClient(remoting.ClientOptions{})
	ctx, cancel := context.WithTimeout(ctx, 3*time.Second)
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.Run(ctx)
	}()
	defer func() { cancel(); <-ended }()
	return client.Call(ctx, addr, protocol.NewRequest(code, h, nil))
}

// routed tells whether a name server knows a topic.
func routed(ctx context.Context, namesrv, topic string) error {
	resp, err := call(ctx, namesrv, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: topic})
	if err != nil {
		return err
	}
	return resp.Err()
}

// ready returns when a broker has registered at the name server.
func ready(t *testing.T, p *process, namesrv string) {
	t.Helper()
	err := eventually(bootTime, func(ctx context.Context) error {
		if !p.running() {
			return fmt.Errorf("%s ended: %w", p.name, p.wait(0))
		}
		return routed(ctx, namesrv, "TBW102")
	})
	if err != nil {
		t.Fatal(err)
	}
}

// A cluster is a name server and a broker, Apache's or ours, whose broker can
// be killed and started again on the same store and port.
type cluster struct {
	namesrv string // address
	broker  *process
	restart func(t *testing.T) *process
}

// startApache starts Apache's name server and broker with small files.
func startApache(t *testing.T) *cluster {
	t.Helper()
	return startApacheAt(t, t.TempDir())
}

// startApacheAt starts them in dir; the store is dir/broker/store. It has the
// file sizes of startSluiceCluster's.
func startApacheAt(t *testing.T, dir string) *cluster {
	t.Helper()
	port := freePorts(t, 5)
	namesrv := loopback(port)
	ns := start(t, "apache-namesrv", dir, nil, program(t, java), "namesrv", filepath.Join(dir, "namesrv"), fmt.Sprint(port))
	if err := ns.awaitText(bootTime, "boot success"); err != nil {
		t.Fatal(err)
	}
	c := &cluster{namesrv: namesrv}
	c.restart = func(t *testing.T) *process {
		t.Helper()
		b := start(t, "apache-broker", dir, nil, program(t, java), "broker", filepath.Join(dir, "broker"), fmt.Sprint(port+3), namesrv,
			"mappedFileSizeCommitLog=67108864", "mappedFileSizeConsumeQueue=6000000", "maxIndexNum=400000", "maxHashSlotNum=100000",
			"mappedFileSizeTimerLog=1048576", "waitTimeMillsInSendQueue=2000")
		if err := b.awaitText(bootTime, "boot success"); err != nil {
			t.Fatal(err)
		}
		ready(t, b, namesrv)
		c.broker = b
		return b
	}
	c.restart(t)
	return c
}

// startSluiceCluster starts our name server and broker, as one process each, so
// that the broker can be killed alone.
func startSluiceCluster(t *testing.T) *cluster {
	t.Helper()
	return startSluiceAt(t, t.TempDir())
}

// startSluiceAt starts them in dir; the store is dir/broker/broker.
func startSluiceAt(t *testing.T, dir string) *cluster {
	t.Helper()
	namesrv, broker := loopback(freePorts(t, 1)), loopback(freePorts(t, 1))
	start(t, "sluice-namesrv", dir, nil, program(t, sluice), "run", "-c", writeConfig(t, dir, "namesrv.yaml", fmt.Sprintf(`
roles: [namesrv]
data: %s
namesrv: {listen: %s}
`, filepath.Join(dir, "namesrv"), namesrv)))
	config := writeConfig(t, dir, "broker.yaml", fmt.Sprintf(`
roles: [broker]
data: %s
broker: {listen: %s, namesrv: [%s], flush: sync, store: {segment: 64MiB}}
`, filepath.Join(dir, "broker"), broker, namesrv))
	c := &cluster{namesrv: namesrv}
	c.restart = func(t *testing.T) *process {
		t.Helper()
		b := start(t, "sluice-broker", dir, nil, program(t, sluice), "run", "-c", config)
		ready(t, b, namesrv)
		c.broker = b
		return b
	}
	c.restart(t)
	return c
}

func writeConfig(t *testing.T, dir, name, text string) string {
	t.Helper()
	path := filepath.Join(dir, name)
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// A sidecar is our sidecar with both doors open.
type sidecar struct {
	rocketmq string // address of the RocketMQ door, to be used as name server
	http     string // http://…
	process  *process
	restart  func(t *testing.T) *process
}

// startSidecar starts one whose single lane leads every topic to the upstream,
// given as the YAML of its options.
func startSidecar(t *testing.T, upstream string) *sidecar {
	t.Helper()
	dir := t.TempDir()
	s := &sidecar{rocketmq: loopback(freePorts(t, 1))}
	door := loopback(freePorts(t, 1))
	s.http = "http://" + door
	config := writeConfig(t, dir, "sidecar.yaml", fmt.Sprintf(`
roles: [sidecar]
data: %s
sidecar:
  flush: sync
  store: {segment: 16MiB, max_bytes: 1GiB}
  doors: {rocketmq: {listen: %s}, http: {listen: %s}}
  upstreams:
    up: %s
  lanes: [{topics: ["*"], upstream: up}]
`, filepath.Join(dir, "data"), s.rocketmq, door, upstream))
	s.restart = func(t *testing.T) *process {
		t.Helper()
		p := start(t, "sluice-sidecar", dir, nil, program(t, sluice), "run", "-c", config)
		err := eventually(bootTime, func(ctx context.Context) error {
			if !p.running() {
				return fmt.Errorf("%s ended: %w", p.name, p.wait(0))
			}
			_, err := fetch(ctx, s.http+"/readyz")
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
		s.process = p
		return p
	}
	s.restart(t)
	return s
}

// fetch returns what an HTTP address answers with 200.
func fetch(ctx context.Context, url string) (string, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, url, nil)
	if err != nil {
		return "", err
	}
	resp, err := http.DefaultClient.Do(req)
	if err != nil {
		return "", err
	}
	defer resp.Body.Close()
	text, err := io.ReadAll(resp.Body)
	if err == nil && resp.StatusCode != http.StatusOK {
		err = errors.New(resp.Status)
	}
	return string(text), err
}

// A natsServer is a real nats-server with JetStream on disk, as a process of
// its own, so that it can be killed and started again.
type natsServer struct {
	url     string
	process *process
	restart func(t *testing.T) *process
}

func startNATS(t *testing.T) *natsServer {
	t.Helper()
	dir := t.TempDir()
	port := freePorts(t, 1)
	n := &natsServer{url: fmt.Sprintf("nats://127.0.0.1:%d", port)}
	n.restart = func(t *testing.T) *process {
		t.Helper()
		p := start(t, "nats-server", dir, nil, program(t, natsd), "-a", "127.0.0.1", "-p", fmt.Sprint(port), "-js", "-sd", dir)
		if err := p.awaitText(bootTime, "Server is ready"); err != nil {
			t.Fatal(err)
		}
		n.process = p
		return p
	}
	n.restart(t)
	return n
}
