package protocol

// TopicOffset is how far one queue reaches.
type TopicOffset struct {
	LastUpdateTimestamp int64 `json:"lastUpdateTimestamp"` // ms
	MaxOffset           int64 `json:"maxOffset"`
	MinOffset           int64 `json:"minOffset"`
}

// TopicStatsTable is the body of the answer to GET_TOPIC_STATS_INFO.
type TopicStatsTable struct {
	OffsetTable map[MessageQueue]TopicOffset `json:"offsetTable"`
	TopicPutTPS float64                      `json:"topicPutTps"`
}

// OffsetWrapper is how far a group is in one queue.
type OffsetWrapper struct {
	BrokerOffset   int64 `json:"brokerOffset"`
	ConsumerOffset int64 `json:"consumerOffset"`
	LastTimestamp  int64 `json:"lastTimestamp"` // ms, of the last consumed message
	PullOffset     int64 `json:"pullOffset"`
}

// ConsumeStats is the body of the answer to GET_CONSUME_STATS.
type ConsumeStats struct {
	ConsumeTPS  float64                        `json:"consumeTps"`
	OffsetTable map[MessageQueue]OffsetWrapper `json:"offsetTable"`
}

// GroupList is the body of the answer to QUERY_TOPIC_CONSUME_BY_WHO.
type GroupList struct {
	GroupList []string `json:"groupList"`
}

// BrokerStatsData is the body of the answer to VIEW_BROKER_STATS_DATA.
type BrokerStatsData struct {
	StatsDay    BrokerStatsItem `json:"statsDay"`
	StatsHour   BrokerStatsItem `json:"statsHour"`
	StatsMinute BrokerStatsItem `json:"statsMinute"`
}

// BrokerStatsItem is a counter over one span of time.
type BrokerStatsItem struct {
	AvgPt float64 `json:"avgpt"` // mean per call
	Sum   int64   `json:"sum"`
	TPS   float64 `json:"tps"`
}
