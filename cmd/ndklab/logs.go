package main

import (
	"errors"
	"fmt"
	"strconv"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/spf13/cobra"
)

func logsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "logs [LAB[/NODE]] [-f] [--tail N] [-o text|json] [-t FILE]",
		Short: "Print what a lab's processes have logged",
		Long: `Prints the log of a lab that is up, or of one that does not answer any more. The lab's
processes write to it: the supervisor its events and warnings, a node's agent what goes
wrong with its adapter. LAB/NODE prints the lines that the node wrote and those that
name it. A range or a pattern, 'LAB/h[1-4]', stands for several nodes of a lab that
answers. A log that is longer than 64 MiB is cut to its last lines.

--follow goes on with the lines that come, until the lab is down or Ctrl-C. The exit code
is 0 after Ctrl-C, too. With -o json, each line is one line with one object.`,
		Example: `  ndklab logs pair
  ndklab logs pair/server -f
  ndklab logs pair --tail 20`,
		Args: arguments(0, 1, "one lab or node"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	follow := cmd.Flags().BoolP("follow", "f", false, "go on with the lines that come")
	tail := -1 // all
	cmd.Flags().Func("tail", "print the last `N` only of the lines that there are", func(text string) error {
		n, err := strconv.ParseUint(text, 10, 31)
		if err != nil {
			return errors.New("expected a number of lines")
		}
		tail = int(n)
		return nil
	})
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		tidy(cmd)
		labName, word, err := targetArgument(cmd, args)
		if err != nil {
			return err
		}
		options := lab.LogOptions{Tail: tail, Follow: *follow}
		if word != "" {
			if options.Nodes, err = namedIn(cmd.Context(), labName, word); err != nil {
				return err
			}
		}
		w := cmd.OutOrStdout()
		return lab.Logs(cmd.Context(), labName, options, func(line []byte) error {
			if *output == jsonFormat {
				return written(report.WriteJSONLine(w, &report.LogLine{Lab: labName, Text: string(line)}))
			}
			_, err := fmt.Fprintf(w, "%s\n", line)
			return written(err)
		})
	}
	return cmd
}
