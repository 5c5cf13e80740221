package main

import (
	"context"
	"fmt"
	"io"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/spf13/cobra"
)

func adapterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adapter [LAB[/NODE]] [-o text|json] [--enable|--disable] [-t FILE]",
		Short: "Show the nodes' RDMA adapters, or enable or disable one",
		Long: `Shows a node's RDMA adapter: whether it is enabled, its addresses with the MTU
and the RoCE frame size in force, its limits, flags and capabilities under their
NDK names, how much of them is in use, and its configuration. With a lab, shows a
line for each of its nodes.

--disable asks every consumer in the node to close the adapter: workloads do, and end,
and programs do that heed the event (Miniport.Subscribe); those that do not go on with
what they have open. Until --enable nobody can open it again. It waits up to
5 s for them; the exit code is 1 if any has the adapter open still. --enable
and --disable do nothing if that is so already.`,
		Example: `  ndklab adapter pair
  ndklab adapter pair/client
  ndklab adapter pair/client -o json
  ndklab adapter pair/client --disable
  ndklab adapter pair/client --enable`,
		Args: arguments(0, 1, "one lab or node"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	enable := cmd.Flags().Bool("enable", false, "enable the node's adapter")
	disable := cmd.Flags().Bool("disable", false, "disable the node's adapter")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		labName, node, err := targetArgument(cmd, args)
		switch {
		case err != nil:
			return err
		case *enable && *disable:
			return misuse("adapter takes --enable or --disable, found both")
		case (*enable || *disable) && node == "":
			return misuse("--enable and --disable are for one node, expected %s/NODE", labName)
		}
		sweep(cmd)
		l, err := lab.Open(cmd.Context(), labName)
		if err != nil {
			return err
		}
		defer l.Close()
		if *enable || *disable {
			return setAdapter(cmd.Context(), cmd.OutOrStdout(), l, node, *enable, *output)
		}
		adapters, err := l.Adapters(cmd.Context(), node)
		if err != nil {
			return err
		}
		data := struct {
			Lab   string               `json:"lab"`
			Nodes []report.NodeAdapter `json:"nodes"`
		}{labName, adapters}
		return output.print(cmd.OutOrStdout(), data, func(w io.Writer) error {
			if node != "" {
				return report.WriteAdapter(w, adapters[0])
			}
			return report.WriteAdapters(w, adapters)
		})
	}
	return cmd
}

// setAdapter enables or disables a node's adapter.
func setAdapter(ctx context.Context, w io.Writer, l *lab.Lab, node string, enable bool, output format) error {
	change, err := l.Enable(ctx, node, enable)
	if err != nil {
		return err
	}
	text, done := outcome(change, enable)
	err = output.print(w, change, func(w io.Writer) error {
		_, err := fmt.Fprintf(w, "%s/%s: adapter %s\n", change.Lab, change.Node, text)
		return err
	})
	if err != nil {
		return err
	}
	if !done {
		return exitStatus(exitFailed)
	}
	return nil
}

// outcome says what has become of an adapter that was to be enabled or disabled,
// and whether that is done.
func outcome(c *lab.StateChange, enable bool) (text string, done bool) {
	switch {
	case enable && !c.Enabled:
		return fmt.Sprintf("is not enabled yet: instances still open from before it was disabled: %d", c.Left), false
	case enable && c.Was:
		return "is enabled already", true
	case enable:
		return "is enabled", true
	case c.Left > 0:
		return fmt.Sprintf("is disabled; of %d open instances %d are not closed yet", c.Open, c.Left), false
	case !c.Was && c.Open == 0:
		return "is disabled already", true
	default:
		return fmt.Sprintf("is disabled; open instances that were closed: %d", c.Open), true
	}
}
