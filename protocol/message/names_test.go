package message

import (
	"errors"
	"strings"
	"testing"
)

// TestNamesThatAreNoPaths (fault F59): nothing that could leave a directory or
// break a file name is a topic or a group.
func TestNamesThatAreNoPaths(t *testing.T) {
	for _, name := range []string{"", " ", "\t\n", ".", "..", "../x", "../../../fuzz2019", "/etc/x", "a/b", `a\b`,
		"a\x00b", "a b", "a.b", "a:b", "naïve", "тема", "a\xff", "a+b", "a\n"} {
		if err := ValidateTopic(name); !errors.Is(err, ErrBadName) {
			t.Errorf("topic %q: %v", name, err)
		}
		if err := ValidateGroup(name); !errors.Is(err, ErrBadName) {
			t.Errorf("group %q: %v", name, err)
		}
	}
	for _, name := range []string{"a", "A-b_c|d%e", "0", "CON", "%LMQ%x", "ns%topic"} {
		if err := ValidateTopic(name); err != nil {
			t.Error(err)
		}
		if err := ValidateGroup(name); err != nil {
			t.Error(err)
		}
	}
}

func TestNameLengths(t *testing.T) {
	for _, c := range []struct {
		check  func(string) error
		prefix string
		limit  int
	}{
		{ValidateTopic, "", 127},
		{ValidateTopic, RetryPrefix, 255},
		{ValidateTopic, DeadLetterPrefix, 255},
		{ValidateGroup, "", 120},
		{ValidateGroup, RetryPrefix, 120},
	} {
		name := c.prefix + strings.Repeat("x", c.limit-len(c.prefix))
		if err := c.check(name); err != nil {
			t.Errorf("%d bytes: %v", len(name), err)
		}
		if err := c.check(name + "x"); !errors.Is(err, ErrBadName) {
			t.Errorf("%d bytes: %v", len(name)+1, err)
		}
	}
}

func TestNameErrorsSayWhatIsWrong(t *testing.T) {
	for name, want := range map[string]string{
		"a/b":                    `"a/b" has '/' at byte 1`,
		"a\x00b":                 `"a\x00b" has '\x00' at byte 1`,
		"":                       "blank",
		strings.Repeat("x", 200): "has 200 bytes, at most 127",
	} {
		if err := ValidateTopic(name); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%q: %v, want %q", name, err, want)
		}
	}
	if err := ValidateTopic(strings.Repeat("x", 1<<20)); len(err.Error()) > 200 {
		t.Errorf("error of %d bytes", len(err.Error()))
	}
}

func TestSystemNames(t *testing.T) {
	for name, want := range map[string][2]bool{ // system, not to be sent to
		TopicSchedule: {true, true}, TopicTransactionHalf: {true, true}, TopicTransactionOp: {true, true},
		TopicTransactionCheckMax: {true, true}, TopicSelfTest: {true, true}, TopicOffsetMoved: {true, true},
		TopicAutoCreate: {true, false}, TopicBenchmark: {true, false}, TopicTrace: {true, false},
		TopicWheelTimer: {true, false}, "rmq_sys_anything": {true, false}, "orders": {false, false},
		RetryTopic("g"): {false, false}, DeadLetterTopic("g"): {false, false},
	} {
		if got := [2]bool{IsSystemTopic(name), IsSendForbidden(name)}; got != want {
			t.Errorf("%s: %v, want %v", name, got, want)
		}
	}
	for name, want := range map[string]bool{"DEFAULT_CONSUMER": true, "CID_RMQ_SYS_TRANS": true, "mine": false} {
		if got := IsSystemGroup(name); got != want {
			t.Errorf("%s: %v", name, got)
		}
	}
}
