package main

import (
	"io"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/spf13/cobra"
)

func connectionsCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "connections [LAB[/NODE]] [-o text|json] [-t FILE]",
		Short: "List RDMA connections, listeners and shared endpoints",
		Long: `Lists the connections, listeners and shared endpoints of the adapters of a lab or
a node, as "netstat -xan" does on Windows. Mode is Kernel for the node's own
workloads, whose PID is 0, and User for other processes in the node, with their
PID as the host knows it. State and queue pair numbers (QPN) are of connections;
IfIndex is the index of the local address's interface in the node. Connections made
without connection management, as by rc-pingpong, have no ports: 0 stands for them.`,
		Example: `  ndklab connections pair
  ndklab connections pair/server -o json`,
		Args: arguments(0, 1, "one lab or node"),
	}
	output := outputFlag(cmd)
	topologyFlag(cmd)
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		sweep(cmd)
		l, node, err := openTarget(cmd, args)
		if err != nil {
			return err
		}
		defer l.Close()
		list, err := l.Connections(cmd.Context(), node)
		if err != nil {
			return err
		}
		return output.print(cmd.OutOrStdout(), list, func(w io.Writer) error { return report.WriteConnections(w, list) })
	}
	return cmd
}
