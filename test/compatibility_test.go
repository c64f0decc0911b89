package test

import (
	"bytes"
	"flag"
	"fmt"
	"os"
	"slices"
	"testing"

	"github.com/sluicemq/sluice/broker"
	"github.com/sluicemq/sluice/namesrv"
	"github.com/sluicemq/sluice/protocol"
	"github.com/sluicemq/sluice/sidecar"
)

var update = flag.Bool("update", false, "write docs/COMPATIBILITY.md anew")

// unsupported says why a request code is answered with code 3. A code that a
// role serves must not be here, and one that none serves must.
var unsupported = map[string][]protocol.RequestCode{
	"sent to clients, never to a server": {
		protocol.CheckTransactionState, protocol.NotifyConsumerIDsChanged, protocol.ResetConsumerClientOffset,
		protocol.GetConsumerStatusFromClient, protocol.PushReplyMessageToClient,
	},
	"no server of Apache's answers it either": {
		protocol.QueryBrokerOffset, protocol.GetTopicConfigList, protocol.GetTopicNameList, protocol.TriggerDeleteFiles,
		protocol.GetClientConfig, protocol.SuspendConsumer, protocol.ResumeConsumer, protocol.ResetConsumerOffsetInConsumer,
		protocol.ResetConsumerOffsetInBroker, protocol.AdjustConsumerThreadPool, protocol.WhoConsumeTheMessage,
		protocol.RegisterFilterServer, protocol.RegisterMessageFilterClass,
	},
}

// TestEveryRequestCodeIsServedOrExplained holds docs/COMPATIBILITY.md against
// the roles' own tables.
func TestEveryRequestCodeIsServedOrExplained(t *testing.T) {
	served := map[string][]protocol.RequestCode{
		"name server": namesrv.Codes(), "broker": broker.Codes(), "sidecar": sidecar.Codes(),
	}
	var page bytes.Buffer
	page.WriteString(compatibilityHead)
	for _, code := range protocol.RequestCodes() {
		fmt.Fprintf(&page, "| %d | %s |", code, code)
		any := false
		for _, role := range []string{"name server", "broker", "sidecar"} {
			mark := "  "
			if slices.Contains(served[role], code) {
				mark, any = "x ", true
			}
			fmt.Fprintf(&page, " %s|", mark)
		}
		reason := ""
		for why, codes := range unsupported {
			if slices.Contains(codes, code) {
				reason = why
			}
		}
		switch {
		case any && reason != "":
			t.Errorf("%d %s is served and explained as unsupported (%s)", code, code, reason)
		case !any && reason == "":
			t.Errorf("%d %s is neither served nor explained", code, code)
		}
		fmt.Fprintf(&page, " %s |\n", reason)
	}
	const path = "../docs/COMPATIBILITY.md"
	if *update {
		if err := os.WriteFile(path, page.Bytes(), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	onDisk, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	if !bytes.Equal(onDisk, page.Bytes()) {
		t.Errorf("%s is not what the tables say; write it with go test ./test -run %s -update", path, t.Name())
	}
}

const compatibilityHead = `# What is answered

Every request code of Apache RocketMQ 5.4.0, and which role answers it. A code that is not served is answered with code 3 and the
remark " request type N not supported"; the connection stays open. This page is written by
` + "`go test ./test -run TestEveryRequestCode -update`" + ` from the roles' own tables.

Clients that are driven against these servers by the tests: Java 5.4.0, Java 4.9.8, rocketmq-client-go v2. Both header codings
(JSON and ROCKETMQ) are read, and a request is answered in the coding that it came in. TLS and plain share a port.

| code | name | name server | broker | sidecar | why not |
|---|---|---|---|---|---|
`
