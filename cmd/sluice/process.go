package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"time"

	"golang.org/x/sync/errgroup"

	"github.com/sluicemq/sluice/configs"
	"github.com/sluicemq/sluice/sidecar"
)

// A part is one long-lived thing with its only way to start and stop.
type part struct {
	name string
	run  func(ctx context.Context) error
}

// run makes the end of a part an error unless it was asked for.
func (p part) started(ctx context.Context) error {
	err := p.run(ctx)
	if err == nil && ctx.Err() == nil {
		err = errors.New("ended by itself")
	}
	if err != nil && !errors.Is(err, context.Canceled) {
		return fmt.Errorf("%s: %w", p.name, err)
	}
	return nil
}

// A process is everything that runs, built and not yet started.
type process struct {
	log       *slog.Logger
	base      []part // what roles lean on: their stores, and the name server that they say farewell to
	roles     []part
	sidecar   *sidecar.Sidecar // nil when the role is not chosen
	addresses []listener
	closers   []io.Closer // of what is open, for a process that will not run
}

// A listener is an address on which the process takes connections.
type listener struct{ name, address string }

func (p *process) address(name string) string {
	for _, l := range p.addresses {
		if l.name == name {
			return l.address
		}
	}
	return ""
}

// run starts everything and returns when everything has ended: because ctx did, or because
// one part failed, which ends the others.
//
// Two groups are nested. Roles run inside and stop first, so that a store outlives
// everything that appends to it and its last act is to flush, and so that a broker can
// unregister.
func (p *process) run(ctx context.Context, within time.Duration) error {
	bearing, stopBase := context.WithCancel(context.WithoutCancel(ctx))
	defer stopBase()
	base, bearing := errgroup.WithContext(bearing)
	for _, b := range p.base {
		base.Go(func() error { return b.started(bearing) })
	}

	serving, stopRoles := context.WithCancel(ctx)
	defer stopRoles()
	context.AfterFunc(bearing, stopRoles) // a store that fails takes the roles along
	roles, serving := errgroup.WithContext(serving)
	for _, r := range p.roles {
		roles.Go(func() error { return r.started(serving) })
	}

	ended := make(chan error, 1)
	go func() {
		err := roles.Wait()
		stopBase()
		ended <- errors.Join(err, base.Wait())
	}()
	select {
	case err := <-ended:
		return err
	case <-serving.Done():
	}
	late := time.NewTimer(within)
	defer late.Stop()
	select {
	case err := <-ended:
		return err
	case <-late.C:
		return fmt.Errorf("not stopped within %s; the next start recovers as after a crash", within)
	}
}

// close releases what was opened for a process that will not run.
func (p *process) close() {
	for _, c := range p.closers {
		if err := c.Close(); err != nil {
			p.log.Warn("close", "err", err)
		}
	}
}

// reload puts a checked configuration into force.
func (p *process) reload(level *slog.LevelVar) func(old, new *configs.Config) error {
	return func(_, new *configs.Config) error {
		if p.sidecar != nil {
			if err := p.sidecar.Reload(laneRules(new)); err != nil {
				return fmt.Errorf("sidecar.lanes: %w", err)
			}
		}
		level.Set(levelOf(new.Log.Level))
		return nil
	}
}
