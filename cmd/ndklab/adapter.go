package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/topology/naming"
	"github.com/spf13/cobra"
)

func adapterCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "adapter [LAB[/NODE]] [-o text|json] [--enable|--disable] [-t FILE]",
		Short: "Show the nodes' RDMA adapters, or enable or disable one",
		Long: `Shows a node's RDMA adapter: whether it is enabled, its addresses with the MTU and the
RoCE frame size in force, its limits, flags and capabilities under their NDK names, how
much of them is in use, and its configuration. For a lab, or for nodes by a range or a
pattern such as 'LAB/h[1-4]', it shows a line for each adapter.

--disable asks every consumer in the node to close the adapter. Workloads do, and end;
so do programs that subscribe to the event (Miniport.Subscribe). Other programs go on
with what they have open. Nobody can open the adapter until --enable. The command waits
up to 5 s for them; the exit code is 1 if any still has the adapter open. --enable and
--disable change nothing if the adapter is so already. Both take a range or a pattern.`,
		Example: `  ndklab adapter pair
  ndklab adapter pair/client
  ndklab adapter pair/client -o json
  ndklab adapter 'fabric/h[1-4]'
  ndklab adapter pair/client --disable
  ndklab adapter pair/client --enable`,
		Args: arguments(0, 1, "one lab or node"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	enable := cmd.Flags().Bool("enable", false, "enable the adapter")
	disable := cmd.Flags().Bool("disable", false, "disable the adapter")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		labName, node, err := targetArgument(cmd, args)
		switch {
		case err != nil:
			return err
		case *enable && *disable:
			return misuse("adapter takes --enable or --disable, found both")
		case (*enable || *disable) && node == "":
			return misuse("--enable and --disable are for one node or some, expected %s/NODE", labName)
		}
		tidy(cmd)
		return withOpen(cmd.Context(), labName, func(l *lab.Lab) error {
			if *enable || *disable {
				return setAdapters(cmd, l, node, *enable, *output)
			}
			adapters, err := adaptersOf(cmd.Context(), l, node)
			if err != nil {
				return err
			}
			data := struct {
				Lab   string               `json:"lab"`
				Nodes []report.NodeAdapter `json:"nodes"`
			}{labName, adapters}
			return output.print(cmd.OutOrStdout(), data, func(w io.Writer) error {
				if node != "" && !naming.IsSeveral(node) {
					return text.WriteAdapter(w, adapters[0])
				}
				return text.WriteAdapters(w, adapters)
			})
		})
	}
	return cmd
}

// adaptersOf is the adapters of the hosts that a word stands for; of all for "".
func adaptersOf(ctx context.Context, l *lab.Lab, word string) ([]report.NodeAdapter, error) {
	if !naming.IsSeveral(word) {
		return l.Nodes.Adapters(ctx, word)
	}
	all, err := l.Nodes.Adapters(ctx, "")
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, a := range all {
		hosts = append(hosts, a.Name)
	}
	chosen, err := among(l.Info().Lab, word, "host", hosts)
	return slices.DeleteFunc(all, func(a report.NodeAdapter) bool { return !slices.Contains(chosen, a.Name) }), err
}

// setAdapters enables or disables the adapter of a node, or those of the nodes that a word
// stands for, one after the other. It goes on after one that fails. The JSON is an object of
// the one node, or has a list of them.
func setAdapters(cmd *cobra.Command, l *lab.Lab, word string, enable bool, output format) error {
	names := []string{word} // what is wrong with one, setting it finds out
	several := naming.IsSeveral(word)
	if several {
		adapters, err := adaptersOf(cmd.Context(), l, word)
		if err != nil {
			return err
		}
		names = nil
		for _, a := range adapters {
			names = append(names, a.Name)
		}
	}
	changed := struct {
		Nodes []*node.StateChange `json:"nodes"`
	}{[]*node.StateChange{}}
	var failed error
	var text strings.Builder
	complete := true
	for _, name := range names {
		change, err := l.Nodes.Enable(cmd.Context(), name, enable)
		if err != nil {
			failed = errors.Join(failed, err)
			continue
		}
		changed.Nodes = append(changed.Nodes, change)
		became, done := outcome(change, enable)
		fmt.Fprintf(&text, "%s/%s: adapter %s\n", change.Lab, change.Node, became)
		complete = complete && done
	}
	var data any = changed
	if !several {
		if failed != nil {
			return failed
		}
		data = changed.Nodes[0]
	}
	if failed == nil {
		failed = verdict(complete)
	}
	return errors.Join(output.printText(cmd.OutOrStdout(), data, text.String()), failed)
}

// outcome says what has become of an adapter that was to be enabled or disabled,
// and whether that is done.
func outcome(c *node.StateChange, enable bool) (text string, done bool) {
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
