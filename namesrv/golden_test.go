package namesrv

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/sluicemq/sluice/protocol"
)

// frames decodes recorded frames of Apache RocketMQ, see test/vectors.
func frames(t *testing.T, pattern string) []*protocol.Command {
	t.Helper()
	names, err := filepath.Glob(filepath.Join("..", "protocol", "testdata", "frames", pattern))
	if err != nil || len(names) == 0 {
		t.Fatalf("no recorded frames %s: %v", pattern, err)
	}
	var all []*protocol.Command
	for _, name := range names {
		frame, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		c := new(protocol.Command)
		if err := c.Decode(frame[4:]); err != nil {
			t.Fatalf("%s: %v", name, err)
		}
		all = append(all, c)
	}
	return all
}

// oneOf tells whether a recorded answer is the same as got in code, remark and
// body.
func oneOf(recorded []*protocol.Command, got *protocol.Command) bool {
	for _, c := range recorded {
		if c.Code == got.Code && c.Remark == got.Remark && bytes.Equal(c.Body, got.Body) {
			return true
		}
	}
	return false
}

// TestApacheBroker (fault F67): the frames of Apache's own broker register and
// unregister it, and the answers are those of Apache's name server.
func TestApacheBroker(t *testing.T) {
	for _, coding := range []string{"json", "binary"} {
		t.Run(coding, func(t *testing.T) {
			n := start(t, Options{})
			p := connect(t, n)
			replay := func(pattern string) {
				t.Helper()
				for _, c := range frames(t, coding+pattern) {
					if resp := p.send(c); resp.Err() != nil {
						t.Fatal(resp.Err())
					}
				}
			}
			replay("-103-register-broker-request*.bin")
			routes := frames(t, coding+"-105-*-response*.bin")
			if resp := p.route("TBW102", protocol.CurrentVersion, false); !oneOf(routes, resp) {
				t.Errorf("route of TBW102: %s", resp.Body)
			}
			if old := p.route("TBW102", 317, false); !strings.Contains(string(old.Body), `{0:"`) {
				t.Errorf("route of TBW102 for old clients: %s", old.Body)
			}
			if resp := p.route("NewPlain", protocol.CurrentVersion, false); !oneOf(routes, resp) {
				t.Errorf("unknown topic: %v %q", resp.ResponseCode(), resp.Remark)
			}
			clusters := protocol.NewRequest(protocol.GetBrokerClusterInfo, nil, nil)
			clusters.Version = 317
			if resp := p.send(clusters); !oneOf(frames(t, coding+"-106-*-response*.bin"), resp) {
				t.Errorf("clusters: %s", resp.Body)
			}
			replay("-104-unregister-broker-request*.bin")
			if len(n.routes.live)+len(n.routes.topics)+len(n.routes.clusters) != 0 {
				t.Error("something is left of the broker")
			}
		})
	}
}
