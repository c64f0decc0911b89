package namesrv

import (
	"context"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

func (h *handlers) registerTopic(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.RegisterTopicRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	if err := checkTopic(q.Topic, "", ""); err != nil {
		return nil, err
	}
	var route protocol.TopicRouteData
	if len(req.Body) > 0 {
		if err := protocol.Unmarshal(req.Body, &route); err != nil {
			return nil, protocol.Errorf(protocol.SystemError, "%v", err)
		}
	}
	for _, d := range route.QueueDatas {
		if err := checkQueues(d.ReadQueueNums, d.WriteQueueNums); err != nil {
			return nil, protocol.Errorf(protocol.SystemError, "topic %s: %v", q.Topic, err)
		}
	}
	// Apache answers success here too: the broker's next registration decides.
	if !h.routes.RegisterTopic(q.Topic, route.QueueDatas) {
		h.complain("topic not registered, a broker is unknown or the route table is full", "topic", q.Topic)
	}
	return ok(), nil
}

func (h *handlers) deleteTopic(_ context.Context, c *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.DeleteTopicFromNameServerRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	h.routes.DeleteTopic(q.Topic, q.ClusterName)
	h.log.Info("topic deleted from the routes", "topic", q.Topic[:min(len(q.Topic), maxEcho)], "cluster", q.ClusterName, "by", c.RemoteAddr())
	return ok(), nil
}

func (h *handlers) wipeWritePerm(_ context.Context, c *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	n, err := h.setWritePerm(c, req, false)
	if err != nil {
		return nil, err
	}
	return answerBytes(&protocol.WipeWritePermOfBrokerResponse{WipeTopicCount: n}, nil)
}

func (h *handlers) addWritePerm(_ context.Context, c *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	n, err := h.setWritePerm(c, req, true)
	if err != nil {
		return nil, err
	}
	return answerBytes(&protocol.AddWritePermOfBrokerResponse{AddTopicCount: n}, nil)
}

func (h *handlers) setWritePerm(c *remoting.Conn, req *protocol.Command, writable bool) (int32, error) {
	var q protocol.WritePermOfBrokerRequest
	if err := req.DecodeHeader(&q); err != nil {
		return 0, err
	}
	n := h.routes.SetWritePerm(q.BrokerName, writable)
	h.log.Info("write permission of a broker changed", "broker", q.BrokerName[:min(len(q.BrokerName), maxEcho)],
		"writable", writable, "topics", n, "by", c.RemoteAddr())
	return int32(n), nil
}

func (h *handlers) putKV(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.PutKVConfigRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	if err := h.kv.put(q.Namespace, q.Key, q.Value); err != nil {
		return nil, err
	}
	return ok(), nil
}

func (h *handlers) deleteKV(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.KVConfigRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	if err := h.kv.remove(q.Namespace, q.Key); err != nil {
		return nil, err
	}
	return ok(), nil
}

func (h *handlers) getKV(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.KVConfigRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	value, found := h.kv.get(q.Namespace, q.Key)
	if !found {
		return nil, protocol.Errorf(protocol.QueryNotFound, "No config item, Namespace: %s Key: %s",
			q.Namespace[:min(len(q.Namespace), maxEcho)], q.Key[:min(len(q.Key), maxEcho)])
	}
	return answerBytes(&protocol.GetKVConfigResponse{Value: value}, nil)
}

func (h *handlers) listKV(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.GetKVListByNamespaceRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	table, found := h.kv.list(q.Namespace)
	if !found {
		return nil, protocol.Errorf(protocol.QueryNotFound, "No config item, Namespace: %s",
			q.Namespace[:min(len(q.Namespace), maxEcho)])
	}
	return answer(nil, &protocol.KVTable{Table: table})
}
