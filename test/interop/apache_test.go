//go:build interop

package interop

import (
	"fmt"
	"strconv"
	"testing"
)

// The programs of this directory do what they should against the servers they
// were made for: what fails elsewhere is then ours.
func TestClientsAgainstApache(t *testing.T) {
	c := startApache(t)
	exchange(t, c.namesrv, c.namesrv)
}

// exchange has every client produce through one name server address and
// consume through another: singly and in batches, everything by another client
// and one tag by itself.
func exchange(t *testing.T, to, from string) {
	t.Helper()
	for i, c := range clients {
		other := clients[(i+1)%len(clients)]
		for _, batch := range []int{1, 8} {
			t.Run(fmt.Sprintf("%s in batches of %d", c.name, batch), func(t *testing.T) {
				topic := fmt.Sprintf("Exchange-%s-%d", c.name, batch)
				sent := c.produce(t, "--namesrv", to, "--topic", topic, "--count", "100", "--batch", fmt.Sprint(batch), "--tags", "A,B,C")
				if len(sent) < 100 {
					t.Fatalf("only %d of 100 acknowledged", len(sent))
				}
				all := other.consume(t, len(sent), "--namesrv", from, "--topic", topic, "--group", topic+"-all")
				checkDelivered(t, sent, all)
				var wanted []acked
				for _, s := range sent {
					if n, err := strconv.Atoi(s.key); err == nil && n%3 == 1 {
						wanted = append(wanted, s)
					}
				}
				some := c.consume(t, len(wanted), "--namesrv", from, "--topic", topic, "--group", topic+"-b", "--tag", "B")
				checkDelivered(t, wanted, some)
			})
		}
	}
}
