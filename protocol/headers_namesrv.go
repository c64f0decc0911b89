package protocol

// RegisterBrokerRequest (103) announces a broker and its topics, which are the
// body.
type RegisterBrokerRequest struct {
	BrokerName             string
	BrokerAddr             string
	ClusterName            string
	HAServerAddr           string // absent from some brokers
	BrokerID               int64  // 0 is the master
	HeartbeatTimeoutMillis Opt[int64]
	EnableActingMaster     Opt[bool]
	Compressed             bool
	BodyCRC32              int32  // 31 bits, 0 is not checked
	ZoneName               string // optional
	ZoneMode               bool
}

func (h *RegisterBrokerRequest) bind(b *binder) {
	b.str("brokerName", &h.BrokerName, required)
	b.str("brokerAddr", &h.BrokerAddr, required)
	b.str("clusterName", &h.ClusterName, required)
	b.str("haServerAddr", &h.HAServerAddr, optional)
	b.i64("brokerId", &h.BrokerID, required)
	b.optI64("heartbeatTimeoutMillis", &h.HeartbeatTimeoutMillis)
	b.optFlag("enableActingMaster", &h.EnableActingMaster)
	b.flag("compressed", &h.Compressed, optional)
	b.i32("bodyCrc32", &h.BodyCRC32, optional)
	b.str("__ZONE_NAME", &h.ZoneName, optional)
	b.flagIfSet("__ZONE_MODE", &h.ZoneMode)
}

// RegisterBrokerResponse is its answer; slaves learn their master from it.
type RegisterBrokerResponse struct {
	HAServerAddr string // optional
	MasterAddr   string // optional
}

func (h *RegisterBrokerResponse) bind(b *binder) {
	b.str("haServerAddr", &h.HAServerAddr, optional)
	b.str("masterAddr", &h.MasterAddr, optional)
}

// UnregisterBrokerRequest (104) takes a broker out.
type UnregisterBrokerRequest struct {
	BrokerName  string
	BrokerAddr  string
	ClusterName string
	BrokerID    int64
}

func (h *UnregisterBrokerRequest) bind(b *binder) {
	b.str("brokerName", &h.BrokerName, required)
	b.str("brokerAddr", &h.BrokerAddr, required)
	b.str("clusterName", &h.ClusterName, required)
	b.i64("brokerId", &h.BrokerID, required)
}

// QueryDataVersionRequest (322) asks whether a broker's topics changed since its
// last registration; the body is the broker's DataVersion.
type QueryDataVersionRequest struct {
	BrokerName  string
	BrokerAddr  string
	ClusterName string
	BrokerID    int64
}

func (h *QueryDataVersionRequest) bind(b *binder) {
	b.str("brokerName", &h.BrokerName, required)
	b.str("brokerAddr", &h.BrokerAddr, required)
	b.str("clusterName", &h.ClusterName, required)
	b.i64("brokerId", &h.BrokerID, required)
}

// QueryDataVersionResponse is its answer.
type QueryDataVersionResponse struct{ Changed bool }

func (h *QueryDataVersionResponse) bind(b *binder) { b.flag("changed", &h.Changed, required) }

// BrokerHeartbeatRequest (904) keeps a registration alive.
type BrokerHeartbeatRequest struct {
	ClusterName            string
	BrokerAddr             string
	BrokerName             string
	BrokerID               Opt[int64]
	Epoch                  Opt[int32]
	MaxOffset              Opt[int64]
	ConfirmOffset          Opt[int64]
	HeartbeatTimeoutMillis Opt[int64]
	ElectionPriority       Opt[int32]
}

func (h *BrokerHeartbeatRequest) bind(b *binder) {
	b.str("clusterName", &h.ClusterName, required)
	b.str("brokerAddr", &h.BrokerAddr, required)
	b.str("brokerName", &h.BrokerName, required)
	b.optI64("brokerId", &h.BrokerID)
	b.optI32("epoch", &h.Epoch)
	b.optI64("maxOffset", &h.MaxOffset)
	b.optI64("confirmOffset", &h.ConfirmOffset)
	b.optI64("heartbeatTimeoutMills", &h.HeartbeatTimeoutMillis)
	b.optI32("electionPriority", &h.ElectionPriority)
}

// GetBrokerMemberGroupRequest (901) asks for the addresses of one broker name.
type GetBrokerMemberGroupRequest struct {
	ClusterName string
	BrokerName  string
}

func (h *GetBrokerMemberGroupRequest) bind(b *binder) {
	b.str("clusterName", &h.ClusterName, required)
	b.str("brokerName", &h.BrokerName, required)
}

// NotifyMinBrokerIDChangeRequest (905) tells brokers of one name which of them
// now has the lowest id.
type NotifyMinBrokerIDChangeRequest struct {
	MinBrokerID       Opt[int64]
	BrokerName        string
	MinBrokerAddr     string
	OfflineBrokerAddr string
	HABrokerAddr      string
}

func (h *NotifyMinBrokerIDChangeRequest) bind(b *binder) {
	b.optI64("minBrokerId", &h.MinBrokerID)
	b.str("brokerName", &h.BrokerName, optional)
	b.str("minBrokerAddr", &h.MinBrokerAddr, optional)
	b.str("offlineBrokerAddr", &h.OfflineBrokerAddr, optional)
	b.str("haBrokerAddr", &h.HABrokerAddr, optional)
}

// GetRouteInfoRequest (105) asks where a topic lives.
type GetRouteInfoRequest struct {
	Topic                  string
	AcceptStandardJSONOnly bool
	ZoneName               string // optional
	ZoneMode               bool   // answer with brokers of ZoneName alone
}

func (h *GetRouteInfoRequest) bind(b *binder) {
	b.str("topic", &h.Topic, required)
	b.flagIfSet("acceptStandardJsonOnly", &h.AcceptStandardJSONOnly)
	b.str("__ZONE_NAME", &h.ZoneName, optional)
	b.flagIfSet("__ZONE_MODE", &h.ZoneMode)
}

// RegisterTopicRequest (217) adds queues of known brokers to a topic's route;
// the body is a TopicRouteData.
type RegisterTopicRequest struct{ Topic string }

func (h *RegisterTopicRequest) bind(b *binder) { b.str("topic", &h.Topic, required) }

// DeleteTopicFromNameServerRequest (216) removes a topic from the routes.
type DeleteTopicFromNameServerRequest struct {
	Topic       string
	ClusterName string // optional: only there
}

func (h *DeleteTopicFromNameServerRequest) bind(b *binder) {
	b.str("topic", &h.Topic, required)
	b.str("clusterName", &h.ClusterName, optional)
}

// GetTopicsByClusterRequest (224) asks for the topics of a cluster.
type GetTopicsByClusterRequest struct{ Cluster string }

func (h *GetTopicsByClusterRequest) bind(b *binder) { b.str("cluster", &h.Cluster, required) }

// WritePermOfBrokerRequest is the header of WIPE_WRITE_PERM_OF_BROKER (205) and
// ADD_WRITE_PERM_OF_BROKER (327).
type WritePermOfBrokerRequest struct{ BrokerName string }

func (h *WritePermOfBrokerRequest) bind(b *binder) { b.str("brokerName", &h.BrokerName, required) }

// WipeWritePermOfBrokerResponse counts the changed topics.
type WipeWritePermOfBrokerResponse struct{ WipeTopicCount int32 }

func (h *WipeWritePermOfBrokerResponse) bind(b *binder) {
	b.i32("wipeTopicCount", &h.WipeTopicCount, required)
}

// AddWritePermOfBrokerResponse counts the changed topics.
type AddWritePermOfBrokerResponse struct{ AddTopicCount int32 }

func (h *AddWritePermOfBrokerResponse) bind(b *binder) {
	b.i32("addTopicCount", &h.AddTopicCount, required)
}

// PutKVConfigRequest (100) stores a setting.
type PutKVConfigRequest struct {
	Namespace string
	Key       string
	Value     string
}

func (h *PutKVConfigRequest) bind(b *binder) {
	b.str("namespace", &h.Namespace, required)
	b.str("key", &h.Key, required)
	b.str("value", &h.Value, required)
}

// KVConfigRequest is the header of GET_KV_CONFIG (101) and DELETE_KV_CONFIG (102).
type KVConfigRequest struct {
	Namespace string
	Key       string
}

func (h *KVConfigRequest) bind(b *binder) {
	b.str("namespace", &h.Namespace, required)
	b.str("key", &h.Key, required)
}

// GetKVConfigResponse is the answer to GET_KV_CONFIG.
type GetKVConfigResponse struct{ Value string }

func (h *GetKVConfigResponse) bind(b *binder) { b.str("value", &h.Value, required) }

// GetKVListByNamespaceRequest (219) asks for all settings of a namespace.
type GetKVListByNamespaceRequest struct{ Namespace string }

func (h *GetKVListByNamespaceRequest) bind(b *binder) { b.str("namespace", &h.Namespace, required) }
