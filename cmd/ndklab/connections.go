package main

import (
	"context"
	"io"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/text"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/internal/topology/naming"
	"github.com/spf13/cobra"
)

func connectionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connections [LAB[/NODE]] [-o text|json] [-t FILE]",
		Short: "List RDMA connections, queue pairs, listeners and shared endpoints",
		Long: `Lists the connections, listeners and shared endpoints of the adapters of a lab or a
node, as "netstat -xan" does on Windows. Mode is Kernel for the node's own workloads,
whose PID is 0. It is User for other processes in the node, with their PID as the host
knows it. Only connections have a state and queue pair numbers (QPN). IfIndex is the
index of the local address's interface in the node. Connections made without connection
management, as by rc-pingpong, have the port 0.

A QueuePair is one of a program that uses libibverbs and has connected it by itself, or
not at all. It has its transport (RC, UC or UD), its state as ibv_query_qp has it, and
the packets that it has sent and received. The Connection of a program that uses
librdmacm has these, too. A process that is stopped has none in the list.

A range or a pattern stands for several nodes: 'LAB/h[1-8]', 'LAB/leaf*'.`,
		Example: `  ndklab connections pair
  ndklab connections pair/server -o json`,
		Args: arguments(0, 1, "one lab or node"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		return withTarget(cmd, args, func(l *lab.Lab, word string) error {
			list, err := connectionsOf(cmd.Context(), l, word)
			if err != nil {
				return err
			}
			return output.print(cmd.OutOrStdout(), list, func(w io.Writer) error { return text.WriteConnections(w, list) })
		})
	}
	return cmd
}

// connectionsOf is the connections of the hosts that a word stands for; of all for "".
func connectionsOf(ctx context.Context, l *lab.Lab, word string) (*report.Connections, error) {
	if !naming.IsSeveral(word) {
		return l.Nodes.Connections(ctx, word)
	}
	list, err := l.Nodes.Connections(ctx, "")
	if err != nil {
		return nil, err
	}
	var hosts []string
	for _, n := range list.Nodes {
		hosts = append(hosts, n.Name)
	}
	chosen, err := among(list.Lab, word, "host", hosts)
	list.Nodes = slices.DeleteFunc(list.Nodes, func(n report.NodeState) bool { return !slices.Contains(chosen, n.Name) })
	list.Connections = slices.DeleteFunc(list.Connections, func(c adapter.Connection) bool { return !slices.Contains(chosen, c.Node) })
	return list, err
}
