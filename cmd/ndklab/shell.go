package main

import (
	"fmt"
	"os"
	"strings"

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
	shell := cmd.Flags().String("shell", "", "run the shell at this `PATH`, instead of $SHELL")
	noTTY := noTTYFlag(cmd)
	rnic := rnicFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		path := *shell
		if path == "" {
			path = os.Getenv("SHELL")
		}
		if path == "" {
			path = "sh"
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
		return runIn(cmd, target, []string{path}, withPrompt(rnic.environment(), target), *noTTY)
	}
	return cmd
}

// withPrompt has shells say where they are. Shells take PS1 as it is, but for what
// their files say. Of bash these almost always set it, and so PROMPT_COMMAND, which
// bash runs before it prompts, puts the node in front, and itself away.
func withPrompt(env []string, target string) []string {
	return append(env,
		"PS1=["+target+"] # ",
		fmt.Sprintf(`PROMPT_COMMAND=unset PROMPT_COMMAND; case $PS1 in *"[%[1]s]"*) ;; *) PS1="[%[1]s] $PS1" ;; esac`, target))
}
