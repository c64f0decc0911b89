package clients_test

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"go.uber.org/goleak"

	"github.com/sluicemq/sluice/broker/clients"
	"github.com/sluicemq/sluice/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fakeConn is a client's connection that counts what is pushed to it.
type fakeConn struct {
	id     uint64
	ctx    context.Context
	cancel context.CancelFunc
	broken bool

	mu     sync.Mutex
	pushed []string // groups named by requests 40
	closed bool
}

func newConn(id uint64) *fakeConn {
	ctx, cancel := context.WithCancel(context.Background())
	return &fakeConn{id: id, ctx: ctx, cancel: cancel}
}

func (c *fakeConn) ID() uint64               { return c.id }
func (c *fakeConn) Context() context.Context { return c.ctx }
func (c *fakeConn) RemoteAddr() netip.AddrPort {
	return netip.AddrPortFrom(netip.AddrFrom4([4]byte{10, 0, 0, byte(c.id)}), 40000)
}

func (c *fakeConn) OneWay(push *protocol.Command) error {
	var h protocol.NotifyConsumerIDsChangedRequest
	if push.RequestCode() != protocol.NotifyConsumerIDsChanged {
		return errors.New("not a request 40")
	}
	if err := push.DecodeHeader(&h); err != nil {
		return err
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pushed = append(c.pushed, h.ConsumerGroup)
	if c.broken {
		return errors.New("broken pipe")
	}
	return nil
}

func (c *fakeConn) Close() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.closed = true
}

func (c *fakeConn) isClosed() bool {
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.closed
}

// pushes returns how often the client was told since the last call.
func (c *fakeConn) pushes() int {
	c.mu.Lock()
	defer c.mu.Unlock()
	n := len(c.pushed)
	c.pushed = nil
	return n
}

// end closes the connection as remoting does.
func (c *fakeConn) end(table *clients.Table) {
	c.cancel()
	table.ConnClosed(c)
}

// logged collects log lines.
type logged struct {
	mu  sync.Mutex
	buf bytes.Buffer
}

func (l *logged) Write(p []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.buf.Write(p)
}

func (l *logged) count(text string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.buf.String(), text)
}

func (l *logged) logger() *slog.Logger { return slog.New(slog.NewTextHandler(l, nil)) }

func sub(topic, expression string, version int64) protocol.SubscriptionData {
	return protocol.SubscriptionData{Topic: topic, SubString: expression, SubVersion: version, ExpressionType: protocol.ExpressionTag}
}

func consumer(group string, subs ...protocol.SubscriptionData) protocol.ConsumerData {
	return protocol.ConsumerData{
		GroupName: group, ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
		ConsumeFromWhere: protocol.ConsumeFromLastOffset, SubscriptionDataSet: subs,
	}
}

func heartbeat(client string, consumers ...protocol.ConsumerData) *protocol.HeartbeatData {
	return &protocol.HeartbeatData{ClientID: client, ConsumerDataSet: consumers}
}

func produce(client string, groups ...string) *protocol.HeartbeatData {
	hb := &protocol.HeartbeatData{ClientID: client}
	for _, g := range groups {
		hb.ProducerDataSet = append(hb.ProducerDataSet, protocol.ProducerData{GroupName: g})
	}
	return hb
}

var java = clients.Client{Language: protocol.LanguageJava, Version: 479}

func beat(t *testing.T, table *clients.Table, c clients.Conn, hb *protocol.HeartbeatData) (subChange bool) {
	t.Helper()
	subChange, err := table.Heartbeat(c, java, hb)
	if err != nil {
		t.Fatal(err)
	}
	return subChange
}
