package message

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
)

// Longest names (RocketMQ message model, "Tags code, topics, groups"). A group
// is shorter than a topic so that its retry topics fit.
const (
	MaxTopicNameLen   = 127
	MaxDerivedNameLen = 255 // retry and dead-letter topics
	MaxGroupNameLen   = 120
)

// Topics that brokers use themselves.
const (
	TopicAutoCreate          = "TBW102" // template of topics created by a send
	TopicSchedule            = "SCHEDULE_TOPIC_XXXX"
	TopicBenchmark           = "BenchmarkTest"
	TopicTransactionHalf     = "RMQ_SYS_TRANS_HALF_TOPIC"
	TopicTransactionOp       = "RMQ_SYS_TRANS_OP_HALF_TOPIC"
	TopicTransactionCheckMax = "TRANS_CHECK_MAX_TIME_TOPIC"
	TopicTrace               = "RMQ_SYS_TRACE_TOPIC"
	TopicSelfTest            = "SELF_TEST_TOPIC"
	TopicOffsetMoved         = "OFFSET_MOVED_EVENT"
	TopicCheckpoint          = "CHECKPOINT_TOPIC"
	TopicWheelTimer          = "rmq_sys_wheel_timer"

	SystemTopicPrefix    = "rmq_sys_"
	ReviveTopicPrefix    = "rmq_sys_REVIVE_LOG_"         // + cluster
	SyncMemberPrefix     = "rmq_sys_SYNC_BROKER_MEMBER_" // + broker name
	ReplyTopicSuffix     = "_REPLY_TOPIC"                // cluster +
	RetryPrefix          = "%RETRY%"                     // + group
	DeadLetterPrefix     = "%DLQ%"                       // + group
	LightQueuePrefix     = "%LMQ%"
	SystemGroupPrefix    = "CID_RMQ_SYS_"
	allowedInNames       = "letters, digits and %|_- are allowed"
	maxQuotedNameInError = 64
)

// ErrBadName means that a name cannot be a topic or a group.
var ErrBadName = errors.New("illegal name")

// ValidateTopic checks that name can be a topic: only the characters
// ^[%|a-zA-Z0-9_-]+$ and at most MaxTopicNameLen, or MaxDerivedNameLen for
// retry and dead-letter topics. The error says what is wrong. A valid name is
// always a safe file name.
func ValidateTopic(name string) error {
	limit := MaxTopicNameLen
	if strings.HasPrefix(name, RetryPrefix) || strings.HasPrefix(name, DeadLetterPrefix) {
		limit = MaxDerivedNameLen
	}
	return validateName("topic", name, limit)
}

// ValidateGroup checks that name can be a group of producers or consumers.
func ValidateGroup(name string) error { return validateName("group", name, MaxGroupNameLen) }

func validateName(kind, name string, limit int) error {
	if strings.TrimSpace(name) == "" {
		return fmt.Errorf("%w: the %s is blank", ErrBadName, kind)
	}
	if len(name) > limit {
		return fmt.Errorf("%w: %s %s has %d bytes, at most %d are allowed", ErrBadName, kind, quote(name), len(name), limit)
	}
	for i, r := range name {
		if !nameRune(r) {
			return fmt.Errorf("%w: %s %s has %q at byte %d, only %s", ErrBadName, kind, quote(name), r, i, allowedInNames)
		}
	}
	return nil
}

func nameRune(r rune) bool {
	switch {
	case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9':
		return true
	}
	return r == '%' || r == '|' || r == '_' || r == '-'
}

// quote makes untrusted text safe and short for an error or a log line.
func quote(s string) string {
	if len(s) > maxQuotedNameInError {
		return strconv.QuoteToASCII(s[:maxQuotedNameInError]) + "…"
	}
	return strconv.QuoteToASCII(s)
}

// IsSystemTopic tells whether a topic belongs to the broker itself. Topics
// named after the cluster or the broker are known to the broker only.
func IsSystemTopic(topic string) bool {
	switch topic {
	case TopicAutoCreate, TopicSchedule, TopicBenchmark, TopicTransactionHalf, TopicTransactionOp,
		TopicTransactionCheckMax, TopicTrace, TopicSelfTest, TopicOffsetMoved, TopicCheckpoint:
		return true
	}
	return strings.HasPrefix(topic, SystemTopicPrefix)
}

// IsSendForbidden tells whether clients may not send to a topic.
func IsSendForbidden(topic string) bool {
	switch topic {
	case TopicSchedule, TopicTransactionHalf, TopicTransactionOp, TopicTransactionCheckMax,
		TopicSelfTest, TopicOffsetMoved:
		return true
	}
	return false
}

// IsSystemGroup tells whether a group belongs to brokers or tools.
func IsSystemGroup(group string) bool {
	switch group {
	case "DEFAULT_CONSUMER", "DEFAULT_PRODUCER", "TOOLS_CONSUMER", "SCHEDULE_CONSUMER",
		"FILTERSRV_CONSUMER", "__MONITOR_CONSUMER", "CLIENT_INNER_PRODUCER", "SELF_TEST_P_GROUP",
		"SELF_TEST_C_GROUP", "CID_ONS-HTTP-PROXY", "CID_ONSAPI_PERMISSION", "CID_ONSAPI_OWNER",
		"CID_ONSAPI_PULL":
		return true
	}
	return strings.HasPrefix(group, SystemGroupPrefix)
}

// RetryTopic is the topic of a group's messages that wait for another try.
func RetryTopic(group string) string { return RetryPrefix + group }

// DeadLetterTopic is the topic of a group's messages that were given up.
func DeadLetterTopic(group string) string { return DeadLetterPrefix + group }
