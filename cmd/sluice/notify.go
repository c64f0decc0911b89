package main

import (
	"fmt"
	"log/slog"
	"time"

	"github.com/coreos/go-systemd/v22/daemon"
)

// A notifier tells systemd about the state of the service. Without NOTIFY_SOCKET it tells
// nobody.
type notifier struct{ log *slog.Logger }

func (n notifier) tell(state string) {
	if _, err := daemon.SdNotify(false, state); err != nil {
		n.log.Warn("systemd not notified", "state", state, "err", err)
	}
}

// extension is the time that a start asks for, again and again, while it recovers stores.
const extension = 30 * time.Second

// whileStarting keeps systemd patient until the returned function is called: recovery of a
// large store after a crash must not be killed as a failed start.
func (n notifier) whileStarting() (done func()) {
	stop, stopped := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(stopped)
		ticker := time.NewTicker(extension / 3)
		defer ticker.Stop()
		for {
			select {
			case <-ticker.C:
				n.tell(fmt.Sprintf("EXTEND_TIMEOUT_USEC=%d", extension.Microseconds()))
			case <-stop:
				return
			}
		}
	}()
	return func() { close(stop); <-stopped }
}
