package upstream

import (
	"testing"

	"github.com/sluicemq/sluice/client/clienttest"
	"github.com/sluicemq/sluice/protocol"
)

// BenchmarkPack is what the sender itself does per message of 1 KiB.
func BenchmarkPack(b *testing.B) {
	ms := spooled(0, 1000)
	for i := range ms {
		ms[i].Body = make([]byte, 1024)
		ms[i].SetProperty("WAIT", "true")
	}
	var f frame
	packed := 0
	b.ReportAllocs()
	for b.Loop() {
		if err := f.pack(ms, 1<<20, 0); err != nil {
			b.Fatal(err)
		}
		packed += f.count
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(packed), "ns/msg")
}

// BenchmarkRocketMQSend drains into a broker that answers at once.
func BenchmarkRocketMQSend(b *testing.B) {
	cluster := clienttest.New(b, 1, 1)
	cluster.Broker("broker-a").CreateTopic("orders", 1)
	stored := clienttest.Verdict{Answer: protocol.NewResponse(protocol.Success, "", &protocol.SendMessageResponse{MsgID: "x"}, nil)}
	cluster.Control(protocol.SendBatchMessage, func(clienttest.Request) clienttest.Verdict { return stored })
	s, err := NewRocketMQ(RocketMQOptions{NameServers: cluster.NameServers()})
	if err != nil {
		b.Fatal(err)
	}
	running(b, s)
	ms := spooled(0, 1000)
	for i := range ms {
		ms[i].Body = make([]byte, 1024)
	}
	b.ReportAllocs()
	for b.Loop() {
		if n, err := s.Send(b.Context(), "orders", 0, ms); n != len(ms) || err != nil {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/float64(len(ms)), "ns/msg")
}

// BenchmarkNATSSend drains into a JetStream server in this process.
func BenchmarkNATSSend(b *testing.B) {
	j := startJetStream(b)
	s := edge(b, j)
	next := 0
	b.ReportAllocs()
	for b.Loop() {
		b.StopTimer()
		ms := spooled(next, next+1000)
		for i := range ms {
			ms[i].Body = make([]byte, 1024)
		}
		next += len(ms)
		b.StartTimer()
		if n, err := s.Send(b.Context(), "orders", 0, ms); n != len(ms) || err != nil {
			b.Fatal(n, err)
		}
	}
	b.ReportMetric(float64(b.Elapsed().Nanoseconds())/float64(b.N)/1000, "ns/msg")
}

// BenchmarkEncode is what the sender adds to the library's work per message.
func BenchmarkEncode(b *testing.B) {
	s, err := NewNATS(NATSOptions{URL: "nats://127.0.0.1:4222", Stream: "EDGE"})
	if err != nil {
		b.Fatal(err)
	}
	m := spooled(0, 1)[0]
	e := s.newEncoder()
	e.begin("sluice.orders", "orders", 3)
	b.ReportAllocs()
	for b.Loop() {
		e.encode(&m)
	}
}
