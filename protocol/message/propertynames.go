package message

// Names of properties that have a meaning to clients or brokers (RocketMQ
// message model, "Property names").
const (
	PropertyKeys                      = "KEYS" // separated by one space
	PropertyTags                      = "TAGS"
	PropertyWait                      = "WAIT" // "false": do not wait for flush and replicas
	PropertyDelay                     = "DELAY"
	PropertyRetryTopic                = "RETRY_TOPIC"
	PropertyRealTopic                 = "REAL_TOPIC"
	PropertyRealQueueID               = "REAL_QID"
	PropertyTransactionPrepared       = "TRAN_MSG"
	PropertyProducerGroup             = "PGROUP"
	PropertyMinOffset                 = "MIN_OFFSET"
	PropertyMaxOffset                 = "MAX_OFFSET"
	PropertyBuyerID                   = "BUYER_ID"
	PropertyTransferFlag              = "TRANSFER_FLAG"
	PropertyCorrectionFlag            = "CORRECTION_FLAG"
	PropertyMQ2Flag                   = "MQ2_FLAG"
	PropertyOriginMessageID           = "ORIGIN_MESSAGE_ID"
	PropertyReconsumeTime             = "RECONSUME_TIME"
	PropertyMaxReconsumeTimes         = "MAX_RECONSUME_TIMES"
	PropertyMessageRegion             = "MSG_REGION"
	PropertyTraceOn                   = "TRACE_ON"
	PropertyUniqueKey                 = "UNIQ_KEY"
	PropertyExtendUniqueInfo          = "EXTEND_UNIQ_INFO"
	PropertyConsumeStartTime          = "CONSUME_START_TIME"
	PropertyInnerNum                  = "INNER_NUM"
	PropertyInnerBase                 = "INNER_BASE"
	PropertyDupInfo                   = "DUP_INFO"
	PropertyCheckImmunityTime         = "CHECK_IMMUNITY_TIME_IN_SECONDS"
	PropertyTransactionPreparedOffset = "TRAN_PREPARED_QUEUE_OFFSET"
	PropertyTransactionCheckTimes     = "TRANSACTION_CHECK_TIMES"
	PropertyTransactionID             = "__transactionId__"
	PropertyInstanceID                = "INSTANCE_ID"
	PropertyCorrelationID             = "CORRELATION_ID"
	PropertyReplyToClient             = "REPLY_TO_CLIENT"
	PropertyTTL                       = "TTL"
	PropertyCluster                   = "CLUSTER"
	PropertyMessageType               = "MSG_TYPE"
	PropertyArriveTime                = "ARRIVE_TIME"
	PropertyPushReplyTime             = "PUSH_REPLY_TIME"
	PropertyPopCheckPoint             = "POP_CK"
	PropertyPopCheckPointOffset       = "POP_CK_OFFSET"
	PropertyFirstPopTime              = "1ST_POP_TIME"
	PropertyShardingKey               = "__SHARDINGKEY"
	PropertyForwardQueueID            = "PROPERTY_FORWARD_QUEUE_ID"
	PropertyRedirect                  = "REDIRECT"
	PropertyInnerMultiDispatch        = "INNER_MULTI_DISPATCH"
	PropertyInnerMultiQueueOffset     = "INNER_MULTI_QUEUE_OFFSET"
	PropertyTraceContext              = "TRACE_CONTEXT"
	PropertyTimerDelaySeconds         = "TIMER_DELAY_SEC"
	PropertyTimerDelayMillis          = "TIMER_DELAY_MS"
	PropertyTimerDeliverMillis        = "TIMER_DELIVER_MS"
	PropertyTimerEnqueueMillis        = "TIMER_ENQUEUE_MS"
	PropertyTimerDequeueMillis        = "TIMER_DEQUEUE_MS"
	PropertyTimerRollTimes            = "TIMER_ROLL_TIMES"
	PropertyTimerOutMillis            = "TIMER_OUT_MS"
	PropertyTimerDeleteUniqueKey      = "TIMER_DEL_UNIQKEY"
	PropertyTimerDelayLevel           = "TIMER_DELAY_LEVEL"
	PropertyBornHost                  = "__BORNHOST"
	PropertyBornTimestamp             = "BORN_TIMESTAMP"
	PropertyDeadLetterOriginTopic     = "DLQ_ORIGIN_TOPIC"
	PropertyDeadLetterOriginMessageID = "DLQ_ORIGIN_MESSAGE_ID"
	PropertyTransientPrefix           = "__RMQ.TRANSIENT." // never stored
)

// IsSystemProperty tells whether applications may not set a property of this
// name.
func IsSystemProperty(name string) bool {
	switch name {
	case PropertyTraceOn, PropertyMessageRegion, PropertyKeys, PropertyTags, PropertyWait, PropertyDelay,
		PropertyRetryTopic, PropertyRealTopic, PropertyRealQueueID, PropertyTransactionPrepared,
		PropertyProducerGroup, PropertyMinOffset, PropertyMaxOffset, PropertyBuyerID,
		PropertyOriginMessageID, PropertyTransferFlag, PropertyCorrectionFlag, PropertyMQ2Flag,
		PropertyReconsumeTime, PropertyUniqueKey, PropertyMaxReconsumeTimes, PropertyConsumeStartTime,
		PropertyPopCheckPoint, PropertyPopCheckPointOffset, PropertyFirstPopTime,
		PropertyTransactionPreparedOffset, PropertyDupInfo, PropertyExtendUniqueInfo, PropertyInstanceID,
		PropertyCorrelationID, PropertyReplyToClient, PropertyTTL, PropertyPushReplyTime, PropertyCluster,
		PropertyMessageType, PropertyInnerMultiQueueOffset, PropertyTimerDelayMillis,
		PropertyTimerDelaySeconds, PropertyTimerDeliverMillis, PropertyTimerEnqueueMillis,
		PropertyTimerDequeueMillis, PropertyTimerRollTimes, PropertyTimerOutMillis,
		PropertyTimerDeleteUniqueKey, PropertyTimerDelayLevel, PropertyBornHost, PropertyBornTimestamp,
		PropertyDeadLetterOriginTopic, PropertyDeadLetterOriginMessageID, PropertyCRC32:
		return true
	}
	return false
}
