package upstream

import (
	"fmt"
	"strings"

	"github.com/sluicemq/sluice/client"
	"github.com/sluicemq/sluice/protocol/message"
)

// A frame is the content of one send request, made of the first of several
// messages. Its buffers are used again.
type frame struct {
	batch client.Batch
	count int // messages in it

	entries []byte // body of a batch
	props   []byte // of the message at hand
	header  []byte // properties of the request
}

// forwardedFlags are the sysFlag bits that belong to the message; the others
// are the doing of the broker that stored it.
const forwardedFlags = message.Compressed | message.CompressionMask | message.MultiTags

// entryBytes is what an entry of a batch body adds to body and properties.
const entryBytes = 22

// pack takes from the front of ms as many messages as fit in limit bytes and may
// share a request, at least one. With suspect > 0, one of the first suspect
// messages is illegal: then half of those at most, so that it is found in a few
// steps. The error is for a message that no request can hold.
func (f *frame) pack(ms []message.Message, limit, suspect int) error {
	most := len(ms)
	if suspect > 0 {
		most = min(most, max(suspect/2, 1))
	}
	first := &ms[0]
	f.entries, f.count = f.entries[:0], 0
	f.batch = client.Batch{SysFlag: first.SysFlag & forwardedFlags, BornTimestamp: first.BornTimestamp}
	var wait string // "false" or absent: one for all
	for i := range most {
		m := ms[i]
		kind := f.forward(&m)
		if i == 0 {
			wait = kind.wait
		}
		fits := len(f.entries)+entryBytes+len(m.Body)+len(f.props) <= limit
		if i > 0 && (kind.alone || !fits || kind.wait != wait || m.SysFlag&forwardedFlags != f.batch.SysFlag) {
			break
		}
		m.Properties = f.props
		var err error
		if f.entries, err = message.AppendBatchEntry(f.entries, &m); err != nil {
			if i > 0 {
				break // its turn comes
			}
			return fmt.Errorf("message cannot be encoded: %w", err)
		}
		f.count++
		if kind.alone {
			break
		}
	}
	f.seal(first, wait)
	return nil
}

// seal makes the request of what was packed: one message goes by itself.
func (f *frame) seal(first *message.Message, wait string) {
	f.header = f.header[:0]
	if f.count > 1 {
		f.header = message.AppendProperty(f.header, message.PropertyWait, wait)
		f.batch.Body, f.batch.Properties = f.entries, f.header
		return
	}
	m := *first
	f.forward(&m)
	f.header = append(f.header, f.props...)
	f.batch.Single, f.batch.Flag = true, m.Flag
	f.batch.Body, f.batch.Properties = m.Body, f.header
}

// kind is what decides which messages may share a request.
type kind struct {
	alone bool
	wait  string
}

// forward writes the properties that go upstream with m to f.props: all but those
// that the local broker added and the upstream sets itself. A message without a
// unique key gets one that is the same each time.
func (f *frame) forward(m *message.Message) (k kind) {
	k.alone = strings.HasPrefix(m.Topic, message.RetryPrefix)
	keyed := false
	f.props = f.props[:0]
	message.EachProperty(m.Properties, func(name, value []byte) bool {
		switch string(name) {
		case message.PropertyMessageRegion, message.PropertyTraceOn, message.PropertyCluster, message.PropertyCRC32:
			return true
		case message.PropertyWait:
			k.wait = waitValue(value)
		case message.PropertyUniqueKey:
			keyed = true
		}
		k.alone = k.alone || client.AloneProperty(name)
		f.props = appendPair(f.props, name, value)
		return true
	})
	if !keyed {
		f.props = message.AppendProperty(f.props, message.PropertyUniqueKey, fallbackKey(m))
	}
	return k
}

// waitValue spares an allocation per message for the two usual values.
func waitValue(value []byte) string {
	switch string(value) {
	case "true":
		return "true"
	case "false":
		return "false"
	}
	return string(value)
}

func appendPair(dst, name, value []byte) []byte {
	dst = append(dst, name...)
	dst = append(dst, 0x01)
	dst = append(dst, value...)
	return append(dst, 0x02)
}

// fallbackKey names a message that has no unique key, by which an upstream or its
// readers would recognise it again: by its place in the local log.
func fallbackKey(m *message.Message) string {
	return message.OffsetID(m.StoreHost, m.PhysicalOffset)
}
