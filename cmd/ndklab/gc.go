package main

import (
	"fmt"
	"io"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/spf13/cobra"
)

func gcCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc [LAB...] [-o text|json] [--dry-run]",
		Short: "Remove what killed labs left",
		Long: `Removes what labs of this user left whose processes were all killed, and prints what
it removed: state files, logs, directories of sockets, names for ip netns, control
groups. Nothing else of a lab ever stays. gc touches no lab that lives. With names of
labs it removes only what those left.

Every command first does so for the labs whose state files it finds. gc also finds what
is left of a lab whose state file is missing.`,
		Example: "  ndklab gc\n  ndklab gc pair\n  ndklab gc --dry-run -o json",
		Args:    arguments(0, -1, "labs"),
	}
	output := outputFlag(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "print what is left, and leave it")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		for _, name := range args {
			if err := lab.CheckName(name); err != nil {
				return err
			}
		}
		left, problems := lab.Collect(args, *dryRun)
		data := struct {
			Left    []lab.Leftover `json:"left"`
			Removed bool           `json:"removed"`
		}{left, !*dryRun}
		var text strings.Builder
		for _, l := range left {
			fmt.Fprintf(&text, "%s: %s %s\n", l.Lab, l.Kind, l.Path)
		}
		err := output.printText(cmd.OutOrStdout(), data, text.String())
		if problems != nil {
			return problems
		}
		if err == nil && *output == textFormat {
			err = tellLeft(cmd.ErrOrStderr(), len(left), *dryRun)
		}
		return err
	}
	return cmd
}

// tellLeft says how much was left.
func tellLeft(w io.Writer, n int, dryRun bool) error {
	what := fmt.Sprintf("removed: %d", n)
	switch {
	case n == 0:
		what = "nothing is left of dead labs"
	case dryRun:
		what = fmt.Sprintf("left of dead labs: %d", n)
	}
	_, err := fmt.Fprintln(w, what)
	return written(err)
}
