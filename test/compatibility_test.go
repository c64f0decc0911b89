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
	"messages are not indexed, so none is found by key or id":              {12, 33},
	"there is no delayed delivery; such messages are refused":              {45, 60, 61, 370},
	"there are no transactions; half messages are refused":                 {37, 323},
	"the broker does not take messages back; consumers retry on their own": {36},
	"there are no queue locks, so no orderly consumption across clients":   {41, 42},
	"only tags filter": {46},
	"there are no statistics of topics and groups beyond runtime info and metrics": {202, 203, 204, 208, 300, 303, 315, 317, 328, 343, 345, 353},
	"offsets are moved by clients only":                                            {222, 223, 308, 314},
	"nothing is relayed to clients":                                                {307, 309},
	"one topic or group a request":                                                 {18, 225},
	"settings are in the configuration file, which is reloaded":                    {25, 318, 319},
	"retention needs no request":                                                   {306, 316, 329},
	"the queue is read by pulling":                                                 {321},
	"there is no request-reply":                                                    {324, 325},
	"there are no unit topics":                                                     {311, 312, 313},
	"there is no replication":                                                      {43, 906, 907, 908, 905, 1007, 1008},
	"there is no pop consumption and no server-side rebalance":                     {200050, 200051, 200052, 200053, 200054, 200055, 200056, 200151, 400, 401, 402},
	"there are no static topics":                                                   {513},
	"there is no container of brokers":                                             {902, 903},
	"there is no controller":                                                       {1001, 1002, 1003, 1004, 1005, 1006, 1009, 1010, 1011, 1012, 1013},
	"nothing is kept in RocksDB":                                                   {354, 355},
	"reads are not throttled":                                                      {2001, 2002, 2003, 2004},
	"there are no users and no access rules":                                       {3001, 3002, 3003, 3004, 3005, 3006, 3007, 3008, 3009, 3010},
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
