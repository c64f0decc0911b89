package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"net/http"
	"net/http/pprof"
	"net/netip"
	"time"
)

// addProfiles adds a listener for profiles. They show what is in memory, so it must be a
// loopback address.
func (p *process) addProfiles(address string) error {
	ap, err := netip.ParseAddrPort(address)
	if err != nil || !ap.Addr().IsLoopback() {
		return usagef("--pprof: %q is not a loopback address such as 127.0.0.1:6060", address)
	}
	bound, err := net.Listen("tcp", address)
	if err != nil {
		return fmt.Errorf("profiles: %w", err)
	}
	mux := http.NewServeMux()
	mux.HandleFunc("/debug/pprof/", pprof.Index)
	mux.HandleFunc("/debug/pprof/cmdline", pprof.Cmdline)
	mux.HandleFunc("/debug/pprof/profile", pprof.Profile)
	mux.HandleFunc("/debug/pprof/symbol", pprof.Symbol)
	mux.HandleFunc("/debug/pprof/trace", pprof.Trace)
	server := &http.Server{Handler: mux, ReadHeaderTimeout: 10 * time.Second}
	p.closers = append(p.closers, bound)
	p.addresses = append(p.addresses, listener{"profiles", bound.Addr().String()})
	p.roles = append(p.roles, part{"profiles", func(ctx context.Context) error {
		defer context.AfterFunc(ctx, func() { server.Close() })()
		if err := server.Serve(bound); !errors.Is(err, http.ErrServerClosed) {
			return err
		}
		return nil
	}})
	return nil
}
