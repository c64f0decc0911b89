package sidecar

import (
	"net/http"
	"time"

	"github.com/sluicemq/sluice/spool"
)

// health answers what is true now: whether messages can be taken, and what the
// lanes do. A sidecar whose upstream is away is healthy; one that cannot make
// messages durable is not.
type health struct {
	spool  *spool.Spool
	lanes  *lanes
	booted time.Time
}

// report is the body of GET /healthz.
type report struct {
	Status    string            `json:"status"` // "ok", or "refusing" when sends are refused
	Reason    string            `json:"reason,omitempty"`
	Uptime    string            `json:"uptime"`
	Backlog   int64             `json:"backlog"` // messages that wait, over all lanes
	Lanes     []LaneStatus      `json:"lanes"`
	Upstreams map[string]upInfo `json:"upstreams"`
}

type upInfo struct {
	Forwarded    int64  `json:"forwarded"`
	Parked       int64  `json:"parked"`
	Failures     int64  `json:"failures"`
	LastAccepted string `json:"last_accepted,omitempty"`
}

func (h *health) report() report {
	r := report{Status: "ok", Uptime: time.Since(h.booted).Round(time.Second).String(),
		Lanes: h.lanes.status(), Upstreams: map[string]upInfo{}}
	if err := h.spool.Writable(); err != nil {
		r.Status, r.Reason = "refusing", err.Error()
	}
	for _, l := range r.Lanes {
		r.Backlog += l.Backlog
	}
	for name, p := range h.lanes.progress {
		info := upInfo{Forwarded: p.forwarded.Load(), Parked: p.parked.Load(), Failures: p.failures.Load()}
		if at := p.lastAccepted.Load(); at > 0 {
			info.LastAccepted = time.UnixMilli(at).UTC().Format(time.RFC3339)
		}
		r.Upstreams[name] = info
	}
	return r
}

// serveHealth answers 200 while messages can be taken, else 503 with the reason.
func (h *health) serveHealth(w http.ResponseWriter, _ *http.Request) {
	r := h.report()
	status := http.StatusOK
	if r.Status != "ok" {
		status = http.StatusServiceUnavailable
	}
	answer(w, status, r)
}

// serveReady answers 200 when sends are accepted.
func (h *health) serveReady(w http.ResponseWriter, _ *http.Request) {
	if err := h.spool.Writable(); err != nil {
		answer(w, http.StatusServiceUnavailable, map[string]string{"status": "refusing", "reason": err.Error()})
		return
	}
	answer(w, http.StatusOK, map[string]string{"status": "ready"})
}
