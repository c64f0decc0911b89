package topics_test

import (
	"fmt"
	"maps"
	"testing"

	"github.com/sluicemq/sluice/broker/topics"
	"github.com/sluicemq/sluice/protocol"
)

func TestUpdateChecksTheShape(t *testing.T) {
	tests := []struct {
		name string
		edit func(*protocol.TopicConfig)
		ok   bool
	}{
		{"as it is", func(*protocol.TopicConfig) {}, true},
		{"write only", func(c *protocol.TopicConfig) { c.Perm = 2 }, true},
		{"read only", func(c *protocol.TopicConfig) { c.Perm = 4 }, true},
		{"template", func(c *protocol.TopicConfig) { c.Perm = 7 }, true},
		{"no perm", func(c *protocol.TopicConfig) { c.Perm = 0 }, false},
		{"inheritance alone", func(c *protocol.TopicConfig) { c.Perm = 1 }, false},
		{"perm beyond", func(c *protocol.TopicConfig) { c.Perm = 8 }, false},
		{"perm negative", func(c *protocol.TopicConfig) { c.Perm = -2 }, false},
		{"no read queue", func(c *protocol.TopicConfig) { c.ReadQueueNums = 0 }, false},
		{"negative write queues", func(c *protocol.TopicConfig) { c.WriteQueueNums = -1 }, false},
		{"most queues", func(c *protocol.TopicConfig) { c.WriteQueueNums = 1024 }, true},
		{"too many queues", func(c *protocol.TopicConfig) { c.WriteQueueNums = 1025 }, false},
		{"multi tag", func(c *protocol.TopicConfig) { c.TopicFilterType = "MULTI_TAG" }, true},
		{"no filter type", func(c *protocol.TopicConfig) { c.TopicFilterType = "" }, true},
		{"other filter type", func(c *protocol.TopicConfig) { c.TopicFilterType = "SQL" }, false},
	}
	for _, tt := range tests {
		t.Run(tt.name, func(t *testing.T) {
			table, _ := fresh(t)
			c := config("t")
			tt.edit(&c)
			err := table.Update(c)
			if _, exists := table.Get("t"); (err == nil) != tt.ok || exists != tt.ok {
				t.Errorf("error %v, exists %v", err, exists)
			}
			if err != nil {
				wantCode(t, err, protocol.InvalidParameter)
			}
		})
	}
}

func TestUpdateWithNothingNewMovesNoVersion(t *testing.T) {
	table, _ := fresh(t)
	c := config("t")
	c.Attributes = map[string]string{"+message.type": "FIFO"}
	if err := table.Update(c); err != nil {
		t.Fatal(err)
	}
	before := table.Version()
	for _, attributes := range []map[string]string{nil, {"+message.type": "FIFO"}} {
		c.Attributes = attributes
		if err := table.Update(c); err != nil {
			t.Fatal(err)
		}
		if v := table.Version(); v != before {
			t.Errorf("attributes %v: version %v became %v", attributes, before, v)
		}
	}
	c.WriteQueueNums = 5
	if err := table.Update(c); err != nil {
		t.Fatal(err)
	}
	if v := table.Version(); v.Counter != before.Counter+1 {
		t.Errorf("a change moved the counter from %d to %d", before.Counter, v.Counter)
	}
}

func TestUpdateOfSeveralIsAllOrNothing(t *testing.T) {
	table, _ := fresh(t)
	bad := config("bad")
	bad.Attributes = map[string]string{"-message.type": ""}
	if err := table.Update(config("good"), bad); err == nil {
		t.Fatal("no refusal")
	}
	if _, ok := table.Get("good"); ok {
		t.Error("half of the update happened")
	}
}

func TestParseAttributes(t *testing.T) {
	tests := []struct {
		list string
		want map[string]string // nil is a refusal
	}{
		{"", map[string]string{}},
		{" ", map[string]string{}},
		{"+message.type=FIFO", map[string]string{"+message.type": "FIFO"}},
		{"+message.type=FIFO, -queue.type", map[string]string{"+message.type": "FIFO", "-queue.type": ""}},
		{"message.type=FIFO", nil},
		{"-message.type=FIFO", nil},
		{"+message.type", nil},
		{"message.type", nil},
		{"+a=1,+a=2", nil},
		{"+a=1,,", nil},
	}
	for _, tt := range tests {
		got, err := topics.ParseAttributes(tt.list)
		if (err != nil) != (tt.want == nil) || err == nil && !maps.Equal(got, tt.want) {
			t.Errorf("%q: %v, %v; want %v", tt.list, got, err, tt.want)
		}
		if err != nil {
			wantCode(t, err, protocol.InvalidParameter)
		}
	}
}

func TestAttributesChangeByTheirRules(t *testing.T) {
	tests := []struct {
		steps []map[string]string
		want  map[string]string // nil: the last step is refused
	}{
		{[]map[string]string{{"+message.type": "DELAY"}}, map[string]string{"message.type": "DELAY"}},
		{[]map[string]string{{"+message.type": "delay"}}, nil},
		{[]map[string]string{{"+no.such": "x"}}, nil},
		{[]map[string]string{{"message.type": "FIFO"}}, nil},
		{[]map[string]string{{"-message.type": ""}}, nil},
		{[]map[string]string{{}, {"-message.type": ""}}, nil},
		{[]map[string]string{{"+message.type": "FIFO"}, {"+message.type": "NORMAL"}}, map[string]string{"message.type": "NORMAL"}},
		{[]map[string]string{{"+message.type": "FIFO"}, {}}, map[string]string{"message.type": "FIFO"}},
		{[]map[string]string{{"+message.type": "FIFO"}, {"-message.type": ""}}, map[string]string{}},
		{[]map[string]string{{"+message.type": "FIFO"}, {"+message.type": "NORMAL", "-message.type": ""}}, nil},
		{[]map[string]string{{"+queue.type": "SimpleCQ"}}, map[string]string{"queue.type": "SimpleCQ"}},
		{[]map[string]string{{"+queue.type": "BatchCQ"}}, nil},
		{[]map[string]string{{"+queue.type": "SimpleCQ"}, {"-queue.type": ""}}, nil},
		{[]map[string]string{{}, {"+queue.type": "SimpleCQ"}}, nil},
	}
	for _, tt := range tests {
		t.Run(fmt.Sprint(tt.steps), func(t *testing.T) {
			table, _ := fresh(t)
			var err error
			for i, step := range tt.steps {
				c := config("t")
				c.Attributes = step
				if err = table.Update(c); err != nil && i < len(tt.steps)-1 {
					t.Fatal(err)
				}
			}
			if (err != nil) != (tt.want == nil) {
				t.Fatalf("error %v", err)
			}
			if err != nil {
				wantCode(t, err, protocol.InvalidParameter)
				return
			}
			if topic, _ := table.Get("t"); !maps.Equal(topic.Attributes, tt.want) {
				t.Errorf("attributes %v, want %v", topic.Attributes, tt.want)
			}
		})
	}
}
