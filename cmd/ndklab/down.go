package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/spf13/cobra"
)

func downCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "down [LAB|--all [--yes]|--label NAME=VALUE] [-o text|json] [-t FILE]",
		Aliases: []string{"destroy"},
		Short:   "Take a lab down",
		Long: `Takes a lab down: its nodes with everything that runs in them, its links and its
files. It returns when nothing of the lab is left.

--all takes down all labs of this user; that there is none is no error. At a terminal it
first lists them and asks, unless --yes is given; a script is not asked. --label takes
down the labs that have a label. Without any of these, the command takes down the lab of
the one *.ndklab.yaml in the current folder. With -o json it prints the labs that it has
taken down.`,
		Example: `  ndklab down pair
  ndklab down --all
  ndklab down --label ci=4711`,
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	all := cmd.Flags().Bool("all", false, "all labs of this user")
	yes := cmd.Flags().Bool("yes", false, "with --all: do not ask")
	labels := newSelectorFlag(cmd)
	cmd.Args = labOrAll(all)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tidy(cmd)
		names := args
		switch {
		case *yes && !*all:
			return misuse("--yes is for --all, which is not given")
		case labels.given() && (*all || len(args) > 0 || cmd.Flags().Changed("topology")):
			return misuse("down takes a lab, --all or --label, found several of them")
		case !*all && !labels.given():
			name, err := labArgument(cmd, args, "one lab or --all")
			if err != nil {
				return err
			}
			names = []string{name}
		default:
			labs, err := labels.labs(cmd.Context()) // all, unless some are selected
			if err != nil {
				return err
			}
			if *all && !*yes {
				switch agreed, err := agreed(cmd, labs); {
				case err != nil:
					return err
				case !agreed:
					fmt.Fprintln(cmd.ErrOrStderr(), "no lab is taken down")
					return exitStatus(exitFailed)
				}
			}
			for _, l := range labs {
				names = append(names, l.Lab)
			}
		}
		var problems error
		taken := struct {
			Labs []string `json:"labs"`
		}{[]string{}}
		for _, name := range names {
			if err := down(cmd.Context(), name); err != nil {
				problems = errors.Join(problems, err)
				continue
			}
			taken.Labs = append(taken.Labs, name)
			fmt.Fprintf(cmd.ErrOrStderr(), "lab %s is down\n", name)
		}
		if len(taken.Labs) == 0 && problems != nil {
			return problems
		}
		return errors.Join(problems, output.print(cmd.OutOrStdout(), taken, func(io.Writer) error { return nil }))
	}
	return cmd
}

func down(ctx context.Context, name string) error {
	l, err := lab.Open(ctx, name)
	if err != nil {
		return err
	}
	return l.Down(ctx)
}
