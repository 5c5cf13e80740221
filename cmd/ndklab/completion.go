package main

import (
	"io"

	"github.com/spf13/cobra"
)

func completionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "completion bash|zsh|fish",
		Short: "Print a script by which a shell completes command lines",
		Long: `Prints a script by which a shell completes commands, flags and their values, and the
names of labs, nodes, interfaces and topology files. A lab that does not answer at once
is left out. The script for bash needs the package bash-completion.`,
		Example: `  source <(ndklab completion bash)                      in this shell alone; in ~/.bashrc, in all
  ndklab completion zsh > "${fpath[1]}/_ndklab"
  ndklab completion fish > ~/.config/fish/completions/ndklab.fish`,
		Args:      arguments(1, 1, "the name of a shell: bash, zsh or fish"),
		ValidArgs: []string{"bash", "zsh", "fish"},
	}
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		root := cmd.Root()
		generate := map[string]func(io.Writer) error{
			"bash": func(w io.Writer) error { return root.GenBashCompletionV2(w, true) },
			"zsh":  root.GenZshCompletion,
			"fish": func(w io.Writer) error { return root.GenFishCompletion(w, true) },
		}[args[0]]
		if generate == nil {
			return misuse("%q is no shell that is known here, expected bash, zsh or fish", args[0])
		}
		return written(generate(cmd.OutOrStdout()))
	}
	return cmd
}
