package broker

import (
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
	"github.com/sluicemq/sluice/remoting"
)

// answer appends the answer to one staged request. Offset ids of a batch are
// joined by commas, one a message.
func (s *sendStream) answer(w *remoting.Writer, o *owed, flushErr error) {
	err := flushErr
	for i := o.first; i < o.first+o.count && err == nil; i++ {
		err = s.batch.Result(i).Err
	}
	if err != nil {
		s.counters.refused.Add(int64(o.count))
	} else {
		s.counters.stored.Add(int64(o.count))
		s.counters.storedBytes.Add(int64(o.bytes))
	}
	if o.oneWay {
		return
	}
	if err != nil {
		e := protocol.AsError(storeError(err))
		w.Buf = appendSendRefusal(w.Buf, o.coding, o.opaque, e, s.region)
		return
	}
	s.ids = s.ids[:0]
	for i := o.first; i < o.first+o.count; i++ {
		if i > o.first {
			s.ids = append(s.ids, ',')
		}
		s.ids = message.AppendOffsetID(s.ids, s.storeHost, s.batch.Result(i).PhysicalOffset)
	}
	f := protocol.BeginFrame(w.Buf, o.coding, int32(protocol.Success), protocol.FlagResponse, o.opaque, "")
	f.Plain("msgId", s.ids)
	f.Int("queueId", int64(o.queueID))
	f.Int("queueOffset", s.batch.Result(o.first).QueueOffset)
	f.String("MSG_REGION", s.region)
	f.String("TRACE_ON", "true")
	w.Buf = f.End(f.BeginBody())
}

// appendSendRefusal answers a send that was not stored. Java clients read the
// ext fields of every send answer without asking whether there are any, so there
// is always one.
func appendSendRefusal(dst []byte, coding protocol.Coding, opaque int32, e *protocol.Error, region string) []byte {
	f := protocol.BeginFrame(dst, coding, int32(e.Code), protocol.FlagResponse, opaque, e.Remark)
	f.String("MSG_REGION", region)
	return f.End(f.BeginBody())
}
