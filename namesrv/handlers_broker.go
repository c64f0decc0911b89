package namesrv

import (
	"context"
	"math"
	"slices"
	"time"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

const (
	maxFilters      = 64
	maxStaticQueues = 1 << 12 // of one topic on one broker
)

func (h *handlers) registerBroker(_ context.Context, c *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.RegisterBrokerRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	if q.BodyCRC32 != 0 && q.BodyCRC32 != protocol.BodyCRC32(req.Body) {
		return nil, protocol.Errorf(protocol.SystemError, "crc32 not match")
	}
	if err := checkRegistration(&q); err != nil {
		return nil, err
	}
	h.decoding.Lock()
	defer h.decoding.Unlock()
	body, err := protocol.DecodeRegisterBrokerBody(req.Body, q.Compressed, req.Version)
	if err != nil {
		return nil, protocol.Errorf(protocol.SystemError, "%v", err)
	}
	r, skipped := registration(&q, body)
	r.Conn = c
	res, err := h.routes.Register(r, time.Now())
	h.logRegistration(r, res, skipped, err)
	if err != nil {
		return nil, err
	}
	header := &protocol.RegisterBrokerResponse{HAServerAddr: res.HAAddr, MasterAddr: res.MasterAddr}
	if order, found := h.kv.list(orderNamespace); found {
		return answer(header, &protocol.KVTable{Table: order})
	}
	return answerBytes(header, nil)
}

func checkRegistration(q *protocol.RegisterBrokerRequest) error {
	if err := checkMember(q.ClusterName, q.BrokerName, q.BrokerAddr); err != nil {
		return err
	}
	if q.BrokerID < 0 {
		return protocol.Errorf(protocol.SystemError, "the broker id %d is negative", q.BrokerID)
	}
	// Brokers without replication send no HA address or a port without host.
	if len(q.HAServerAddr) > maxNameLen {
		return protocol.Errorf(protocol.SystemError, "the HA address has %d bytes", len(q.HAServerAddr))
	}
	if q.ZoneName != "" {
		return checkName("zone", q.ZoneName)
	}
	return nil
}

func checkMember(cluster, name, addr string) error {
	if err := checkName("cluster name", cluster); err != nil {
		return err
	}
	if err := checkName("broker name", name); err != nil {
		return err
	}
	return checkAddr("broker address", addr)
}

// registration makes a Registration of header and body. Topics with a bad name
// or absurd numbers are left out; skipped says why the first of them was.
func registration(q *protocol.RegisterBrokerRequest, body *protocol.RegisterBrokerBody) (r *Registration, skipped []string) {
	w := &body.TopicConfigSerializeWrapper
	r = &Registration{
		Cluster: q.ClusterName, Name: q.BrokerName, Addr: q.BrokerAddr, ID: q.BrokerID,
		HAAddr: q.HAServerAddr, Zone: q.ZoneName, ActingMaster: q.EnableActingMaster,
		Timeout: millis(q.HeartbeatTimeoutMillis.Or(0)), Version: w.DataVersion,
		Topics: make([]protocol.TopicConfig, 0, len(w.TopicConfigTable)),
	}
	for key, t := range w.TopicConfigTable {
		if t.TopicName == "" {
			t.TopicName = key
		}
		err := checkTopic(t.TopicName, q.BrokerName, q.ClusterName)
		if err == nil {
			err = checkQueues(t.ReadQueueNums, t.WriteQueueNums)
		}
		if err != nil {
			skipped = append(skipped, err.Error())
			continue
		}
		r.Topics = append(r.Topics, t)
	}
	for topic, m := range w.TopicQueueMappingInfoMap {
		if len(m.CurrIDMap) > maxStaticQueues || len(m.BrokerName) > maxNameLen || len(m.Scope) > maxNameLen {
			skipped = append(skipped, "the static layout of topic "+quote(topic)+" is too large")
			continue
		}
		if r.Mappings == nil {
			r.Mappings = make(map[string]protocol.TopicQueueMappingInfo)
		}
		r.Mappings[topic] = m
	}
	if body.FilterServerList != nil {
		r.Filters = slices.DeleteFunc(body.FilterServerList, func(addr string) bool {
			return checkAddr("filter server", addr) != nil
		})
		r.Filters = r.Filters[:min(len(r.Filters), maxFilters)]
	}
	return r, skipped
}

// millis turns a number of ms from the network into a duration without overflow.
func millis(ms int64) time.Duration {
	return time.Duration(min(max(ms, 0), math.MaxInt64/int64(time.Millisecond))) * time.Millisecond
}

// logRegistration writes a line for what is new; brokers repeat themselves
// every half minute.
func (h *handlers) logRegistration(r *Registration, res Registered, skipped []string, err error) {
	who := []any{"cluster", r.Cluster, "broker", r.Name, "id", r.ID, "addr", r.Addr, "topics", len(r.Topics)}
	switch {
	case err != nil:
		h.complain("registration refused", append(who, "err", err)...)
		return
	case res.Conflict:
		h.complain("registration ignored, a newer state holds this id at another address", who...)
		return
	case res.New:
		h.log.Info("broker registered", who...)
	}
	if !res.Changed {
		return
	}
	if len(skipped) > 0 {
		h.complain("topics of a registration skipped", append(who, "skipped", len(skipped), "first", skipped[0])...)
	}
	if res.Rejected > 0 {
		h.complain("topics of a registration refused, the route table is full", append(who, "refused", res.Rejected)...)
	}
}

// complain logs what a hostile peer could cause again and again.
func (h *handlers) complain(what string, args ...any) {
	if h.complaints.Allow() {
		h.log.Warn(what, args...)
	}
}

func (h *handlers) unregisterBroker(_ context.Context, c *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.UnregisterBrokerRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	gone := h.routes.Unregister(Unregistration{
		Cluster: q.ClusterName, Name: q.BrokerName, Addr: q.BrokerAddr, ID: q.BrokerID, Conn: c,
	})
	if gone {
		h.log.Info("broker unregistered", "cluster", q.ClusterName, "broker", q.BrokerName, "id", q.BrokerID, "addr", q.BrokerAddr)
	}
	return ok(), nil
}

func (h *handlers) brokerHeartbeat(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.BrokerHeartbeatRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	h.routes.Touch(q.ClusterName, q.BrokerAddr, time.Now())
	return ok(), nil
}

// queryDataVersion tells a broker whether it must register again; to ask is a
// sign of life.
func (h *handlers) queryDataVersion(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.QueryDataVersionRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	var theirs protocol.DataVersion
	sent := len(req.Body) > 0
	if sent {
		if err := protocol.Unmarshal(req.Body, &theirs); err != nil {
			return nil, protocol.Errorf(protocol.SystemError, "%v", err)
		}
	}
	h.routes.Touch(q.ClusterName, q.BrokerAddr, time.Now())
	ours, known := h.routes.DataVersion(q.ClusterName, q.BrokerAddr)
	header := &protocol.QueryDataVersionResponse{Changed: !known || !sent || ours != theirs}
	if !known {
		return answerBytes(header, nil)
	}
	return answer(header, &ours)
}

func (h *handlers) brokerMemberGroup(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.GetBrokerMemberGroupRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	return answer(nil, &protocol.GetBrokerMemberGroupBody{BrokerMemberGroup: &protocol.BrokerMemberGroup{
		Cluster: q.ClusterName, BrokerName: q.BrokerName, BrokerAddrs: h.routes.Members(q.BrokerName),
	}})
}
