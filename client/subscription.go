package client

import (
	"fmt"
	"slices"
	"strings"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

// subscribeAll is the expression for every message.
const subscribeAll = "*"

// A subscription is what a consumer wants of one topic.
type subscription struct {
	topic      string
	expression string
	tags       []string // nil: every message
	version    int64    // ms; a broker keeps the newest
}

// newSubscription reads a tag expression: "*", or tags joined by "||".
func newSubscription(topic, expression string, version int64) (subscription, error) {
	s := subscription{topic: topic, expression: expression, version: version}
	if strings.TrimSpace(expression) == "" || expression == subscribeAll {
		s.expression = subscribeAll
		return s, nil
	}
	for tag := range strings.SplitSeq(expression, "||") {
		if tag = strings.TrimSpace(tag); tag != "" && !slices.Contains(s.tags, tag) {
			s.tags = append(s.tags, tag)
		}
	}
	if len(s.tags) == 0 {
		return s, fmt.Errorf("subscription of %s: no tag in %q", topic, expression)
	}
	return s, nil
}

// matches compares the tag's text: brokers compare hashes only.
func (s *subscription) matches(m *message.Message) bool {
	if s.tags == nil {
		return true
	}
	tag, ok := message.Property(m.Properties, message.PropertyTags)
	if !ok {
		return false
	}
	return slices.ContainsFunc(s.tags, func(want string) bool { return want == string(tag) })
}

// data is the subscription as heartbeats carry it.
func (s *subscription) data() protocol.SubscriptionData {
	d := protocol.SubscriptionData{
		Topic: s.topic, SubString: s.expression, SubVersion: s.version, ExpressionType: protocol.ExpressionTag,
		TagsSet: []string{}, CodeSet: []int32{},
	}
	for _, tag := range s.tags {
		d.TagsSet = append(d.TagsSet, tag)
		d.CodeSet = append(d.CodeSet, int32(message.TagHash([]byte(tag))))
	}
	return d
}
