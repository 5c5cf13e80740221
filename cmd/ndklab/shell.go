package main

import (
	"strings"

	"github.com/ndklab/ndklab/internal/node/shell"
	"github.com/spf13/cobra"
)

func shellCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   shellName + " LAB/NODE [--shell PATH] [-T] [--rnic program|process] [-t FILE]",
		Short: "Run a shell in a node",
		Long: `Runs a shell in a node, as "ndklab exec" runs any command: the shell that the variable
SHELL names, or sh. Its prompt begins with the node's name, unless the shell's own files
set another; this works with bash, dash and busybox.

With -t FILE the lab is the file's, and the node is named NODE.`,
		Example: `  ndklab shell pair/client
  ndklab shell pair/client --shell /bin/sh
  echo 'ip route' | ndklab shell pair/client`,
		Args: func(cmd *cobra.Command, args []string) error {
			if err := arguments(1, 1, "one node")(cmd, args); err != nil {
				return err
			}
			return isNode(cmd, args[0])
		},
	}
	given := cmd.Flags().String("shell", "", "run the shell at this `PATH`, instead of $SHELL")
	noTTY := noTTYFlag(cmd)
	rnic := rnicFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := *given
		if path == "" {
			path = shell.Path()
		}
		target, err := withFileLab(cmd, args[0])
		if err != nil {
			return err
		}
		labName, word, _ := strings.Cut(target, "/")
		nodes, err := namedIn(cmd.Context(), labName, word)
		if err != nil {
			return err
		}
		if len(nodes) != 1 {
			return misuse("%q stands for %d nodes, and a shell runs in one: `ndklab exec` runs a command in several", word, len(nodes))
		}
		target = labName + "/" + nodes[0]
		return runIn(cmd, target, []string{path}, shell.WithPrompt(rnic.environment(), target), *noTTY)
	}
	return cmd
}
