//go:build interop

package interop

import (
	"os"
	"path/filepath"
	"testing"
)

// A store is the same directory for Apache's broker and for ours: what one has
// acknowledged the other serves, at the same offsets, after a clean stop and
// after a kill.
func TestStoresChangeHands(t *testing.T) {
	type side struct {
		name  string
		start func(t *testing.T, dir string) *cluster
		store string // of the directory given to start
	}
	apache := side{"apache", startApacheAt, filepath.Join("broker", "store")}
	ours := side{"sluice", startSluiceAt, filepath.Join("broker", "broker")}
	for _, way := range [][2]side{{ours, apache}, {apache, ours}} {
		for _, end := range []string{"stopped", "killed"} {
			t.Run(way[0].name+" "+end+" then "+way[1].name, func(t *testing.T) {
				from, to := t.TempDir(), t.TempDir()
				c := way[0].start(t, from)
				sent := java540.produce(t, "--namesrv", c.namesrv, "--topic", "Store", "--count", "200", "--tags", "A,B,C")
				sent = append(sent, java540.produce(t, "--namesrv", c.namesrv, "--topic", "Store", "--first", "1000", "--count", "200", "--batch", "8")...)
				if end == "killed" {
					c.broker.kill()
				} else if err := c.broker.stop(); err != nil {
					t.Fatal(err)
				}
				if err := os.MkdirAll(filepath.Join(to, "broker"), 0o755); err != nil {
					t.Fatal(err)
				}
				if err := os.Rename(filepath.Join(from, way[0].store), filepath.Join(to, way[1].store)); err != nil {
					t.Fatal(err)
				}
				other := way[1].start(t, to)
				got := java540.consume(t, len(sent), "--namesrv", other.namesrv, "--topic", "Store", "--group", "other")
				checkDelivered(t, sent, got)
				// The queues go on where they ended.
				more := java540.produce(t, "--namesrv", other.namesrv, "--topic", "Store", "--first", "5000", "--count", "40")
				for _, m := range more {
					for _, s := range sent {
						if s.queue == m.queue && m.offset <= s.offset {
							t.Fatalf("queue %d goes on at %d, %d was taken", m.queue, m.offset, s.offset)
						}
					}
				}
			})
		}
	}
}
