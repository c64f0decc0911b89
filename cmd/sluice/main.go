// Command sluice is the one binary: an edge gateway with a local spool, and the name server and
// the broker it is compatible with. Roles are chosen by configuration.
package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"syscall"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/configs"
)

// Exit codes.
const (
	exitOK      = 0
	exitFailure = 1 // the command was understood and failed
	exitUsage   = 2 // wrong arguments or configuration; nothing was done
)

// streams are what a command reads, writes and is surrounded by. Tests give their own.
type streams struct {
	in       io.Reader
	out, err io.Writer
	environ  []string
}

// A usageError is the caller's mistake.
type usageError struct{ error }

func (e usageError) Unwrap() error { return e.error }

func usagef(format string, args ...any) error { return usageError{fmt.Errorf(format, args...)} }

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	// The first signal asks for a clean end; with the handler gone, a second one kills.
	context.AfterFunc(ctx, stop)
	os.Exit(execute(ctx, os.Args[1:], streams{os.Stdin, os.Stdout, os.Stderr, os.Environ()}))
}

// execute runs one command line and returns the exit code. An error is one line on stderr.
func execute(ctx context.Context, args []string, s streams) int {
	root := newRoot(s)
	root.SetArgs(args)
	started := false
	eachCommand(root, func(cmd *cobra.Command) {
		run := cmd.RunE
		cmd.RunE = func(cmd *cobra.Command, args []string) error {
			started = true
			return run(cmd, args)
		}
		if check := cmd.Args; check != nil {
			cmd.Args = func(cmd *cobra.Command, args []string) error {
				err := check(cmd, args)
				if err == nil || isUsage(err) {
					return err
				}
				return usagef("%v; usage: %s", err, cmd.UseLine())
			}
		}
	})
	err := root.ExecuteContext(ctx)
	if err == nil {
		return exitOK
	}
	fmt.Fprintln(s.err, "sluice: "+oneLine(err.Error()))
	// What fails before a command starts is a wrong flag, argument or command name.
	if !started || isUsage(err) {
		return exitUsage
	}
	return exitFailure
}

// eachCommand calls f for a command and all below it.
func eachCommand(cmd *cobra.Command, f func(*cobra.Command)) {
	f(cmd)
	for _, sub := range cmd.Commands() {
		eachCommand(sub, f)
	}
}

func isUsage(err error) bool {
	if _, ok := errors.AsType[usageError](err); ok {
		return true
	}
	_, ok := errors.AsType[configs.Problems](err)
	return ok
}

func oneLine(text string) string {
	return strings.Join(strings.FieldsFunc(text, func(r rune) bool { return r == '\n' || r == '\r' }), "; ")
}

func newRoot(s streams) *cobra.Command {
	root := group("sluice", "An edge gateway with a local spool, and the broker and name server behind it",
		`  sluice run                          # everything on loopback, data under ./sluice-data
  sluice run -c /etc/sluice/sluice.yaml
  sluice config check sluice.yaml`)
	root.Long = `Sluice takes messages from local producers into a spool on disk, says "stored", and forwards them
in order to a RocketMQ cluster or to NATS JetStream, however long the link is down.

Exit codes: 0 success, 1 failure, 2 wrong arguments or configuration.`
	root.SilenceUsage, root.SilenceErrors = true, true
	root.CompletionOptions.HiddenDefaultCmd = true
	root.SetIn(s.in)
	root.SetOut(s.out)
	root.SetErr(s.err)
	root.AddCommand(newRun(s), newSend(s), newConsume(), newTopic(), newRoute(), newSpool(), newConfig(s), newVersion())
	return root
}

// group is a command that only holds others. A name that none of them has is an error, not a
// reason to print help and succeed.
func group(use, short, example string) *cobra.Command {
	return &cobra.Command{
		Use: use, Short: short, Example: example, SuggestionsMinimumDistance: 2,
		Args: func(cmd *cobra.Command, args []string) error {
			if len(args) == 0 {
				return nil
			}
			if near := cmd.SuggestionsFor(args[0]); len(near) > 0 {
				return usagef("unknown command %q for %q; did you mean %q?", args[0], cmd.CommandPath(), near[0])
			}
			return usagef("unknown command %q for %q; see %s --help", args[0], cmd.CommandPath(), cmd.CommandPath())
		},
		RunE: func(cmd *cobra.Command, _ []string) error { return cmd.Help() },
	}
}
