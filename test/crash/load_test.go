package crash

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"math/rand/v2"
	"net/http"
	"sync"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

const (
	topic       = "crash"
	queues      = 4
	inFlight    = 64 // of one connection
	connections = 3
)

// A load is several connections that send as fast as they are answered, each
// until its first failure.
type load struct {
	t      *testing.T
	ledger *ledger
	stop   context.CancelFunc
	group  sync.WaitGroup
	failed chan struct{} // closed when a send was answered wrongly
	fail   func()

	// full is closed by the first send that is refused because the spool is at
	// its limit. nil: none may be.
	full chan struct{}
	once sync.Once
}

// startLoad sends to a RocketMQ address and, where there is one, to an HTTP
// address. full may be nil, see load.
func startLoad(t *testing.T, l *ledger, rocketmq, door string, full chan struct{}) *load {
	ctx, cancel := context.WithTimeout(t.Context(), patience)
	w := &load{t: t, ledger: l, stop: cancel, failed: make(chan struct{}), full: full}
	w.fail = sync.OnceFunc(func() { close(w.failed) })
	for range connections {
		w.group.Go(func() { w.pipeline(ctx, rocketmq) })
	}
	if door != "" {
		for i := range connections {
			w.group.Go(func() { w.posts(ctx, door, i%2 == 1) })
		}
	}
	return w
}

// end waits until every connection has its answers, or has failed.
func (w *load) end() {
	w.stop()
	w.group.Wait()
}

// await waits for acknowledgements; the load must be able to bring them.
func (w *load) await(reached <-chan struct{}) {
	w.t.Helper()
	late := time.NewTimer(patience)
	defer late.Stop()
	select {
	case <-reached:
	case <-w.failed:
		w.t.FailNow()
	case <-late.C:
		w.t.Fatal("no more acknowledgements come")
	}
}

// wrong fails the test for an answer that no send should get.
func (w *load) wrong(err error) {
	w.t.Error(err)
	w.fail()
	w.stop()
}

// refused notes that the spool is full, and tells whether it may be.
func (w *load) refused() bool {
	if w.full != nil {
		w.once.Do(func() { close(w.full) })
	}
	return w.full != nil
}

// pipeline keeps many sends under way on one connection.
func (w *load) pipeline(ctx context.Context, addr string) {
	client := remoting.NewClient(remoting.ClientOptions{})
	running, stop := context.WithCancel(context.WithoutCancel(ctx))
	ended := make(chan struct{})
	go func() {
		defer close(ended)
		_ = client.Run(running)
	}()
	defer func() { stop(); <-ended }()
	answers, cancel := context.WithTimeout(running, patience)
	defer cancel()
	slots := make(chan struct{}, inFlight)
	failed := make(chan struct{})
	fail := sync.OnceFunc(func() { close(failed) })
	for sending := true; sending; {
		select {
		case slots <- struct{}{}:
			keys, cmd := w.sendRequest()
			client.CallAsync(answers, addr, cmd, func(answer *protocol.Command, err error) {
				if err != nil || !w.answered(keys, answer) {
					fail()
				}
				<-slots
			})
		case <-failed:
			sending = false
		case <-ctx.Done():
			sending = false
		}
	}
	for range inFlight { // what is under way gets its answer, or fails
		slots <- struct{}{}
	}
}

// sendRequest makes a send of one message, at times of several as a batch.
func (w *load) sendRequest() (keys []string, cmd *protocol.Command) {
	header := &protocol.SendMessageRequestV2{
		ProducerGroup: []byte("crash"), Topic: []byte(topic), DefaultTopic: []byte(message.TopicAutoCreate),
		DefaultTopicQueueNums: queues, QueueID: rand.Int32N(queues), BornTimestamp: time.Now().UnixMilli(),
	}
	if rand.IntN(10) > 0 {
		keys = w.ledger.nextKeys(1)
		header.Properties = properties(keys[0])
		return keys, protocol.NewRequest(protocol.SendMessageV2, header, newBody(keys[0], randomSize()))
	}
	keys = w.ledger.nextKeys(2 + rand.IntN(4))
	header.Batch = true
	var body []byte
	for _, key := range keys {
		var err error
		if body, err = message.AppendBatchEntry(body, &message.Message{Body: newBody(key, rand.IntN(2000)), Properties: properties(key)}); err != nil {
			w.t.Error(err)
		}
	}
	return keys, protocol.NewRequest(protocol.SendBatchMessage, header, body)
}

// answered enters an answer in the ledger.
func (w *load) answered(keys []string, answer *protocol.Command) (ok bool) {
	var h protocol.SendMessageResponse
	if answer.ResponseCode() == protocol.ServiceNotAvailable && w.refused() {
		return true
	}
	err := answer.Err()
	if err == nil {
		err = answer.DecodeHeader(&h)
	}
	if err == nil {
		err = w.ledger.ack(place{h.QueueID, h.QueueOffset}, keys...)
	}
	if err != nil {
		w.wrong(err)
	}
	return err == nil
}

// posts sends over HTTP, one request after the other.
func (w *load) posts(ctx context.Context, door string, batches bool) {
	transport := &http.Transport{}
	defer transport.CloseIdleConnections()
	client := &http.Client{Transport: transport, Timeout: patience}
	for ctx.Err() == nil {
		keys := w.ledger.nextKeys(1)
		kind, body := "application/octet-stream", newBody(keys[0], randomSize())
		url := fmt.Sprintf("http://%s/v1/topics/%s/messages", door, topic)
		if !batches {
			url += fmt.Sprintf("?id=%s&ordering_key=%d", keys[0], rand.IntN(20))
		} else {
			keys = w.ledger.nextKeys(1 + rand.IntN(20))
			kind, body = "application/x-ndjson", lines(keys)
		}
		resp, err := client.Post(url, kind, bytes.NewReader(body))
		if err != nil {
			return
		}
		text, err := io.ReadAll(resp.Body)
		_ = resp.Body.Close()
		if err != nil {
			return
		}
		if resp.StatusCode == http.StatusInsufficientStorage && w.refused() {
			continue
		}
		if resp.StatusCode != http.StatusOK {
			err = fmt.Errorf("a post is answered %s %s", resp.Status, text)
		} else {
			err = w.posted(keys, text, batches)
		}
		if err != nil {
			w.wrong(err)
			return
		}
	}
}

func lines(keys []string) []byte {
	var all []byte
	for _, key := range keys {
		line, _ := json.Marshal(map[string]string{"id": key, "body": string(newBody(key, rand.IntN(300)))})
		all = append(append(all, line...), '\n')
	}
	return all
}

type stored struct {
	ID     string `json:"id"`
	Queue  int32  `json:"queue"`
	Offset int64  `json:"offset"`
}

// posted enters the answer to a post in the ledger.
func (w *load) posted(keys []string, text []byte, batch bool) error {
	var answer struct {
		stored
		Messages []stored `json:"messages"`
	}
	if err := json.Unmarshal(text, &answer); err != nil {
		return fmt.Errorf("answer %q: %w", text, err)
	}
	all := answer.Messages
	if !batch {
		all = []stored{answer.stored}
	}
	if len(all) != len(keys) {
		return fmt.Errorf("%d messages are acknowledged of %d", len(all), len(keys))
	}
	for i, s := range all {
		if s.ID != keys[i] {
			return fmt.Errorf("%s is acknowledged as %q", keys[i], s.ID)
		}
		if err := w.ledger.ack(place{s.Queue, s.Offset}, s.ID); err != nil {
			return err
		}
	}
	return nil
}
