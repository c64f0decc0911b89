package broker

import (
	"fmt"
	"net"
	"path/filepath"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool"
	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// TestBusyRequestsAreTurnedAway (fault F50): operator requests that pile up
// behind a slow disk are refused with code 2 at once, and everything else goes
// on meanwhile.
func TestBusyRequestsAreTurnedAway(t *testing.T) {
	dir := t.TempDir()
	disk, _ := faultyDisk(t, dir)
	e := start(t, dir, func(o *Options, _ *spool.Options) { o.FS = disk })
	// Not by request 17: its place might not be free again when the test begins.
	e.mustSend("t", 0, "", "x")
	slow := make(chan struct{})
	release := sync.OnceFunc(func() { close(slow) })
	defer release()
	disk.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Write && strings.HasPrefix(filepath.Base(op.Name), "topics.json") {
			<-slow
		}
		return nil
	})
	operator := e.join(t)
	const asked = adminLimit + 10
	answers := make([]<-chan *protocol.Command, asked)
	for i := range answers {
		answers[i] = operator.later(protocol.UpdateAndCreateTopic, topicHeader(fmt.Sprint("made", i), 1), nil)
	}
	// Refusals come at once; no others can while the disk is slow.
	for _, answer := range answers[adminLimit:] {
		got := operator.await(answer)
		operator.want(got, protocol.SystemBusy)
		if !strings.HasPrefix(got.Remark, "[REJECTREQUEST]") {
			t.Errorf("remark %q", got.Remark)
		}
	}
	e.mustSend("t", 0, "", "y")
	e.awaitMax("t", 0, 2)
	if got := e.pullAll("t", 0, 0); len(got) != 2 {
		t.Errorf("%d messages", len(got))
	}
	e.heartbeatOfKnownGroup()
	release()
	for i, answer := range answers[:adminLimit] {
		operator.want(operator.await(answer), protocol.Success)
		e.must(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: fmt.Sprint("made", i)}, nil)
	}
	e.want(e.call(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: fmt.Sprint("made", asked-1)}, nil), protocol.TopicNotExist)
}

// heartbeatOfKnownGroup sends a heartbeat that has nothing to create.
func (e *engine) heartbeatOfKnownGroup() {
	e.t.Helper()
	e.want(e.beat(protocol.HeartbeatData{ClientID: "c", ProducerDataSet: []protocol.ProducerData{{GroupName: "p"}}}), protocol.Success)
}

// TestConsumersThatDoNotRead (fault F50): connections that ask for much and take
// nothing cost bounded memory and hold up nobody.
func TestConsumersThatDoNotRead(t *testing.T) {
	e := start(t, t.TempDir(), func(_ *Options, so *spool.Options) { so.SegmentBytes, so.Flush = 16<<20, spool.FlushAsync })
	e.createTopic("t", 1)
	for range 4 {
		e.mustSend("t", 0, "", string(filled(60<<10, "x")))
	}
	e.awaitMax("t", 0, 4)
	var pulls []byte
	for i := range 200 { // 48 MB of answers
		req := protocol.NewRequest(protocol.PullMessage, pullHeader("t", 0, 0, "*", 0), nil)
		req.Opaque = int32(i)
		pulls = req.AppendTo(pulls)
	}
	for range 20 {
		w := e.dial(t)
		if err := w.Conn.(*net.TCPConn).SetReadBuffer(4 << 10); err != nil {
			t.Fatal(err)
		}
		w.write(pulls)
	}
	began := time.Now()
	for i := range 100 {
		e.mustSend("t", 0, "", fmt.Sprint(i))
	}
	e.awaitMax("t", 0, 104)
	if got := e.pull(pullHeader("t", 0, 4, "*", 0)); len(got.messages) != 32 {
		t.Errorf("%d messages, code %d", len(got.messages), got.code)
	}
	if took := time.Since(began); took > patience/2 {
		t.Errorf("others took %v", took)
	}
	// What these pulls would be answered with is 20 × 48 MB. A connection
	// collects one burst at a time, and its peer's window holds the rest back.
	if got := e.broker.Totals().PulledBytes; got > 20*16<<20 {
		t.Errorf("%d bytes were made for connections that read none", got)
	}
}
