package main

import (
	"context"
	"fmt"
	"io"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/internal/topology/naming"
	"github.com/ndklab/ndklab/topology"
	"github.com/spf13/cobra"
)

func inspectCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "inspect [LAB[/NODE[:IFACE]]] [-o text|json] [-v] [-t FILE]",
		Short: "Show the nodes and links of a lab that is up, or one of them",
		Long: `Shows the nodes and links of a lab that is up. Nodes have their process ids, addresses
and NDK counters. Links have what was asked of them and what they did so far. Ends of
links outside the lab have the paths by which frames get there.

A node with limits has what it has used: processor time and how long it was throttled,
memory now and at its peak, processes and threads now and how many were refused. A node
that is down because it went over its memory says so.

A switch has its ports, each by the name of the link's end there, with its state and how
many MAC addresses were learned there. A port that is blocking is a spare of the spanning
tree. A port that is disabled has no carrier.

Of a lab whose rows would not fit a screen it shows totals and the worst five. With -v it
shows all rows.

LAB/NODE is that node, its links and its adapter. LAB/NODE:IFACE is that link. A range or
a pattern, 'LAB/h[1-4]' or 'LAB/leaf*:*', stands for several. Without LAB it is the lab
of the one *.ndklab.yaml in the current folder. With -t FILE the lab is the file's, and
nodes and links are named NODE and NODE:IFACE.`,
		Example: `  ndklab inspect pair
  ndklab inspect pair -o json
  ndklab inspect pair/client
  ndklab inspect 'fabric/leaf*:*'`,
		Args: arguments(0, 1, "one lab, node or link"),
	}
	output, verbose := outputFlag(cmd), verboseFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withTarget(cmd, args, func(l *lab.Lab, word string) error {
			i, err := l.Inspect(cmd.Context())
			if err != nil {
				return err
			}
			found := &inspection{Inspection: i}
			if word != "" {
				if err := found.only(cmd.Context(), l, word); err != nil {
					return err
				}
			}
			return output.print(cmd.OutOrStdout(), found, func(w io.Writer) error { return found.write(w, detail(*verbose || word != "")) })
		})
	}
	return cmd
}

// An inspection describes a lab or the part of it that was asked for.
type inspection struct {
	*lab.Inspection
	Adapters []report.NodeAdapter `json:"adapters,omitempty"` // of nodes that are named
}

// write writes the inspection for people.
func (i *inspection) write(w io.Writer, d text.Detail) error {
	state := words.Dilated(i.State, i.Dilation)
	if i.Unfinished != "" {
		state += ", changed in part (" + i.Unfinished + "): `ndklab apply` does the rest"
	}
	err := text.WriteInspection(w, i.Lab, state, i.Seed, i.Nodes, i.Links, i.Externals, d)
	for _, a := range i.Adapters {
		if err == nil && a.Adapter != nil {
			if _, err = fmt.Fprintln(w); err == nil {
				err = text.WriteAdapter(w, a)
			}
		}
	}
	return err
}

// only leaves what a word names: nodes with their links and adapters, or links.
func (i *inspection) only(ctx context.Context, l *lab.Lab, word string) error {
	var nodes, links []string
	var err error
	if strings.Contains(word, ":") {
		links, err = linksNamed(ctx, l, word)
		if err == nil && !naming.IsSeveral(word) {
			_, err = l.Links.Inspect(ctx, word) // says that there is none
		}
	} else {
		var all []string
		for _, n := range i.Nodes {
			all = append(all, n.Name)
		}
		nodes, err = among(i.Lab, word, "node", all)
	}
	if err != nil {
		return err
	}
	i.Nodes = slices.DeleteFunc(i.Nodes, func(n report.Node) bool { return !slices.Contains(nodes, n.Name) })
	if slices.ContainsFunc(i.Nodes, func(n report.Node) bool { return n.Kind == string(topology.Host) }) {
		// Of all, also of those that are down, which is no error here.
		adapters, err := l.Nodes.Adapters(ctx, "")
		if err != nil {
			return err
		}
		i.Adapters = slices.DeleteFunc(adapters, func(a report.NodeAdapter) bool { return !slices.Contains(nodes, a.Name) })
	}
	named := func(endpoint string) bool {
		node, _, _ := strings.Cut(endpoint, ":")
		return slices.Contains(nodes, node) || slices.Contains(links, endpoint)
	}
	outside := make(map[string]bool) // ends of links that stay
	i.Links = slices.DeleteFunc(i.Links, func(l report.Link) bool {
		stays := named(l.Endpoints[0]) || named(l.Endpoints[1])
		outside[l.Endpoints[0]], outside[l.Endpoints[1]] = stays, stays
		return !stays
	})
	i.Externals = slices.DeleteFunc(i.Externals, func(e report.External) bool { return !outside[e.Endpoint] })
	return nil
}
