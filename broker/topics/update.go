package topics

import (
	"fmt"
	"maps"
	"strings"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

func systemTopicError(name string) error {
	return protocol.Errorf(protocol.InvalidParameter, "The topic[%s] is conflict with system topic.", name)
}

// Update creates topics, or changes those that exist, as an operator asks
// (request 17 with one, 18 with several): all of them or, when one is refused,
// none. Attributes in the configurations are changes in the form that
// ParseAttributes gives; those not mentioned stay as they are. What already is as
// asked moves no version. Refusals are *protocol.Error with the code for the
// wire.
func (t *Table) Update(configs ...protocol.TopicConfig) error {
	for i := range configs {
		if err := t.checkUpdate(&configs[i]); err != nil {
			return err
		}
	}
	return t.state.Change(func(s *state) (bool, error) {
		// Nothing is put before all are known to be good.
		next, count := make([]*Topic, 0, len(configs)), len(s.topics)
		for _, c := range configs {
			topic, err := t.merge(s.topics[c.TopicName], c)
			if err != nil {
				return false, err
			}
			if topic == nil {
				continue
			}
			next = append(next, topic)
			if s.topics[topic.Name] == nil {
				count++
			}
		}
		if err := t.room(count); err != nil && count > len(s.topics) {
			return false, err
		}
		for _, topic := range next {
			t.putStaged(s, topic)
		}
		return len(next) > 0, nil
	})
}

// merge returns the topic that c makes of old (nil when there is none), or nil
// when that changes nothing.
func (t *Table) merge(old *Topic, c protocol.TopicConfig) (*Topic, error) {
	var current map[string]string
	if old != nil {
		current = old.Attributes
	}
	next, err := applyAttributes(old == nil, current, c.Attributes)
	if err != nil {
		return nil, protocol.Errorf(protocol.InvalidParameter, "topic[%s]: %v", c.TopicName, err)
	}
	c.Attributes = next
	c.TopicName = strings.Clone(c.TopicName)
	topic := t.newTopic(c)
	if old != nil && equalConfig(&old.TopicConfig, &topic.TopicConfig) {
		return nil, nil
	}
	return topic, nil
}

func (t *Table) checkUpdate(c *protocol.TopicConfig) error {
	if err := message.ValidateTopic(c.TopicName); err != nil {
		return protocol.Errorf(protocol.InvalidParameter, "%v", err)
	}
	if t.system(c.TopicName) {
		return systemTopicError(c.TopicName)
	}
	if err := t.checkShape(c); err != nil {
		return protocol.Errorf(protocol.InvalidParameter, "topic[%s]: %v", c.TopicName, err)
	}
	return nil
}

func (t *Table) checkShape(c *protocol.TopicConfig) error {
	switch {
	case c.Perm < protocol.PermWrite || c.Perm > protocol.PermRead|protocol.PermWrite|protocol.PermInherit:
		return fmt.Errorf("perm is %d, want 2 (write), 4 (read) or 6 (both), or one more to be a template", c.Perm)
	case c.ReadQueueNums < 1 || int(c.ReadQueueNums) > t.o.MaxQueues:
		return fmt.Errorf("readQueueNums is %d, want 1 to %d", c.ReadQueueNums, t.o.MaxQueues)
	case c.WriteQueueNums < 1 || int(c.WriteQueueNums) > t.o.MaxQueues:
		return fmt.Errorf("writeQueueNums is %d, want 1 to %d", c.WriteQueueNums, t.o.MaxQueues)
	case c.TopicFilterType != "" && c.TopicFilterType != protocol.SingleTag && c.TopicFilterType != protocol.MultiTag:
		return fmt.Errorf("topicFilterType is %q, want %s or %s", c.TopicFilterType, protocol.SingleTag, protocol.MultiTag)
	}
	return nil
}

// checkStored says whether a topic that did not come by a request may be in the
// table. A name becomes a directory: besides the characters of requests only
// the "+" of Apache's pop retry topics is allowed.
func (t *Table) checkStored(c *protocol.TopicConfig) error {
	if err := message.ValidateTopic(strings.ReplaceAll(c.TopicName, "+", "_")); err != nil {
		return err
	}
	if c.ReadQueueNums < 0 || c.WriteQueueNums < 0 {
		return fmt.Errorf("has %d read and %d write queues", c.ReadQueueNums, c.WriteQueueNums)
	}
	return nil
}

// attributes lists the topic attributes that this broker knows, with the values
// it can honour (RocketMQ remoting protocol, "topic attributes").
var attributes = map[string]attribute{
	"message.type":   {values: []string{"UNSPECIFIED", "NORMAL", "FIFO", "DELAY", "TRANSACTION", "MIXED"}, changeable: true},
	"queue.type":     {values: []string{"SimpleCQ"}},
	"cleanup.policy": {values: []string{"DELETE"}},
}

type attribute struct {
	values     []string
	changeable bool
}

// ParseAttributes reads the list of attribute changes in a request, such as
// "+message.type=FIFO,-queue.type". In the result, keys keep their sign; a
// deletion has an empty value.
func ParseAttributes(list string) (map[string]string, error) {
	changes := map[string]string{}
	if strings.TrimSpace(list) == "" {
		return changes, nil
	}
	for item := range strings.SplitSeq(list, ",") {
		key, value, set := strings.Cut(strings.TrimSpace(item), "=")
		key, value = strings.TrimSpace(key), strings.TrimSpace(value)
		switch {
		case set && !strings.HasPrefix(key, "+"):
			return nil, protocol.Errorf(protocol.InvalidParameter, "attribute %q: want +name=value", item)
		case !set && !strings.HasPrefix(key, "-"):
			return nil, protocol.Errorf(protocol.InvalidParameter, "attribute %q: want +name=value or -name", item)
		}
		if _, twice := changes[key]; twice {
			return nil, protocol.Errorf(protocol.InvalidParameter, "attribute %q is there twice", key)
		}
		changes[key] = value
	}
	return changes, nil
}

// applyAttributes returns current with the changes made.
func applyAttributes(create bool, current, changes map[string]string) (map[string]string, error) {
	if len(changes) == 0 {
		return current, nil
	}
	next := maps.Clone(current)
	if next == nil {
		next = map[string]string{}
	}
	for signed, value := range changes {
		name, add := strings.CutPrefix(signed, "+")
		if !add {
			var remove bool
			if name, remove = strings.CutPrefix(signed, "-"); !remove {
				return nil, fmt.Errorf("attribute %q: want a name that begins with + or -", signed)
			}
		}
		if _, both := changes["-"+name]; add && both {
			return nil, fmt.Errorf("attribute %q is both set and removed", name)
		}
		if err := checkAttribute(name, value, add, create, current); err != nil {
			return nil, err
		}
		if add {
			next[name] = value
		} else {
			delete(next, name)
		}
	}
	return next, nil
}

func checkAttribute(name, value string, add, create bool, current map[string]string) error {
	known, ok := attributes[name]
	old, exists := current[name]
	switch {
	case !ok:
		return fmt.Errorf("attribute %q is unknown", name)
	case create && !add:
		return fmt.Errorf("attribute %q cannot be removed from a topic that does not exist", name)
	case !add && !exists:
		return fmt.Errorf("attribute %q cannot be removed: it is not set", name)
	case !create && !known.changeable && (!add || value != old):
		return fmt.Errorf("attribute %q cannot change once the topic exists", name)
	}
	if !add {
		return nil
	}
	for _, v := range known.values {
		if v == value {
			return nil
		}
	}
	return fmt.Errorf("attribute %q is %q, want one of %s", name, value, strings.Join(known.values, ", "))
}
