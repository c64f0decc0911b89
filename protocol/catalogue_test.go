package protocol

// shape is what travels with one request code: constructors of the headers and
// bodies, nil where there is none or it is not JSON.
type shape struct {
	request, response         func() Header
	requestBody, responseBody func() any
}

func header[T any, P interface {
	*T
	Header
}]() Header {
	return P(new(T))
}

func body[T any]() any { return new(T) }

// catalogue is every request code that has a typed header or body here.
var catalogue = map[RequestCode]shape{
	SendMessage:           {header[SendMessageRequest], header[SendMessageResponse], nil, nil},
	SendMessageV2:         {header[SendMessageRequestV2], header[SendMessageResponse], nil, nil},
	SendBatchMessage:      {header[SendMessageRequestV2], header[SendMessageResponse], nil, nil},
	SendReplyMessage:      {header[SendMessageRequest], header[SendMessageResponse], nil, nil},
	SendReplyMessageV2:    {header[SendMessageRequestV2], header[SendMessageResponse], nil, nil},
	ConsumerSendMsgBack:   {header[ConsumerSendMsgBackRequest], nil, nil, nil},
	EndTransaction:        {header[EndTransactionRequest], nil, nil, nil},
	CheckTransactionState: {header[CheckTransactionStateRequest], nil, nil, nil},

	PullMessage:     {header[PullMessageRequest], header[PullMessageResponse], nil, nil},
	LitePullMessage: {header[PullMessageRequest], header[PullMessageResponse], nil, nil},
	QueryMessage:    {header[QueryMessageRequest], header[QueryMessageResponse], nil, nil},
	ViewMessageByID: {header[ViewMessageRequest], nil, nil, nil},

	QueryConsumerOffset:     {header[QueryConsumerOffsetRequest], header[OffsetResponse], nil, nil},
	UpdateConsumerOffset:    {header[UpdateConsumerOffsetRequest], nil, nil, nil},
	SearchOffsetByTimestamp: {header[SearchOffsetRequest], header[OffsetResponse], nil, nil},
	GetMaxOffset:            {header[GetMaxOffsetRequest], header[OffsetResponse], nil, nil},
	GetMinOffset:            {header[GetMinOffsetRequest], header[OffsetResponse], nil, nil},
	GetEarliestMsgStoreTime: {header[GetEarliestMsgStoreTimeRequest], header[GetEarliestMsgStoreTimeResponse], nil, nil},
	GetAllConsumerOffset:    {nil, nil, nil, body[ConsumerOffsetSerializeWrapper]},

	Heartbeat:                 {nil, header[HeartbeatResponse], body[HeartbeatData], nil},
	UnregisterClient:          {header[UnregisterClientRequest], nil, nil, nil},
	GetConsumerListByGroup:    {header[GetConsumerListByGroupRequest], nil, nil, body[GetConsumerListByGroupBody]},
	NotifyConsumerIDsChanged:  {header[NotifyConsumerIDsChangedRequest], nil, nil, nil},
	LockBatchMQ:               {nil, nil, body[LockBatchRequest], body[LockBatchResponse]},
	UnlockBatchMQ:             {nil, nil, body[LockBatchRequest], nil},
	CheckClientConfig:         {nil, nil, body[CheckClientRequest], nil},
	ResetConsumerClientOffset: {header[ResetOffsetRequest], nil, body[ResetOffsetBody], nil},
	GetConsumerRunningInfo:    {header[GetConsumerRunningInfoRequest], nil, nil, body[ConsumerRunningInfo]},
	ConsumeMessageDirectly:    {header[ConsumeMessageDirectlyRequest], nil, nil, body[ConsumeMessageDirectlyResult]},

	PutKVConfig:                   {header[PutKVConfigRequest], nil, nil, nil},
	GetKVConfig:                   {header[KVConfigRequest], header[GetKVConfigResponse], nil, nil},
	DeleteKVConfig:                {header[KVConfigRequest], nil, nil, nil},
	GetKVListByNamespace:          {header[GetKVListByNamespaceRequest], nil, nil, body[KVTable]},
	RegisterBroker:                {header[RegisterBrokerRequest], header[RegisterBrokerResponse], nil, body[KVTable]},
	UnregisterBroker:              {header[UnregisterBrokerRequest], nil, nil, nil},
	QueryDataVersion:              {header[QueryDataVersionRequest], header[QueryDataVersionResponse], body[DataVersion], body[DataVersion]},
	BrokerHeartbeat:               {header[BrokerHeartbeatRequest], nil, nil, nil},
	GetBrokerMemberGroup:          {header[GetBrokerMemberGroupRequest], nil, nil, body[GetBrokerMemberGroupBody]},
	NotifyMinBrokerIDChange:       {header[NotifyMinBrokerIDChangeRequest], nil, nil, nil},
	GetRouteInfoByTopic:           {header[GetRouteInfoRequest], nil, nil, body[TopicRouteData]},
	GetBrokerClusterInfo:          {nil, nil, nil, body[ClusterInfo]},
	RegisterTopicInNameServer:     {header[RegisterTopicRequest], nil, body[TopicRouteData], nil},
	DeleteTopicInNameServer:       {header[DeleteTopicFromNameServerRequest], nil, nil, nil},
	GetTopicsByCluster:            {header[GetTopicsByClusterRequest], nil, nil, body[TopicList]},
	GetAllTopicListFromNameServer: {nil, nil, nil, body[TopicList]},
	GetSystemTopicListFromNS:      {nil, nil, nil, body[TopicList]},
	GetSystemTopicListFromBroker:  {nil, nil, nil, body[TopicList]},
	WipeWritePermOfBroker:         {header[WritePermOfBrokerRequest], header[WipeWritePermOfBrokerResponse], nil, nil},
	AddWritePermOfBroker:          {header[WritePermOfBrokerRequest], header[AddWritePermOfBrokerResponse], nil, nil},

	UpdateAndCreateTopic:                 {header[CreateTopicRequest], nil, nil, nil},
	UpdateAndCreateTopicList:             {nil, nil, body[TopicConfigList], nil},
	DeleteTopicInBroker:                  {header[TopicRequest], nil, nil, nil},
	GetTopicConfig:                       {header[TopicRequest], nil, nil, body[TopicConfig]},
	GetTopicStatsInfo:                    {header[TopicRequest], nil, nil, body[TopicStatsTable]},
	QueryTopicConsumeByWho:               {header[TopicRequest], nil, nil, body[GroupList]},
	GetAllTopicConfig:                    {header[GetAllTopicConfigRequest], header[GetAllTopicConfigResponse], nil, body[TopicConfigSerializeWrapper]},
	UpdateAndCreateSubscriptionGroup:     {nil, nil, body[SubscriptionGroupConfig], nil},
	UpdateAndCreateSubscriptionGroupList: {nil, nil, body[SubscriptionGroupList], nil},
	DeleteSubscriptionGroup:              {header[DeleteSubscriptionGroupRequest], nil, nil, nil},
	GetSubscriptionGroupConfig:           {header[GetSubscriptionGroupConfigRequest], nil, nil, body[SubscriptionGroupConfig]},
	GetAllSubscriptionGroupConfig:        {header[GetAllSubscriptionGroupRequest], header[GetAllSubscriptionGroupResponse], nil, body[SubscriptionGroupWrapper]},
	GetBrokerConfig:                      {nil, header[GetBrokerConfigResponse], nil, nil},
	GetBrokerRuntimeInfo:                 {nil, nil, nil, body[KVTable]},
	GetConsumerConnectionList:            {header[ConsumerGroupRequest], nil, nil, body[ConsumerConnection]},
	GetProducerConnectionList:            {header[ProducerGroupRequest], nil, nil, body[ProducerConnection]},
	GetConsumeStats:                      {header[GetConsumeStatsRequest], nil, nil, body[ConsumeStats]},
	ViewBrokerStatsData:                  {header[ViewBrokerStatsDataRequest], nil, nil, body[BrokerStatsData]},
}
