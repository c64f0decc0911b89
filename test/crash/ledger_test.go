package crash

import (
	"bytes"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"strings"
	"sync"
	"testing"

	"github.com/sluicemq/sluice/protocol/message"
)

// A place is where a message is stored.
type place struct {
	queue  int32
	offset int64
}

// A ledger holds what a server has acknowledged: its promises.
type ledger struct {
	mu      sync.Mutex
	acked   map[place]string // unique keys
	sent    int
	goal    int
	reached chan struct{} // closed when as many are acknowledged as are waited for
}

func newLedger() *ledger {
	return &ledger{acked: map[place]string{}, reached: make(chan struct{})}
}

// nextKeys makes keys that were never used before.
func (l *ledger) nextKeys(n int) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	keys := make([]string, n)
	for i := range keys {
		keys[i] = fmt.Sprintf("KEY%010d", l.sent)
		l.sent++
	}
	return keys
}

// ack notes that messages are stored from a place on, and returns an error when
// the place was given away before.
func (l *ledger) ack(at place, keys ...string) error {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, key := range keys {
		if before, ok := l.acked[at]; ok {
			return fmt.Errorf("queue %d offset %d was given to %s and to %s", at.queue, at.offset, before, key)
		}
		l.acked[at] = key
		at.offset++
	}
	if l.goal > 0 && len(l.acked) >= l.goal {
		l.goal = 0
		close(l.reached)
	}
	return nil
}

// more returns a channel that is closed after n further acknowledgements.
func (l *ledger) more(n int) <-chan struct{} {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.goal, l.reached = len(l.acked)+n, make(chan struct{})
	return l.reached
}

// ends are the queues' ends as far as they are promised.
func (l *ledger) ends() map[int32]int64 {
	l.mu.Lock()
	defer l.mu.Unlock()
	ends := map[int32]int64{}
	for at := range l.acked {
		ends[at.queue] = max(ends[at.queue], at.offset+1)
	}
	return ends
}

// A record is a message that was read back.
type record struct {
	key    string
	offset int64
}

// contents are the queues of a topic as they were read back.
type contents map[int32][]record

// check demands that a server kept its promises: queues without a gap, and each
// acknowledged message at its place. It returns how many messages there are.
func (l *ledger) check(t *testing.T, who string, stored contents) int {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	total, doubles := 0, 0
	seen := map[string]place{}
	for queue, records := range stored {
		total += len(records)
		for i, r := range records {
			if r.offset != int64(i) {
				t.Fatalf("%s: queue %d has offset %d where %d is due", who, queue, r.offset, i)
			}
			if first, ok := seen[r.key]; ok {
				doubles++
				t.Errorf("%s: %s, sent once, is stored at queue %d offset %d and queue %d offset %d",
					who, r.key, first.queue, first.offset, queue, r.offset)
			}
			seen[r.key] = place{queue, r.offset}
		}
	}
	lost := 0
	for at, key := range l.acked {
		switch records := stored[at.queue]; {
		case at.offset >= int64(len(records)):
			lost++
			if lost <= 10 {
				t.Errorf("%s: %s was acknowledged at queue %d offset %d and is lost: the queue ends at %d", who, key, at.queue, at.offset, len(records))
			}
		case records[at.offset].key != key:
			t.Errorf("%s: queue %d offset %d was given to %s and holds %s", who, at.queue, at.offset, key, records[at.offset].key)
		}
	}
	if lost > 0 {
		t.Errorf("%s: %d of %d acknowledged messages are lost", who, lost, len(l.acked))
	}
	t.Logf("%s: %d acknowledged, %d stored (%d of them without an answer), %d lost, %d doubles",
		who, len(l.acked), total, total-len(l.acked), lost, doubles)
	return total
}

// places tell where each acknowledged message is.
func (l *ledger) places() map[string]place {
	l.mu.Lock()
	defer l.mu.Unlock()
	places := map[string]place{}
	for at, key := range l.acked {
		places[key] = at
	}
	return places
}

// places tell where each message is.
func (c contents) places() map[string]place {
	places := map[string]place{}
	for queue, records := range c {
		for _, r := range records {
			places[r.key] = place{queue, r.offset}
		}
	}
	return places
}

// newBody makes a body that tells whether it is whole:
//
//	| key | random filling | CRC-32 of both, 8 hex digits |
func newBody(key string, size int) []byte {
	body := append(make([]byte, 0, len(key)+size+9), key...)
	for range size / 8 {
		body = fmt.Appendf(body, "%08x", rand.Uint32())
	}
	return fmt.Appendf(body, "%08x", crc32.ChecksumIEEE(body))
}

// checkBody says what is wrong with a body.
func checkBody(key string, body []byte) error {
	if len(body) < 8 || !bytes.HasPrefix(body, []byte(key)) {
		return fmt.Errorf("the body of %s is another one: %.40q of %d bytes", key, body, len(body))
	}
	content, sum := body[:len(body)-8], string(body[len(body)-8:])
	if want := fmt.Sprintf("%08x", crc32.ChecksumIEEE(content)); sum != want {
		return fmt.Errorf("the body of %s is garbled: checksum %s, want %s", key, sum, want)
	}
	return nil
}

// randomSize is mostly small, at times large enough to end a segment.
func randomSize() int {
	switch rand.IntN(20) {
	case 0:
		return rand.IntN(100 << 10)
	case 1, 2:
		return rand.IntN(8 << 10)
	}
	return rand.IntN(600)
}

// properties are those of a message with that unique key.
func properties(key string) []byte {
	return message.AppendProperty(message.AppendProperty(nil, message.PropertyUniqueKey, key), message.PropertyKeys, strings.ToLower(key))
}
