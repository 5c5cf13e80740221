package main

import (
	"io"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/spf13/cobra"
)

func inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect [LAB] [-o text|json] [-t FILE]",
		Short: "Show the nodes and links of a lab that is up",
		Long: `Shows the nodes of a lab that is up, with their process ids, addresses and NDK
counters, the ports of its switches, with their state and how many MAC addresses
were learned there, its links, with what was asked of them and what they did so
far, and where the ends of links are that are outside the lab. Of nodes with limits
it shows what they have used: processor time and how long they were throttled, memory
now and at its peak, processes and threads now and how many were refused; a node that
is down because it went over its memory says so. The name of a port is that of the
link's end at the switch. A port that is blocking is a spare of the
spanning tree; one that is disabled has no carrier. Without LAB it is that of the one
*.ndklab.yaml in the current folder.`,
		Example: `  ndklab inspect pair
  ndklab inspect pair -o json`,
		Args: arguments(0, 1, "one lab"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sweep(cmd)
		name, err := labArgument(cmd, args, "one lab")
		if err != nil {
			return err
		}
		l, err := lab.Open(cmd.Context(), name)
		if err != nil {
			return err
		}
		defer l.Close()
		i, err := l.Inspect(cmd.Context())
		if err != nil {
			return err
		}
		return output.print(cmd.OutOrStdout(), i, func(w io.Writer) error {
			state := i.State
			if i.Unfinished != "" {
				state += ", changed in part (" + i.Unfinished + "): `ndklab apply` does the rest"
			}
			return report.WriteInspection(w, i.Lab, state, i.Seed, i.Nodes, i.Links, i.Externals)
		})
	}
	return cmd
}
