package namesrv

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/protocol/message"
)

const (
	maxNameLen    = 255 // bytes of broker and cluster names, addresses, keys
	maxValueLen   = 64 << 10
	maxQueueCount = 1 << 16
	maxEcho       = 300 // bytes of a name that an answer repeats
)

// checkName accepts what Java brokers use as cluster and broker names and as
// keys: the characters of topics and, since host names are among them, dots and
// colons. None of it leaves a directory.
func checkName(kind, name string) error {
	if name == "" {
		return protocol.Errorf(protocol.SystemError, "the %s is blank", kind)
	}
	if len(name) > maxNameLen {
		return protocol.Errorf(protocol.SystemError, "the %s %s has %d bytes, at most %d are allowed",
			kind, quote(name), len(name), maxNameLen)
	}
	if name == "." || name == ".." {
		return protocol.Errorf(protocol.SystemError, "the %s %q is not allowed", kind, name)
	}
	for i, r := range name {
		if !isNameRune(r) && r != '.' && r != ':' {
			return protocol.Errorf(protocol.SystemError,
				"the %s %s has %q at byte %d, only letters, digits and %%|_-.: are allowed", kind, quote(name), r, i)
		}
	}
	return nil
}

func isNameRune(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' ||
		r == '%' || r == '|' || r == '_' || r == '-'
}

// checkAddr accepts host:port; the host may be a name, IPv4, or IPv6 with or
// without brackets, as Java brokers write it.
func checkAddr(kind, addr string) error {
	i := strings.LastIndexByte(addr, ':')
	if len(addr) > maxNameLen || i <= 0 {
		return protocol.Errorf(protocol.SystemError, "the %s %s is not host:port", kind, quote(addr))
	}
	port, err := strconv.ParseUint(addr[i+1:], 10, 16)
	if err != nil || port == 0 {
		return protocol.Errorf(protocol.SystemError, "the %s %s has no valid port", kind, quote(addr))
	}
	for _, r := range addr[:i] {
		if !isNameRune(r) && !strings.ContainsRune(".:[]", r) {
			return protocol.Errorf(protocol.SystemError, "the %s %s has %q in its host", kind, quote(addr), r)
		}
	}
	return nil
}

// checkTopic accepts a topic that a broker registers or an administrator names.
// Beyond the rules for clients, brokers have topics named after themselves and
// pop retry topics, %RETRY%<group>+<topic>.
func checkTopic(topic string, broker, cluster string) error {
	if topic == broker || topic == cluster {
		return checkName("topic", topic)
	}
	name := topic
	if strings.HasPrefix(name, message.RetryPrefix) {
		name = strings.Replace(name, "+", "_", 1)
	}
	if err := message.ValidateTopic(name); err != nil {
		return protocol.Errorf(protocol.SystemError, "%v", err)
	}
	return nil
}

// checkQueues refuses queue counts that would make clients build absurd tables.
func checkQueues(read, write int32) error {
	if read < 0 || write < 0 || read > maxQueueCount || write > maxQueueCount {
		return fmt.Errorf("%d read and %d write queues, at most %d are allowed", read, write, maxQueueCount)
	}
	return nil
}

// quote makes a name from the network safe and short for an error.
func quote(s string) string {
	return strconv.QuoteToASCII(s[:min(len(s), 64)])
}
