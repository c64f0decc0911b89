package main

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// result is what a command line comes to.
type result struct {
	code     int
	out, err string
}

func call(t *testing.T, environ []string, args ...string) result {
	t.Helper()
	var out, err bytes.Buffer
	code := execute(t.Context(), args, streams{strings.NewReader(""), &out, &err, environ})
	return result{code, out.String(), err.String()}
}

func TestExitCodesAndOneLineErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(file, []byte("dta: x\nrols: y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	tests := []struct {
		args []string
		code int
		err  string // part of the one line on stderr
	}{
		{[]string{}, exitOK, ""},
		{[]string{"--help"}, exitOK, ""},
		{[]string{"version"}, exitOK, ""},
		{[]string{"config", "show"}, exitOK, ""},
		{[]string{"versoin"}, exitUsage, `did you mean "version"`},
		{[]string{"config", "chek"}, exitUsage, `unknown command "chek" for "sluice config"`},
		{[]string{"config", "check"}, exitUsage, "accepts 1 arg(s), received 0; usage: sluice config check FILE"},
		{[]string{"version", "--loud"}, exitUsage, "unknown flag"},
		{[]string{"config", "check", file}, exitUsage, "2 problems"},
		{[]string{"config", "check", file + ".none"}, exitUsage, "no such file"},
		{[]string{"config", "show", "-c", file}, exitUsage, "unknown key"},
		{[]string{"config", "show", "--set", "data"}, exitUsage, "is not key=value"},
	}
	for _, tt := range tests {
		t.Run(strings.Join(tt.args, " "), func(t *testing.T) {
			r := call(t, nil, tt.args...)
			if r.code != tt.code || !strings.Contains(r.err, tt.err) {
				t.Errorf("exit %d, %q; want %d, %q", r.code, r.err, tt.code, tt.err)
			}
			if lines := strings.Count(r.err, "\n"); tt.err != "" && lines != 1 || tt.err == "" && lines != 0 {
				t.Errorf("%d lines on stderr: %q", lines, r.err)
			}
		})
	}
}

func TestConfigCheckListsEveryProblem(t *testing.T) {
	file := filepath.Join(t.TempDir(), "bad.yaml")
	if err := os.WriteFile(file, []byte("dta: x\nrols: y\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := call(t, nil, "config", "check", file)
	want := file + ":1: dta: unknown key; the nearest known key is data\n" + file + ":2: rols: unknown key; the nearest known key is roles\n"
	if r.out != want {
		t.Errorf("got\n%swant\n%s", r.out, want)
	}
}

func TestConfigShowReadsEnvironmentAndFileVariable(t *testing.T) {
	file := filepath.Join(t.TempDir(), "sluice.yaml")
	if err := os.WriteFile(file, []byte("data: /from-file\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	r := call(t, []string{"SLUICE_CONFIG=" + file, "SLUICE_LOG_LEVEL=debug"}, "config", "show", "--set", "broker.name=x")
	text := strings.Join(strings.Fields(r.out), " ")
	for _, want := range []string{"data: /from-file # " + file + ":1", "log.level: debug # env SLUICE_LOG_LEVEL", "broker.name: x # --set"} {
		if !strings.Contains(text, want) {
			t.Errorf("no %q in\n%s%s", want, r.out, r.err)
		}
	}
}

// TestEveryCommandIsDocumented walks the tree and demands help with an example.
func TestEveryCommandIsDocumented(t *testing.T) {
	eachCommand(newRoot(streams{}), func(cmd *cobra.Command) {
		if cmd.Short == "" || cmd.Example == "" {
			t.Errorf("%s lacks help or an example", cmd.CommandPath())
		}
		if cmd.RunE == nil {
			t.Errorf("%s does not run", cmd.CommandPath())
		}
	})
}
