package main

import (
	"github.com/ndklab/ndklab/internal/fabric/monitor"
	"github.com/spf13/cobra"
)

// uiAddress is the default of --listen: any port that is free, on this machine alone.
const uiAddress = "127.0.0.1:0"

func uiCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "ui [LAB] [--listen ADDRESS] [--no-open] [-t FILE]",
		Short: "Show a lab in the browser, live",
		Long:  `Serves a page that shows a lab that is up, live, and does to it what commands do.`,
		Example: `  ndklab ui pair
  ndklab ui pair --no-open`,
		Args: labArguments(0, 0, "one lab"),
	}
	topologyFlag(cmd)
	listen := cmd.Flags().String("listen", uiAddress, "serve at this `ADDRESS`, HOST:PORT")
	noOpen := cmd.Flags().Bool("no-open", false, "open no browser")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		if err := checkAddress(*listen); err != nil {
			return err
		}
		tidy(cmd)
		labName, err := labArgument(cmd, args, "one lab")
		if err != nil {
			return err
		}
		err = monitor.Run(cmd.Context(), monitor.Params{UI: &monitor.UI{Lab: labName, Listen: *listen, Open: !*noOpen}, Version: version}, nil, cmd.OutOrStdout(), cmd.ErrOrStderr())
		if cmd.Context().Err() != nil {
			return nil
		}
		return err
	}
	return cmd
}
