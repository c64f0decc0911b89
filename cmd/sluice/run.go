package main

import (
	"context"
	"fmt"
	"io"
	"log/slog"
	"net"
	"os"
	"os/signal"
	"strings"
	"syscall"
	"time"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/configs"
)

// stopWithin bounds a clean stop. What has not ended by then is left as a crash would leave it.
const stopWithin = 10 * time.Second

func newRun(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "run",
		Short: "Run the roles that the configuration names",
		Long: `Run the roles that the configuration names until SIGTERM or SIGINT, then stop cleanly within 10 s.
Without a file, everything runs on loopback: a sidecar, and as its upstream a name server and a broker.

SIGHUP reads the configuration file at once; changes of the file are noticed without it.`,
		Example: `  sluice run
  sluice run -c /etc/sluice/sluice.yaml --set log.level=debug
  SLUICE_ROLES=namesrv sluice run`,
		Args: cobra.NoArgs,
	}
	loader := addConfigFlags(cmd, s)
	profile := cmd.Flags().String("pprof", "", "serve profiles on the loopback `ADDR` (host:port)")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		l := loader()
		c, err := l.Load()
		if err != nil {
			return usageError{err}
		}
		return run(cmd.Context(), l, c, *profile, cmd.OutOrStdout(), cmd.ErrOrStderr())
	}
	return cmd
}

// run is the life of a process: build, say ready, serve until ctx ends, stop.
func run(ctx context.Context, l configs.Loader, c *configs.Config, profile string, out, logs io.Writer) error {
	limitMemory(c, os.LookupEnv)
	level, log := newLogger(c.Log, logs)
	note := notifier{log: log}

	p := &process{log: log}
	if profile != "" {
		if err := p.addProfiles(profile); err != nil {
			return err
		}
	}
	recovered := note.whileStarting()
	err := p.build(c)
	recovered()
	if err != nil {
		p.close()
		return err
	}
	hangup := make(chan os.Signal, 1)
	signal.Notify(hangup, syscall.SIGHUP)
	defer signal.Stop(hangup)
	p.roles = append(p.roles, part{"configuration watch", func(ctx context.Context) error {
		return configs.Watch(ctx, configs.Watcher{Loader: l, Running: c, Hurry: hangup, Report: reloaded(log)}, p.reload(level))
	}})

	note.tell("READY=1")
	printBanner(out, c, p)
	context.AfterFunc(ctx, func() {
		log.Info("stopping", "within", stopWithin)
		note.tell("STOPPING=1")
	})
	if err := p.run(ctx, stopWithin); err != nil {
		return err
	}
	log.Info("stopped")
	return nil
}

// newLogger writes to w, at a level that a reload can change.
func newLogger(o configs.Log, w io.Writer) (*slog.LevelVar, *slog.Logger) {
	level := new(slog.LevelVar)
	level.Set(levelOf(o.Level))
	options := &slog.HandlerOptions{Level: level}
	if o.Format == "json" {
		return level, slog.New(slog.NewJSONHandler(w, options))
	}
	return level, slog.New(slog.NewTextHandler(w, options))
}

// levelOf reads a name that the configuration has checked.
func levelOf(name string) slog.Level {
	var level slog.Level
	_ = level.UnmarshalText([]byte(name))
	return level
}

// reloaded logs the outcome of every reload: one line, the truth.
func reloaded(log *slog.Logger) func(changed []string, err error) {
	return func(changed []string, err error) {
		switch {
		case err != nil:
			log.Error("configuration not reloaded, the running one is kept", "reason", oneLine(err.Error()))
		case len(changed) == 0:
			log.Info("configuration reloaded, nothing changed")
		default:
			log.Info("configuration reloaded", "changed", changed)
		}
	}
}

// printBanner says what runs where and, when the whole chain runs, what to try.
func printBanner(w io.Writer, c *configs.Config, p *process) {
	fmt.Fprintln(w, versionLine())
	for _, a := range p.addresses {
		fmt.Fprintf(w, "  %-18s %s\n", a.name, a.address)
	}
	fmt.Fprintf(w, "  %-18s %s\n", "data", c.Data)
	door := p.address("sidecar http")
	if door == "" || !c.Has(configs.RoleBroker) || !c.Has(configs.RoleNamesrv) {
		return
	}
	consume := ownName() + " consume demo --group try --from first"
	if _, port, err := net.SplitHostPort(p.address("namesrv")); err == nil && port != "9876" {
		consume += " -n " + p.address("namesrv")
	}
	fmt.Fprintf(w, "\ntry, in another terminal:\n  curl -d 'hello' http://%s/v1/topics/demo/messages\n  %s\n\n", door, consume)
}

// ownName is how the user can call this program again: under `go run` its file is gone by then.
func ownName() string {
	path, err := os.Executable()
	if err == nil && strings.Contains(path, "go-build") {
		return "go run ./cmd/sluice"
	}
	return "sluice"
}
