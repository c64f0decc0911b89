package crash

import (
	"context"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"github.com/sluicemq/sluice/protocol"
)

const shortKills = 4

func TestBrokerKeepsItsPromisesWhenKilled(t *testing.T) {
	if testing.Short() {
		t.Skip("starts and kills processes")
	}
	for _, flush := range []string{"sync", "async"} {
		t.Run("flush "+flush, func(t *testing.T) {
			t.Parallel()
			killBroker(t, flush, shortKills, 2000)
		})
	}
}

// A server is a name server and a broker in one process.
type server struct {
	t                       *testing.T
	namesrv, broker, config string
	child                   *child
}

func newServer(t *testing.T, flush string) *server {
	t.Helper()
	s := &server{t: t, namesrv: freeAddr(t), broker: freeAddr(t)}
	s.config = writeConfig(t, "broker", `
roles: [namesrv, broker]
data: %s
namesrv: {listen: "%s"}
broker: {listen: "%s", namesrv: ["%s"], flush: %s, max_message: 256KiB, store: {segment: 1MiB}}
`, t.TempDir(), s.namesrv, s.broker, s.namesrv, flush)
	return s
}

// start launches the server and waits until it answers.
func (s *server) start() time.Duration {
	s.t.Helper()
	s.child = launch(s.t, "broker", s.config)
	return s.child.ready(brokerAnswers(s.broker))
}

// routed waits until the name server leads clients of the topic to the broker.
func (s *server) routed() {
	s.t.Helper()
	s.child.ready(func(ctx context.Context) error {
		answer, err := ask(ctx, s.namesrv, protocol.GetRouteInfoByTopic, &protocol.GetRouteInfoRequest{Topic: topic})
		if err == nil {
			err = answer.Err()
		}
		if err != nil {
			return err
		}
		var route protocol.TopicRouteData
		if err := protocol.Unmarshal(answer.Body, &route); err != nil {
			return err
		}
		if len(route.BrokerDatas) != 1 || route.BrokerDatas[0].BrokerAddrs[0] != s.broker {
			return fmt.Errorf("the route is %+v", route)
		}
		return nil
	})
}

// killBroker loads a broker and kills it, again and again, at a moment between
// none and most acknowledgements, every fifth time also while it starts.
func killBroker(t *testing.T, flush string, kills, most int) {
	s, l := newServer(t, flush), newLedger()
	took := s.start()
	t.Logf("ready on an empty store after %v", took.Round(time.Millisecond))
	total := 0
	for kill := range kills {
		load := startLoad(t, l, s.broker, "", nil)
		load.await(l.more(1 + rand.IntN(most)))
		s.child.kill()
		load.end()
		if kill%5 == 1 {
			killWhileStarting(s)
		}
		took := s.start()
		name := fmt.Sprintf("kill %d", kill+1)
		t.Logf("%s: ready after %v", name, took.Round(time.Millisecond))
		s.routed()
		now := l.check(t, name, readAll(t, name, s.broker, l.ends()))
		if now < total {
			t.Errorf("%s: %d messages are stored, there were %d before", name, now, total)
		}
		if total = now; t.Failed() {
			return
		}
	}
	s.child.stop()
	took = s.start()
	t.Logf("ready after a clean stop after %v", took.Round(time.Millisecond))
	if now := l.check(t, "clean stop", readAll(t, "clean stop", s.broker, l.ends())); now != total {
		t.Errorf("a clean stop changed the number of messages from %d to %d", total, now)
	}
	s.child.stop()
}

// killWhileStarting kills a server at some moment of its recovery.
func killWhileStarting(s *server) {
	s.child = launch(s.t, "broker", s.config)
	moment := time.NewTimer(time.Duration(rand.IntN(40)) * time.Millisecond)
	defer moment.Stop()
	select {
	case <-moment.C:
	case <-s.child.ended:
		s.t.Errorf("the broker ended by itself: %v", s.child.err)
	}
	s.child.kill()
}
