package main

import (
	"fmt"
	"io"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/spf13/cobra"
)

func gcCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "gc [LAB...] [-o text|json] [--dry-run]",
		Short: "Remove what dead labs left",
		Long: `Removes what labs of this user left whose processes were all killed, and says what
that was: state files, logs, directories of sockets, names for ip netns, control
groups. Nothing else ever stays of a lab. It touches no lab that lives, and with names
of labs only what those left.

Every command does so first, for the labs whose state files it finds. gc looks further, and
finds what is left of a lab whose state file is missing, too.`,
		Example: "  ndklab gc\n  ndklab gc pair\n  ndklab gc --dry-run -o json",
		Args:    arguments(0, -1, "labs"),
	}
	output := outputFlag(cmd)
	dryRun := cmd.Flags().Bool("dry-run", false, "say what is left, and leave it")
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
		err := output.print(cmd.OutOrStdout(), data, func(w io.Writer) error {
			for _, l := range left {
				if _, err := fmt.Fprintf(w, "%s: %s %s\n", l.Lab, l.Kind, l.Path); err != nil {
					return err
				}
			}
			return nil
		})
		if problems != nil {
			return problems
		}
		if err == nil && *output == text {
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
