package broker

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/spool"
	"github.com/sluicemq/sluice/spool/segment/faultfs"
)

// faultyDisk is a file system for the files of dir that can fail, and what puts
// an engine on it.
func faultyDisk(t *testing.T, dir string) (*faultfs.FS, func(*Options, *spool.Options)) {
	t.Helper()
	disk, err := faultfs.New(dir)
	if err != nil {
		t.Fatal(err)
	}
	return disk, func(o *Options, so *spool.Options) { o.FS, so.FS = disk, disk }
}

// onLog makes a hook that concerns one kind of call on the commit log's files.
func onLog(kind faultfs.Kind, f func(op faultfs.Op) error) func(faultfs.Op) *faultfs.Fault {
	return func(op faultfs.Op) *faultfs.Fault {
		if op.Kind != kind || !strings.Contains(op.Name, "commitlog") {
			return nil
		}
		if err := f(op); err != nil {
			return &faultfs.Fault{Err: err, Written: op.Len / 2}
		}
		return nil
	}
}

// blockFlush makes every flush of the log wait until release is called.
func blockFlush(disk *faultfs.FS) (release func()) {
	flush := make(chan struct{})
	disk.SetHook(onLog(faultfs.Sync, func(faultfs.Op) error { <-flush; return nil }))
	return sync.OnceFunc(func() { close(flush) })
}

// TestUndurableMessageIsNeitherAcknowledgedNorRead (fault F04): while the flush
// of a message hangs, its sender waits, and no reader sees it, not even one that
// waits for it.
func TestUndurableMessageIsNeitherAcknowledgedNorRead(t *testing.T) {
	dir := t.TempDir()
	disk, onDisk := faultyDisk(t, dir)
	e := start(t, dir, onDisk)
	e.createTopic("t", 1)
	reader, sender := e.join(t), e.join(t)
	held := reader.later(protocol.PullMessage, pullHeader("t", 0, 0, "*", time.Minute), nil)

	release := blockFlush(disk)
	defer release()
	before := e.spool.Stats().MaxOffset
	sent := sender.later(protocol.SendMessageV2, sendHeader("t", 0, ""), []byte("undurable"))
	eventually(t, "the message is in the log", func() bool {
		e.offset(protocol.GetMaxOffset, "t", 0)
		return e.spool.Stats().MaxOffset != before
	})
	// It is in the log now. Many round trips later nobody has been told.
	for range 50 {
		if got := e.offset(protocol.GetMaxOffset, "t", 0); got != 0 {
			t.Fatalf("the queue ends at %d while the message is not durable", got)
		}
		if got := e.pull(pullHeader("t", 0, 0, "*", 0)); got.code != protocol.PullNotFound || len(got.messages) != 0 {
			t.Fatalf("pull gives code %d and %d messages", got.code, len(got.messages))
		}
	}
	select {
	case answer := <-sent:
		t.Fatalf("the send is answered with %d before its flush", answer.Code)
	case answer := <-held:
		t.Fatalf("the held pull is answered with %d before the flush", answer.Code)
	default:
	}

	release()
	sender.want(sender.await(sent), protocol.Success)
	got := reader.decodePull(reader.await(held))
	if len(got.messages) != 1 || string(got.messages[0].Body) != "undurable" {
		t.Fatalf("the held pull gives code %d and %q", got.code, bodies(got.messages))
	}
}

// TestSendThatNeedNotWait: WAIT=false asks for an answer before the flush. The
// message is no more readable for it.
func TestSendThatNeedNotWait(t *testing.T) {
	dir := t.TempDir()
	disk, onDisk := faultyDisk(t, dir)
	e := start(t, dir, onDisk)
	e.createTopic("t", 1)
	release := blockFlush(disk)
	defer release()
	e.mustSend("t", 0, "WAIT\x01false\x02", "answered at once")
	if got := e.offset(protocol.GetMaxOffset, "t", 0); got != 0 {
		t.Errorf("the queue ends at %d while the message is not durable", got)
	}
	release()
	e.awaitMax("t", 0, 1)
	if got := bodies(e.pullAll("t", 0, 0)); len(got) != 1 || got[0] != "answered at once" {
		t.Errorf("the queue holds %q", got)
	}
}

// TestFailedFlushStopsSends: after a flush that failed nothing is known about
// the disk, so sends are refused with the code that sends clients elsewhere,
// and reads go on.
func TestFailedFlushStopsSends(t *testing.T) {
	dir := t.TempDir()
	disk, onDisk := faultyDisk(t, dir)
	e := start(t, dir, onDisk)
	e.storeFails = true
	e.mustSend("t", 0, "", "durable")
	disk.SetHook(onLog(faultfs.Sync, func(faultfs.Op) error { return syscall.EIO }))
	e.want(e.send("t", 0, "", "lost"), protocol.ServiceNotAvailable)
	disk.SetHook(nil)
	e.want(e.send("t", 0, "", "refused"), protocol.ServiceNotAvailable)
	e.awaitMax("t", 0, 1)
	if got := bodies(e.pullAll("t", 0, 0)); len(got) != 1 || got[0] != "durable" {
		t.Errorf("the queue holds %q", got)
	}
}

// TestRefusedSendsAreNotStored (fault F51): whatever the disk does, a message
// whose send was answered with an error is not in the log, one that was
// acknowledged is there once, and so it stays after a restart and after a crash.
func TestRefusedSendsAreNotStored(t *testing.T) {
	const senders, each = 4, 60
	dir := t.TempDir()
	disk, onDisk := faultyDisk(t, dir)
	e := start(t, dir, func(o *Options, so *spool.Options) {
		onDisk(o, so)
		so.SegmentBytes = 256 << 10
	})
	e.createTopic("t", senders)
	var writes atomic.Int64
	disk.SetHook(onLog(faultfs.Write, func(faultfs.Op) error {
		switch n := writes.Add(1); {
		case n%7 == 3:
			return syscall.EIO
		case n%11 == 5:
			return syscall.ENOSPC
		}
		return nil
	}))
	outcome := make([]map[string]bool, senders) // body → acknowledged
	var sending sync.WaitGroup
	for s := range senders {
		outcome[s] = map[string]bool{}
		p := e.join(t)
		sending.Go(func() { outcome[s] = sendMany(p, int32(s), each) })
	}
	sending.Wait()
	disk.SetHook(nil)
	refused := 0
	for s := range senders {
		for _, stored := range outcome[s] {
			if !stored {
				refused++
			}
		}
	}
	if refused == 0 || refused == senders*each {
		t.Fatalf("%d of %d sends were refused: the test tests nothing", refused, senders*each)
	}
	crashed := e.crashCopy(t)
	checkOutcome(t, e, outcome)
	e.stop()
	for name, at := range map[string]string{"restart": dir, "crash": crashed} {
		t.Run(name, func(t *testing.T) {
			checkOutcome(t, start(t, at, func(_ *Options, so *spool.Options) { so.SegmentBytes = 256 << 10 }), outcome)
		})
	}
}

// sendMany sends single messages and batches of three and says which bodies
// were acknowledged.
func sendMany(p *peer, queue int32, count int) map[string]bool {
	outcome := map[string]bool{}
	for i := range count {
		if i%5 == 4 {
			names := []string{fmt.Sprintf("%d/%d/a", queue, i), fmt.Sprintf("%d/%d/b", queue, i), fmt.Sprintf("%d/%d/c", queue, i)}
			answer := p.sendBatch("t", queue, batchOf(p.t, names...))
			for _, name := range names {
				outcome[name] = answer.ResponseCode() == protocol.Success
			}
			continue
		}
		name := fmt.Sprintf("%d/%d", queue, i)
		answer := p.send("t", queue, "", string(filled(3000, name)))
		outcome[name] = answer.ResponseCode() == protocol.Success
	}
	return outcome
}

func checkOutcome(t *testing.T, e *engine, outcome []map[string]bool) {
	t.Helper()
	for queue := range outcome {
		acknowledged := 0
		for _, stored := range outcome[queue] {
			if stored {
				acknowledged++
			}
		}
		e.awaitMax("t", int32(queue), int64(acknowledged))
		seen := map[string]int{}
		for i, m := range e.pullAll("t", int32(queue), 0) {
			seen[strings.TrimRight(string(m.Body), ".")]++
			if m.QueueOffset != int64(i) {
				t.Errorf("queue %d: message %d has offset %d", queue, i, m.QueueOffset)
			}
		}
		for name, stored := range outcome[queue] {
			if want := map[bool]int{true: 1}[stored]; seen[name] != want {
				t.Errorf("%s: acknowledged %v, in the log %d times", name, stored, seen[name])
			}
			delete(seen, name)
		}
		for name := range seen {
			t.Errorf("nobody sent %q", name)
		}
	}
}

// TestFullDiskRefusesUntilThereIsRoom: a message that does not fit gets code 14
// and what is stored stays readable; when there is room sends go on without a
// restart.
func TestFullDiskRefusesUntilThereIsRoom(t *testing.T) {
	dir := t.TempDir()
	disk, onDisk := faultyDisk(t, dir)
	e := start(t, dir, onDisk)
	e.mustSend("t", 0, "", "before")
	disk.SetHook(onLog(faultfs.Write, func(faultfs.Op) error { return fmt.Errorf("disk: %w", syscall.ENOSPC) }))
	answer := e.send("t", 0, "", "refused")
	e.want(answer, protocol.ServiceNotAvailable)
	if !strings.Contains(answer.Remark, "space") {
		t.Errorf("the remark %q does not say what is missing", answer.Remark)
	}
	e.createGroup("g")
	e.want(e.commit("t", "g", 0, 1), protocol.Success)
	disk.SetHook(nil)
	e.mustSend("t", 0, "", "after")
	e.awaitMax("t", 0, 2)
	if got := strings.Join(bodies(e.pullAll("t", 0, 0)), " "); got != "before after" {
		t.Errorf("the queue holds %q", got)
	}
}

// TestBrokenTableDoesNotSwallowAChange: a change whose file cannot be written is
// refused and not half there.
func TestBrokenTableDoesNotSwallowAChange(t *testing.T) {
	dir := t.TempDir()
	disk, _ := faultyDisk(t, dir)
	e := start(t, dir, func(o *Options, _ *spool.Options) { o.FS = disk })
	disk.SetHook(func(op faultfs.Op) *faultfs.Fault {
		if op.Kind == faultfs.Write {
			return &faultfs.Fault{Err: errors.New("device gone")}
		}
		return nil
	})
	e.want(e.call(protocol.UpdateAndCreateTopic, topicHeader("t", 1), nil), protocol.SystemError)
	e.want(e.send("u", 0, "", "x"), protocol.SystemError)
	e.want(e.call(protocol.UpdateAndCreateSubscriptionGroup, nil, groupBody(t, "g")), protocol.SystemError)
	disk.SetHook(nil)
	for _, topic := range []string{"t", "u"} {
		e.want(e.call(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: topic}, nil), protocol.TopicNotExist)
	}
	e.want(e.call(protocol.GetSubscriptionGroupConfig, &protocol.GetSubscriptionGroupConfigRequest{Group: "g"}, nil),
		protocol.SubscriptionGroupNotExist)
	e.createTopic("t", 1)
	e.mustSend("u", 0, "", "x")
}

// TestPowerCut (faults F04 and F09): whatever of the undurable bytes a power cut
// takes, each acknowledged message is there once and in order, topics and groups
// are as they were answered, no group is beyond its queue's end for good, and
// the broker goes on.
func TestPowerCut(t *testing.T) {
	dir := t.TempDir()
	disk, onDisk := faultyDisk(t, dir)
	e := start(t, dir, func(o *Options, so *spool.Options) {
		onDisk(o, so)
		so.SegmentBytes = 256 << 10
	})
	e.createTopic("t", 2)
	e.createGroup("g")
	var sent []string
	var cuts []string
	rng := rand.New(rand.NewPCG(1, 2))
	for i := range 12 {
		for j := range 20 {
			sent = append(sent, fmt.Sprintf("%d/%d", i, j))
			e.mustSend("t", 1, "", string(filled(1000, sent[len(sent)-1])))
		}
		e.want(e.commit("t", "g", 1, int64(len(sent))), protocol.Success)
		// What nobody waited for may be lost.
		e.mustSend("t", 0, "WAIT\x01false\x02", "unsure")
		cut := filepath.Join(t.TempDir(), "cut")
		if err := disk.Crash(rng, cut); err != nil {
			t.Fatal(err)
		}
		cuts = append(cuts, cut)
	}
	e.stop()
	for i, cut := range cuts {
		again := start(t, cut, func(_ *Options, so *spool.Options) { so.SegmentBytes = 256 << 10 })
		want := sent[:20*(i+1)]
		again.awaitMax("t", 1, int64(len(want)))
		got := bodies(again.pullAll("t", 1, 0))
		for j := range got {
			got[j] = strings.TrimRight(got[j], ".")
		}
		if !slices.Equal(got, want) {
			t.Errorf("cut %d: %d messages, want %d, or others", i, len(got), len(want))
		}
		again.must(protocol.GetSubscriptionGroupConfig, &protocol.GetSubscriptionGroupConfigRequest{Group: "g"}, nil)
		if at, ok := again.committed("t", "g", 1, protocol.Some(false)); ok && at > int64(len(want)) {
			t.Errorf("cut %d: the group is at %d, the queue ends at %d", i, at, len(want))
		}
		if next := again.mustSend("t", 1, "", "on"); next.QueueOffset != int64(len(want)) {
			t.Errorf("cut %d: the next message has offset %d, want %d", i, next.QueueOffset, len(want))
		}
		again.stop()
	}
}
