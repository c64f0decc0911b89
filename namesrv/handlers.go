package namesrv

import (
	"context"
	"log/slog"
	"sync"
	"time"

	"golang.org/x/time/rate"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/remoting"
)

// handlers answer the requests of brokers, clients and administrators.
type handlers struct {
	routes        *RouteTable
	kv            *kvConfig
	log           *slog.Logger
	orderMessages bool
	started       time.Time
	wait          time.Duration
	complaints    *rate.Limiter

	// decoding lets one registration be unfolded at a time, so that many
	// hostile ones together take no more memory than one.
	decoding sync.Mutex
}

// table is everything that the name server understands. All of it runs on the
// connection's reader, so that one broker's requests take effect in the order
// it sent them; only what writes a file has its own goroutine.
func (h *handlers) table() remoting.Table {
	inline := func(f remoting.Handler) remoting.Route { return remoting.Route{Handler: f, Inline: true} }
	return remoting.Table{
		protocol.RegisterBroker:       inline(h.registerBroker),
		protocol.UnregisterBroker:     inline(h.unregisterBroker),
		protocol.BrokerHeartbeat:      inline(h.brokerHeartbeat),
		protocol.QueryDataVersion:     inline(h.queryDataVersion),
		protocol.GetBrokerMemberGroup: inline(h.brokerMemberGroup),

		protocol.GetRouteInfoByTopic:           inline(h.routeInfo),
		protocol.GetBrokerClusterInfo:          inline(h.clusterInfo),
		protocol.GetAllTopicListFromNameServer: inline(h.allTopics),
		protocol.GetTopicsByCluster:            inline(h.topicsByCluster),
		protocol.GetSystemTopicListFromNS:      inline(h.systemTopics),

		protocol.RegisterTopicInNameServer: inline(h.registerTopic),
		protocol.DeleteTopicInNameServer:   inline(h.deleteTopic),
		protocol.WipeWritePermOfBroker:     inline(h.wipeWritePerm),
		protocol.AddWritePermOfBroker:      inline(h.addWritePerm),

		protocol.PutKVConfig:          {Handler: h.putKV, Limit: 16},
		protocol.DeleteKVConfig:       {Handler: h.deleteKV, Limit: 16},
		protocol.GetKVConfig:          inline(h.getKV),
		protocol.GetKVListByNamespace: inline(h.listKV),
	}
}

// maxAnswer is what fits a frame with its header. Clients drop the connection
// on a longer one.
const maxAnswer = remoting.DefaultMaxFrame - 64<<10

func ok() *protocol.Command { return protocol.NewResponse(protocol.Success, "", nil, nil) }

// answer is success with v as its body.
func answer(h protocol.Header, v any) (*protocol.Command, error) {
	body, err := protocol.Marshal(v)
	if err != nil {
		return nil, err
	}
	return answerBytes(h, body)
}

func answerBytes(h protocol.Header, body []byte) (*protocol.Command, error) {
	if len(body) > maxAnswer {
		return nil, protocol.Errorf(protocol.SystemError,
			"the answer has %d bytes, more than the %d that fit a frame", len(body), maxAnswer)
	}
	return protocol.NewResponse(protocol.Success, "", h, body), nil
}

const noRouteHelp = "\nSee https://rocketmq.apache.org/docs/bestPractice/06FAQ for further details."

func (h *handlers) routeInfo(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.GetRouteInfoRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	if time.Since(h.started) < h.wait {
		return nil, protocol.Errorf(protocol.SystemError, "name server not ready")
	}
	body, found, err := h.route(&q, req.Version >= protocol.Version4_9_4 || q.AcceptStandardJSONOnly)
	if err != nil {
		return nil, err
	}
	if !found {
		return nil, protocol.Errorf(protocol.TopicNotExist, "No topic route info in name server for the topic: %s%s",
			q.Topic[:min(len(q.Topic), maxEcho)], noRouteHelp)
	}
	return answerBytes(nil, body)
}

// route encodes a route answer, the usual one from the table's memory.
func (h *handlers) route(q *protocol.GetRouteInfoRequest, strict bool) ([]byte, bool, error) {
	order := ""
	if h.orderMessages {
		order, _ = h.kv.get(orderNamespace, q.Topic)
	}
	zoned := q.ZoneMode && q.ZoneName != ""
	if order == "" && !zoned {
		return h.routes.EncodedRoute(q.Topic, strict)
	}
	route, found := h.routes.Route(q.Topic)
	if !found {
		return nil, false, nil
	}
	route.OrderTopicConf = order
	if zoned {
		filterZone(route, q.ZoneName)
	}
	body, err := encodeRoute(route, strict)
	return body, true, err
}

func (h *handlers) clusterInfo(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	info := h.routes.Clusters()
	if req.Version >= protocol.Version4_9_4 {
		return answer(nil, info)
	}
	body, err := protocol.MarshalFastjson(info)
	if err != nil {
		return nil, err
	}
	return answerBytes(nil, body)
}

func (h *handlers) allTopics(_ context.Context, _ *remoting.Conn, _ *protocol.Command) (*protocol.Command, error) {
	return answer(nil, &protocol.TopicList{TopicList: h.routes.Topics()})
}

func (h *handlers) topicsByCluster(_ context.Context, _ *remoting.Conn, req *protocol.Command) (*protocol.Command, error) {
	var q protocol.GetTopicsByClusterRequest
	if err := req.DecodeHeader(&q); err != nil {
		return nil, err
	}
	return answer(nil, &protocol.TopicList{TopicList: h.routes.TopicsOfCluster(q.Cluster)})
}

func (h *handlers) systemTopics(_ context.Context, _ *remoting.Conn, _ *protocol.Command) (*protocol.Command, error) {
	topics, addr := h.routes.SystemTopics()
	return answer(nil, &protocol.TopicList{TopicList: topics, BrokerAddr: addr})
}
