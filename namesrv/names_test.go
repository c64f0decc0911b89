package namesrv

import (
	"strings"
	"testing"
)

// TestNamesAtRegistration (fault F59): names that could be paths are refused
// wherever they come in; what Java brokers send is taken.
func TestNamesAtRegistration(t *testing.T) {
	for _, name := range []string{"", ".", "..", "../x", "/etc/x", "a/b", `a\b`, "a\x00b", "a b", "брокер", strings.Repeat("x", 256)} {
		if checkName("broker name", name) == nil {
			t.Errorf("name %q was taken", name)
		}
		if checkTopic(name, "broker-a", "c1") == nil {
			t.Errorf("topic %q was taken", name)
		}
		if checkTopic(name, name, "c1") == nil {
			t.Errorf("topic %q named after its broker was taken", name)
		}
	}
	for _, name := range []string{"DefaultCluster", "broker-a", "host.example.com", "a_b%c|d"} {
		if err := checkName("broker name", name); err != nil {
			t.Error(err)
		}
	}
	for _, topic := range []string{"orders", "%RETRY%g", "%DLQ%g", "%RETRY%g+orders", "host.example.com", "%LMQ%a", "rmq_sys_x"} {
		if err := checkTopic(topic, "host.example.com", "c1"); err != nil {
			t.Error(err)
		}
	}
	for _, topic := range []string{"a+b", "%RETRY%g+a+b", "other.example.com"} {
		if checkTopic(topic, "host.example.com", "c1") == nil {
			t.Errorf("topic %q was taken", topic)
		}
	}
}

func TestAddresses(t *testing.T) {
	for addr, good := range map[string]bool{
		"10.0.0.1:10911": true, "[2001:db8::1]:10911": true, "2001:db8::1:10911": true, "broker.local:1": true,
		"": false, "10.0.0.1": false, ":10911": false, "10.0.0.1:": false, "10.0.0.1:0": false, "10.0.0.1:65536": false,
		"10.0.0.1:x": false, "a/b:1": false, "a b:1": false, strings.Repeat("a", 300) + ":1": false,
	} {
		if err := checkAddr("broker address", addr); (err == nil) != good {
			t.Errorf("%q: %v", addr, err)
		}
	}
}
