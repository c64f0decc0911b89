package broker

import (
	"fmt"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

// heartbeat registers a consumer as Java's push consumer does.
func (p *peer) heartbeat(client, group string, subscriptions ...protocol.SubscriptionData) *protocol.Command {
	p.t.Helper()
	answer := p.beat(protocol.HeartbeatData{
		ClientID: client, ProducerDataSet: []protocol.ProducerData{},
		ConsumerDataSet: []protocol.ConsumerData{{
			GroupName: group, ConsumeType: protocol.ConsumePassively, MessageModel: protocol.Clustering,
			ConsumeFromWhere: protocol.ConsumeFromLastOffset, SubscriptionDataSet: subscriptions,
		}},
	})
	p.want(answer, protocol.Success)
	return answer
}

func (p *peer) beat(data protocol.HeartbeatData) *protocol.Command {
	p.t.Helper()
	body, err := protocol.Marshal(data)
	if err != nil {
		p.t.Fatal(err)
	}
	return p.call(protocol.Heartbeat, nil, body)
}

// members asks for the clients of a group; none is code 1.
func (p *peer) members(group string) []string {
	p.t.Helper()
	answer := p.call(protocol.GetConsumerListByGroup, &protocol.GetConsumerListByGroupRequest{ConsumerGroup: group}, nil)
	if answer.ResponseCode() == protocol.SystemError {
		return nil
	}
	p.want(answer, protocol.Success)
	var body protocol.GetConsumerListByGroupBody
	p.unmarshal(answer, &body)
	return body.ConsumerIDList
}

// awaitPush waits until the broker tells the client that a group changed.
func (p *peer) awaitPush(group string) {
	p.t.Helper()
	push := receive(p.t, p.pushed, "push")
	var h protocol.NotifyConsumerIDsChangedRequest
	p.decode(push, &h)
	if h.ConsumerGroup != group || !push.IsOneWay() {
		p.t.Fatalf("told of group %q, one-way %v; want %q, one-way", h.ConsumerGroup, push.IsOneWay(), group)
	}
}

// awaitMembers waits until the members are those, over as many pushes as it
// takes: the broker may tell of two changes at once, or of one twice.
func (p *peer) awaitMembers(group, want string) {
	p.t.Helper()
	for fmt.Sprint(p.members(group)) != want {
		p.awaitPush(group)
	}
}

// TestGroupMembership (fault F80): a consumer is listed after one heartbeat and
// gone when it says so or its connection dies, and each time the others are told
// at once.
func TestGroupMembership(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	if got := e.members("g"); got != nil {
		t.Fatalf("members before anyone joined: %q", got)
	}
	first, second, third := e.join(t), e.join(t), e.join(t)
	first.heartbeat("c1", "g", protocol.SubscriptionData{Topic: "t", SubString: "*", SubVersion: 1})
	if got := fmt.Sprint(e.members("g")); got != "[c1]" {
		t.Fatalf("members are %s after one heartbeat", got)
	}
	first.awaitPush("g")
	second.heartbeat("c2", "g", protocol.SubscriptionData{Topic: "t", SubString: "*", SubVersion: 1})
	first.awaitPush("g")
	second.awaitPush("g")
	first.awaitMembers("g", "[c1 c2]")
	third.heartbeat("c3", "g", protocol.SubscriptionData{Topic: "t", SubString: "*", SubVersion: 1})
	first.awaitPush("g")
	first.awaitMembers("g", "[c1 c2 c3]")

	third.must(protocol.UnregisterClient, &protocol.UnregisterClientRequest{ClientID: "c3", ConsumerGroup: "g"}, nil)
	if got := fmt.Sprint(e.members("g")); got != "[c1 c2]" {
		t.Errorf("members are %s after c3 left", got)
	}
	first.awaitPush("g")
	second.leave()
	first.awaitPush("g")
	first.awaitMembers("g", "[c1]")

	// A subscription that changes is a change of the group.
	first.heartbeat("c1", "g", protocol.SubscriptionData{Topic: "t", SubString: "a", SubVersion: 2})
	first.awaitPush("g")
	first.leave()
	eventually(t, "the group is empty", func() bool { return e.members("g") == nil })
}

// TestReconnectWithTheSameClientID (fault F63): the end of a client's old
// connection does not take away what its new one registered.
func TestReconnectWithTheSameClientID(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	old, fresh := e.join(t), e.join(t)
	old.heartbeat("c1", "g")
	fresh.heartbeat("c1", "g")
	fresh.awaitPush("g")
	if got := fmt.Sprint(e.members("g")); got != "[c1]" {
		t.Fatalf("members are %s with two connections of one client", got)
	}
	old.leave()
	eventually(t, "the old connection is gone", func() bool {
		e.members("g")
		return e.broker.clients.Stats().Connections == 1
	})
	if got := fmt.Sprint(e.members("g")); got != "[c1]" {
		t.Errorf("members are %s after the old connection ended", got)
	}
}

// TestClientTablesReturnToNothing (fault F63): groups of clients that are gone
// leave nothing behind.
func TestClientTablesReturnToNothing(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	for i := range 50 {
		p := e.join(t)
		p.want(p.beat(protocol.HeartbeatData{
			ClientID: fmt.Sprint("c", i), ProducerDataSet: []protocol.ProducerData{{GroupName: fmt.Sprint("p", i)}},
			ConsumerDataSet: []protocol.ConsumerData{{GroupName: fmt.Sprint("g", i%5)}},
		}), protocol.Success)
		p.leave()
	}
	eventually(t, "all connections are gone", func() bool {
		e.members("g0")
		return e.broker.clients.Stats().Connections == 0
	})
	if got := e.broker.clients.Stats(); got.Producers+got.Consumers+got.ProducerGroups+got.ConsumerGroups != 0 {
		t.Errorf("left behind: %+v", got)
	}
}

// TestHeartbeatAnswer: it says that fingerprints are understood, and makes the
// group and its retry topic.
func TestHeartbeatAnswer(t *testing.T) {
	e := start(t, t.TempDir(), nil)
	var h protocol.HeartbeatResponse
	e.decode(e.heartbeat("c1", "g"), &h)
	if !h.SupportHeartbeatV2 || !h.SubChange {
		t.Errorf("answer to version 1: %+v", h)
	}
	e.must(protocol.GetSubscriptionGroupConfig, &protocol.GetSubscriptionGroupConfigRequest{Group: "g"}, nil)
	var config protocol.TopicConfig
	e.unmarshal(e.must(protocol.GetTopicConfig, &protocol.TopicRequest{Topic: "%RETRY%g"}, nil), &config)
	if config.ReadQueueNums != 1 || config.WriteQueueNums != 1 || config.Perm != 6 {
		t.Errorf("retry topic: %+v", config)
	}
	// Version 2: the fingerprint alone is enough while nothing changed.
	full := protocol.HeartbeatData{ClientID: "c2", HeartbeatFingerprint: 77, ConsumerDataSet: []protocol.ConsumerData{{
		GroupName: "v2", SubscriptionDataSet: []protocol.SubscriptionData{{Topic: "t", SubString: "*", SubVersion: 1}},
	}}}
	e.decode(e.beat(full), &h)
	if h.SubChange {
		t.Error("the first heartbeat of version 2 is to be repeated")
	}
	short := full
	short.WithoutSub = true
	short.ConsumerDataSet = []protocol.ConsumerData{{GroupName: "v2"}}
	e.decode(e.beat(short), &h)
	if h.SubChange {
		t.Error("a known fingerprint is to be explained")
	}
	short.HeartbeatFingerprint = 78
	e.decode(e.beat(short), &h)
	if !h.SubChange {
		t.Error("a new fingerprint is not to be explained")
	}
	e.want(e.call(protocol.Heartbeat, nil, []byte("{")), protocol.InvalidParameter)
}
