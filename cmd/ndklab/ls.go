package main

import (
	"io"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/spf13/cobra"
)

func lsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "ls [--label NAME=VALUE] [-o text|json]",
		Aliases: []string{"list", "ps"},
		Short:   "List the labs that are up",
		Long:    "Lists the labs of this user that are up, or, with --label, those that have a label.",
		Example: "  ndklab ls\n  ndklab ls --label team=storage -o json",
		Args:    arguments(0, 0, "no arguments"),
	}
	output := outputFlag(cmd)
	labels := newSelectorFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		tidy(cmd)
		labs, err := labels.labs(cmd.Context())
		if err != nil {
			return err
		}
		data := struct {
			Labs []lab.Info `json:"labs"`
		}{labs}
		return output.print(cmd.OutOrStdout(), data, func(w io.Writer) error {
			rows := make([]report.Lab, len(labs))
			for i, l := range labs {
				rows[i] = report.Lab(l)
			}
			return text.WriteLabs(w, rows)
		})
	}
	return cmd
}
