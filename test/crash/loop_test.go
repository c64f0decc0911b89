//go:build crash

package crash

import (
	"flag"
	"math/rand/v2"
	"testing"
)

var killsFlag = flag.Int("kills", 100, "how often the loops kill")

func TestBrokerLoop(t *testing.T) {
	for _, flush := range []string{"sync", "async"} {
		t.Run("flush "+flush, func(t *testing.T) { killBroker(t, flush, *killsFlag, 2000) })
	}
}

func TestSidecarLoop(t *testing.T) {
	for _, flush := range []string{"sync", "async"} {
		t.Run("flush "+flush, func(t *testing.T) {
			kills := make([]victim, *killsFlag)
			for i := range kills {
				kills[i] = victim(rand.IntN(int(victims)))
			}
			killSidecar(t, flush, kills, 1500)
		})
	}
}

func TestFullSidecarLoop(t *testing.T) {
	kills := make([]victim, *killsFlag)
	for i := range kills {
		kills[i] = victim(rand.IntN(int(victims)))
	}
	killFullSidecar(t, kills, 3000)
}
