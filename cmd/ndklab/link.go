package main

import (
	"context"
	"errors"
	"fmt"
	"io"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/topology/naming"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

func linkCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "link COMMAND",
		Short: "Show, change, cut and probe the links of a lab that is up",
		Long: `Shows what the links of a lab that is up do to packets, changes it, takes links
down and up, cuts the lab into parts, and measures a link.

A link is named by either of its ends, LAB/NODE:IFACE, and several by a range or a
pattern, 'LAB/leaf[1-4]:*'. With -t FILE the lab is the file's, and the link is named
NODE:IFACE.`,
		Example: `  ndklab link show pair
  ndklab link set pair/client:eth0 delay=5ms loss=1%
  ndklab link verify pair/client:eth0
  ndklab link reset pair/client:eth0
  ndklab link down 'fabric/leaf*:up1'
  ndklab link down -t examples/pair.ndklab.yaml client:eth0`,
	}
	needCommand(cmd, " of links")
	for _, command := range []*cobra.Command{
		linkShowCommand(), linkSetCommand(), linkResetCommand(), linkDownCommand(), linkUpCommand(),
		linkPartitionCommand(), linkHealCommand(), linkVerifyCommand(),
	} {
		command.DisableFlagsInUseLine = true
		cmd.AddCommand(command)
	}
	return cmd
}

func linkShowCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "show [LAB[/NODE:IFACE]] [-o text|json] [-t FILE]",
		Short: "Show what links are set to, and what they did",
		Long: `Shows a link, or all links of a lab. A link has, for each direction, what it is set to
do to packets, as "link set" takes it; its engine, which carries the packets (plain: the
kernel, because there is nothing to do); whether it is up; and what it has done so far.`,
		Example: `  ndklab link show pair
  ndklab link show pair/client:eth0 -o json
  ndklab link show -t examples/pair.ndklab.yaml`,
		Args: func(cmd *cobra.Command, args []string) error {
			if cmd.Flags().Changed("topology") {
				return arguments(0, 1, "one link or none with -t")(cmd, args)
			}
			return arguments(0, 1, "one lab or link")(cmd, args)
		},
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withLinks(cmd, args, true, func(l *lab.Lab, endpoints, _ []string) error {
			return showLinks(cmd, l, endpoints, *output, text.WriteLinks)
		})
	}
	return cmd
}

func linkSetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "set LAB/NODE:IFACE KEY=VALUE... [--from NODE] [-o text|json] [-t FILE]",
		Short: "Change what a link does to packets",
		Long: `Changes what a link does to packets from now on, in both directions or, with
--from, in the direction of the packets that the node sends. What is not named stays as
it is. Nothing changes for packets that are under way. Keys and values are those of links
in topology files; a map or a list is written as in one line of such a file. The value
none takes a setting away.

  delay=5ms  jitter=1ms  loss=1%  duplicate=0.1%  reorder=1%  corrupt=0.01%
  rate=1gbit  burst=64KiB  queue=4MiB  'ecn={min: 100KiB, max: 400KiB}'
  cut=true  'flap={period: 1s, down: 100ms}'  faults=...

docs/topology.md explains each, under Impairments and Faults.`,
		Example: `  ndklab link set pair/client:eth0 delay=5ms jitter=1ms
  ndklab link set pair/client:eth0 loss=2% --from client
  ndklab link set pair/client:eth0 'loss={rate: 1%, burst: 5}' rate=none
  ndklab link set pair/client:eth0 'faults=[{match: {opcode: ACKNOWLEDGE, nth: 3}, action: drop}]'`,
		Args: arguments(2, -1, "a link and KEY=VALUE..."),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	from := fromFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withLinks(cmd, args, false, func(l *lab.Lab, endpoints, args []string) error {
			change, err := unlessInterrupted(cmd.Context(), func() (topology.Change, error) {
				change, err := topology.ParseChange(readFile, args)
				if err != nil {
					return change, misuse("%w", err)
				}
				return change, nil
			})
			if err != nil {
				return err
			}
			return changeLinks(cmd, l, endpoints, *output, func(endpoint string) error { return l.Links.Set(cmd.Context(), endpoint, *from, change) })
		})
	}
	return cmd
}

// fromFlag adds --from.
func fromFlag(cmd *cobra.Command) *string {
	return cmd.Flags().String("from", "", "change only what this `NODE` sends")
}

func linkResetCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "reset LAB/NODE:IFACE [--from NODE] [-o text|json] [-t FILE]",
		Short: "Set a link to what the topology file has for it",
		Long: `Takes back what "link set" and the timeline have changed of a link, in both
directions or, with --from, in the direction of the packets that the node sends. Whether
the link is up does not change.`,
		Example: `  ndklab link reset pair/client:eth0
  ndklab link reset pair/client:eth0 --from client`,
	}
	from := fromFlag(cmd)
	return linkChangeCommand(cmd, func(l lab.Links, ctx context.Context, endpoint string) error { return l.Reset(ctx, endpoint, *from) })
}

func linkDownCommand() *cobra.Command {
	return linkChangeCommand(&cobra.Command{
		Use:   "down LAB/NODE:IFACE [-o text|json] [-t FILE]",
		Short: "Take a link down",
		Long: `Takes a link down, as if its cable were pulled: the interfaces at its ends lose their
carrier, and packets under way are lost. A link that is down already stays down.

"link set LAB/NODE:IFACE cut=true" has a link lose everything and keep the carrier.`,
		Example: `  ndklab link down pair/client:eth0`,
	}, lab.Links.Down)
}

func linkUpCommand() *cobra.Command {
	return linkChangeCommand(&cobra.Command{
		Use:     "up LAB/NODE:IFACE [-o text|json] [-t FILE]",
		Short:   "Bring a link up again",
		Long:    `Brings up a link that "link down", a partition or the topology file took down.`,
		Example: `  ndklab link up pair/client:eth0`,
	}, lab.Links.Up)
}

// linkChangeCommand completes a command that does something to links, each by an endpoint.
func linkChangeCommand(cmd *cobra.Command, do func(lab.Links, context.Context, string) error) *cobra.Command {
	cmd.Args = arguments(1, 1, "one link")
	output := outputFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withLinks(cmd, args, false, func(l *lab.Lab, endpoints, _ []string) error {
			return changeLinks(cmd, l, endpoints, *output, func(endpoint string) error { return do(l.Links, cmd.Context(), endpoint) })
		})
	}
	return cmd
}

// changeLinks calls do for each endpoint, and prints what the links are set to then.
func changeLinks(cmd *cobra.Command, l *lab.Lab, endpoints []string, output format, do func(endpoint string) error) error {
	if err := eachOf(endpoints, do); err != nil {
		return err
	}
	return showLinks(cmd, l, endpoints, output, text.WriteSettings)
}

// eachOf calls do for each name, also after one that it fails of, but not when it is
// interrupted.
func eachOf(names []string, do func(name string) error) error {
	var problems error
	for _, name := range names {
		err := do(name)
		if errors.Is(err, context.Canceled) {
			return err
		}
		problems = errors.Join(problems, err)
	}
	return problems
}

// showLinks prints the links with the endpoints, or all links for "".
func showLinks(cmd *cobra.Command, l *lab.Lab, endpoints []string, output format, asText func(io.Writer, []report.Link) error) error {
	var links []report.Link
	for _, endpoint := range endpoints {
		some, err := l.Links.Inspect(cmd.Context(), endpoint)
		if err != nil {
			return err
		}
		links = append(links, some...)
	}
	data := struct {
		Lab   string        `json:"lab"`
		Links []report.Link `json:"links"`
	}{l.Info().Lab, links}
	return output.print(cmd.OutOrStdout(), data, func(w io.Writer) error { return asText(w, links) })
}

func linkPartitionCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "partition LAB SET... [-o text|json] [-t FILE]",
		Short: "Cut a lab into parts that do not reach each other",
		Long: `Takes down every link between nodes of different sets. A set is a list of nodes
with commas. Nodes in no set form one more. Switches and routers are nodes, too:
hosts that are to reach each other over one need it in their set. Ranges and patterns
stand for several nodes: 'h[1-8],leaf*'. A partition takes the place of an earlier one.
"link heal" ends it.`,
		Example: `  ndklab link partition ring a,b c,d
  ndklab link partition ring a          cut off one node
  ndklab link partition star a,b,sw c
  ndklab link heal ring`,
		Args: labArguments(1, -1, "a lab and sets of nodes"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withLab(cmd, args, func(l *lab.Lab, args []string) error {
			var sets [][]string
			for _, arg := range args {
				var set []string
				for _, word := range naming.Split(arg) {
					if word == "" {
						return misuse("%q is no set of nodes, expected NODE,NODE...", arg)
					}
					nodes, err := named(cmd.Context(), l, word, "node", machines)
					if err != nil {
						return err
					}
					set = append(set, nodes...)
				}
				sets = append(sets, set)
			}
			links, err := l.Links.Partition(cmd.Context(), sets...)
			return tellSwitched(cmd, l, links, "down", *output, err)
		})
	}
	return cmd
}

func linkHealCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "heal [LAB] [-o text|json] [-t FILE]",
		Short: "End a partition",
		Long: `Brings up the links that "link partition" or a partition of the timeline took down,
but for those that "link down" took down as well.`,
		Example: `  ndklab link heal ring`,
		Args:    labArguments(0, 0, "one lab"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withLab(cmd, args, func(l *lab.Lab, _ []string) error {
			links, err := l.Links.Heal(cmd.Context())
			return tellSwitched(cmd, l, links, "up", *output, err)
		})
	}
	return cmd
}

// tellSwitched prints which links went down or up, by an end of each.
func tellSwitched(cmd *cobra.Command, l *lab.Lab, links []string, state string, output format, err error) error {
	if err != nil {
		return err
	}
	data := struct {
		Lab   string   `json:"lab"`
		State string   `json:"state"`
		Links []string `json:"links"`
	}{l.Info().Lab, state, links}
	text := fmt.Sprintf("lab %s: links that are %s: %d\n", data.Lab, state, len(links))
	for _, link := range links {
		text += "  " + link + "\n"
	}
	return output.printText(cmd.OutOrStdout(), data, text)
}
