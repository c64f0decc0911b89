package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"github.com/sluicemq/sluice/configs"
)

// addConfigFlags gives a command -c and --set, and returns what loads the configuration once
// they are parsed.
func addConfigFlags(cmd *cobra.Command, s streams) func() configs.Loader {
	file := cmd.Flags().StringP("config", "c", "", "configuration `FILE` (YAML); default: $"+configs.FileVariable)
	set := cmd.Flags().StringArray("set", nil, "set one `key=value` over file and environment; repeatable")
	return func() configs.Loader {
		l := configs.Loader{File: *file, Environ: s.environ, Set: *set}
		if l.File == "" {
			l.File = variable(s.environ, configs.FileVariable)
		}
		return l
	}
}

// variable looks a name up in an environment given as a list; the last one counts.
func variable(environ []string, name string) string {
	value := ""
	for _, e := range environ {
		if v, ok := strings.CutPrefix(e, name+"="); ok {
			value = v
		}
	}
	return value
}

func newConfig(s streams) *cobra.Command {
	cmd := group("config", "Check and show configuration", "  sluice config check sluice.yaml\n  sluice config show -c sluice.yaml")
	cmd.AddCommand(newConfigCheck(s), newConfigShow(s), newConfigDefault())
	return cmd
}

func newConfigCheck(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "check FILE",
		Short: "Load a file as run would and report everything that is wrong with it",
		Long: `Load a file as run would, under the SLUICE_… environment and --set flags of this call, and report
everything that is wrong: every problem is a line on stdout that begins with its place.`,
		Example: "  sluice config check /etc/sluice/sluice.yaml",
		Args:    cobra.ExactArgs(1),
	}
	set := cmd.Flags().StringArray("set", nil, "set one `key=value` over file and environment; repeatable")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		c, err := configs.Loader{File: args[0], Environ: s.environ, Set: *set}.Load()
		problems, wrong := errors.AsType[configs.Problems](err)
		switch {
		case wrong && len(problems) > 1:
			for _, p := range problems {
				fmt.Fprintln(cmd.OutOrStdout(), p)
			}
			return usagef("%s: %d problems", args[0], len(problems))
		case err != nil:
			return usageError{err}
		}
		_, err = fmt.Fprintf(cmd.OutOrStdout(), "%s: ok (roles: %s)\n", args[0], strings.Join(c.Roles, ", "))
		return err
	}
	return cmd
}

func newConfigShow(s streams) *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show",
		Short: "Print every key with its value and where the value comes from",
		Long:  `Print every key with its value and where the value comes from. Secrets are masked.`,
		Example: `  sluice config show
  SLUICE_DATA=/srv/sluice sluice config show -c sluice.yaml --set log.level=debug`,
		Args: cobra.NoArgs,
	}
	loader := addConfigFlags(cmd, s)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		c, err := loader().Load()
		if err != nil {
			return usageError{err}
		}
		return c.Show(cmd.OutOrStdout())
	}
	return cmd
}

func newConfigDefault() *cobra.Command {
	return &cobra.Command{
		Use:     "default",
		Short:   "Print the embedded defaults as a file to start from",
		Example: "  sluice config default > sluice.yaml",
		Args:    cobra.NoArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			_, err := fmt.Fprint(cmd.OutOrStdout(), configs.DefaultYAML())
			return err
		},
	}
}
