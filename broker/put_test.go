package broker

import (
	"context"
	"net/netip"
	"strings"
	"sync"
	"testing"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/spool"
	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

var somewhere = netip.MustParseAddrPort("192.0.2.1:4711")

// TestPut: what another door puts is durable on return, goes to one queue, and
// its results lead to the records.
func TestPut(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	results, err := e.broker.Put(t.Context(), "t", somewhere, []message.Message{
		{QueueID: -1, Body: []byte("a"), Properties: []byte("KEYS\x01k\x02")},
		{QueueID: -1, Body: []byte("b"), Properties: []byte("UNIQ_KEY\x01mine\x02")},
	})
	if err != nil || len(results) != 2 {
		t.Fatalf("%v, %v", results, err)
	}
	if results[0].QueueID != results[1].QueueID || results[0].QueueOffset != 0 || results[1].QueueOffset != 1 || results[1].UniqueKey != "mine" {
		t.Errorf("results %+v", results)
	}
	queue := results[0].QueueID
	e.awaitMax("t", queue, 2)
	for i, m := range e.pullAll("t", queue, 0) {
		if m.PhysicalOffset != results[i].PhysicalOffset || property(&m, message.PropertyUniqueKey) != results[i].UniqueKey || m.BornHost != somewhere {
			t.Errorf("message %d: offset %d, key %q, from %v; result %+v", i, m.PhysicalOffset, property(&m, message.PropertyUniqueKey), m.BornHost, results[i])
		}
	}
	if got := e.broker.Totals(); got.Stored != 2 || got.StoredBytes < 2*91 {
		t.Errorf("counted: %+v", got)
	}
}

// TestPutRefusals: with a code that refuses, none of the messages is stored.
func TestPutRefusals(t *testing.T) {
	e := start(t, t.TempDir(), func(o *Options, _ *spool.Options) { o.MaxMessageBytes = 100 })
	good := message.Message{QueueID: -1, Body: []byte("good")}
	for name, c := range map[string]struct {
		topic string
		bad   message.Message
		code  protocol.ResponseCode
	}{
		"topic":      {"../t", good, protocol.InvalidParameter},
		"forbidden":  {message.TopicSelfTest, good, protocol.NoPermission},
		"queue":      {"t", message.Message{QueueID: 99, Body: []byte("x")}, protocol.InvalidParameter},
		"size":       {"t", message.Message{Body: filled(101, "x")}, protocol.MessageIllegal},
		"delay":      {"t", message.Message{Properties: []byte("DELAY\x011\x02")}, protocol.MessageIllegal},
		"properties": {"t", message.Message{Properties: []byte("long\x01" + strings.Repeat("v", 40000) + "\x02")}, protocol.MessageIllegal},
		"no key":     {"t", message.Message{Properties: []byte(propertiesOf(32767, false))}, protocol.MessageIllegal},
	} {
		_, err := e.broker.Put(t.Context(), c.topic, somewhere, []message.Message{good, c.bad, good})
		if got := protocol.AsError(err); got == nil || got.Code != c.code {
			t.Errorf("%s: %v, want code %d", name, err, c.code)
		}
	}
	if st := e.spool.Stats(); st.MaxOffset != st.MinOffset {
		t.Errorf("%d bytes were stored", st.MaxOffset-st.MinOffset)
	}
}

// TestPutThatCannotWait: a caller that gives up learns that the fate of its
// messages is open.
func TestPutThatCannotWait(t *testing.T) {
	dir := t.TempDir()
	disk, onDisk := faultyDisk(t, dir)
	e := start(t, dir, onDisk)
	e.createTopic("t", 1)
	flush := make(chan struct{})
	release := sync.OnceFunc(func() { close(flush) })
	defer release()
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	disk.SetHook(onLog(faultfs.Sync, func(faultfs.Op) error { cancel(); <-flush; return nil }))
	// The first caller may find itself doing the flush; the second waits for it.
	first := make(chan error, 1)
	go func() {
		_, err := e.broker.Put(context.Background(), "t", somewhere, []message.Message{{Body: []byte("a")}})
		first <- err
	}()
	<-ctx.Done()
	_, err := e.broker.Put(ctx, "t", somewhere, []message.Message{{Body: []byte("b")}})
	if e := protocol.AsError(err); e == nil || e.Code != protocol.SystemError {
		t.Errorf("error is %v, want one that does not refuse", err)
	}
	release()
	if err := receive(t, first, "end of the first put"); err != nil {
		t.Error(err)
	}
	e.awaitMax("t", 0, 2)
}

// TestWithoutDoor: an engine that only other doors feed has no address, and
// lives and ends like any other.
func TestWithoutDoor(t *testing.T) {
	dir := t.TempDir()
	sp, err := spool.Open(spool.Options{Dir: dir, SegmentBytes: 1 << 20})
	if err != nil {
		t.Fatal(err)
	}
	b, err := New(Options{Dir: dir, AutoCreateTopics: true}, sp)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	defer cancel()
	var running sync.WaitGroup
	running.Go(func() {
		if err := b.Run(ctx); err != nil {
			t.Error(err)
		}
	})
	if b.Addr().IsValid() {
		t.Errorf("address %v", b.Addr())
	}
	if _, err := b.Put(ctx, "t", somewhere, []message.Message{{QueueID: -1, Body: []byte("x")}}); err != nil {
		t.Error(err)
	}
	cancel()
	running.Wait()
	if err := sp.Close(); err != nil {
		t.Error(err)
	}
}
