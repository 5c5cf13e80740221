package main

import (
	"context"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/monitor"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/spf13/cobra"
)

// uiAddress is the default of --listen: any port that is free, on this machine alone.
const uiAddress = "127.0.0.1:0"

// mostReports bounds the reports that a page lays over each other.
const mostReports = 2

func uiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ui [LAB|FILE] [FILE] [--listen ADDRESS] [--no-open] [-t FILE]",
		Short: "Show a lab in the browser, live",
		Long: `Serves a page that shows a lab that is up, live: its map with what each link carries,
loses and queues, plots over time, events, and what a node, a link or a queue pair does.
What commands do to a lab, the page does, too: it shows the command that does the same,
and undoes it. The URL goes to standard output, and is opened in a browser where there
is one. docs/ui.md has more.

FILE is a topology, whose lab must be up, or the report of a run, as "ndklab run -o json"
prints it, which is played back. Two reports are laid over each other.

It ends with Ctrl-C, with exit code 0, or with the lab, and says so then. The lab is asked
once a second, and only while somebody looks at the page.

Whoever has the URL rules the lab, and runs commands in its nodes as the user who called
this command. It has a secret, which is another each time. The default address is reached
from this machine only. --listen takes HOST:PORT for others; what is sent is not encrypted
then. Port 0 stands for any that is free.

Without LAB and FILE it is the lab of the one *.ndklab.yaml in the current folder.`,
		Example: `  ndklab ui pair
  ndklab ui examples/pair.ndklab.yaml --no-open
  ndklab ui report.json
  ndklab ui before.json after.json`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("topology") {
				return labArguments(0, 0, "one lab or file")(cmd, args)
			}
			return arguments(0, mostReports, "a lab, a file or two reports")(cmd, args)
		},
	}
	topologyFlag(cmd)
	listen := cmd.Flags().String("listen", uiAddress, "serve at this `ADDRESS`, HOST:PORT")
	noOpen := cmd.Flags().Bool("no-open", false, "print the URL, and open no browser")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkAddress(*listen, uiAddress); err != nil {
			return err
		}
		tidy(cmd)
		params := monitor.UI{Listen: *listen, Open: !*noOpen}
		var err error
		if areReports(args) {
			params.Reports = args
		} else if params.Lab, err = shownLab(cmd, args); err != nil {
			return err
		}
		err = monitor.Run(cmd.Context(), monitor.Params{UI: &params, Version: version}, nil, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	return cmd
}

// areReports reports whether arguments name files that are no topologies. No lab has a name that ends like a report's.
func areReports(args []string) bool {
	return len(args) > 0 && !slices.ContainsFunc(args, func(arg string) bool { return !isFile(arg) && !strings.HasSuffix(arg, ".json") || isTopology(arg) })
}

// isTopology reports whether the argument of a command is a topology rather than a report.
func isTopology(arg string) bool {
	return arg == standardInput || strings.HasSuffix(arg, ".yaml") || strings.HasSuffix(arg, ".yml")
}

// shownLab returns the lab that the arguments name, by itself or by a file.
func shownLab(cmd *cobra.Command, args []string) (string, error) {
	switch {
	case len(args) > 1:
		return "", misuse("ui takes one lab, one topology or up to %d reports, found %s", mostReports, strings.Join(args, " and "))
	case len(args) == 0 || !isFile(args[0]):
		return labArgument(cmd, args, "one lab or file")
	}
	t, err := readTopology(cmd.Context(), args[0])
	if err != nil {
		return "", err
	}
	return t.Name, isUp(cmd.Context(), t.Name, args[0])
}

// isUp returns an error with the remedy unless the lab of a file is up.
func isUp(ctx context.Context, name, file string) error {
	l, err := lab.Open(ctx, name)
	if control.CodeOf(err) == control.Usage {
		return control.Errorf(control.Usage, "%v; `%s` brings it up", err, words.CommandLine([]string{"ndklab", "up", file}))
	}
	if err != nil {
		return err
	}
	return l.Close()
}
