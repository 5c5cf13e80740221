package main

import (
	"context"
	"fmt"
	"net/netip"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/node/workload/rping"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
	"github.com/spf13/cobra"
)

func rpingCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:   "rping -s|-c -a ADDRESS [-p PORT] [-C COUNT] [-S SIZE] [-I ADDRESS] [-v]",
		Short: "In a node: be one end of rdma-core's rping",
		Long: `Runs one end of rping, in a node, by "ndklab exec". It has the flags of rdma-core's
rping, and the other end may be that program. The server serves one client and ends with
it. The client compares every answer byte for byte, as rping does with -V.`,
		Example: `  ndklab exec pair/server -- ndklab rping -s -a 10.0.0.2 -v
  ndklab exec pair/client -- ndklab rping -c -a 10.0.0.2 -C 10 -v`,
		Args: arguments(0, 0, "no arguments"),
	}
	flags := cmd.Flags()
	server := flags.BoolP("server", "s", false, "serve one client")
	client := flags.BoolP("client", "c", false, "be a client")
	var address netip.Addr
	flags.TextVarP(&address, "address", "a", netip.Addr{}, "of the server, which must be the node's own for -s")
	var local netip.Addr
	flags.TextVarP(&local, "bind", "I", netip.Addr{}, "of the client; absent: the one from which the server is reached")
	port := flags.Uint16P("port", "p", rping.DefaultPort, "of the server")
	count := flags.IntP("count", "C", 1, "how many rounds a client does")
	size := flags.IntP("size", "S", rping.DefaultSize, fmt.Sprintf("bytes of text, %d to %d; a server takes that or less of its client", rping.MinSize, rping.MaxSize))
	verbose := flags.BoolP("verbose", "v", false, "print the text of every round")
	flags.BoolP("validate", "V", true, "compare the answers, which is always done")
	cmd.RunE = func(cmd *cobra.Command, _ []string) error {
		switch {
		case *server == *client:
			return misuse("rping takes -s or -c")
		case !address.IsValid():
			return misuse("rping needs -a ADDRESS")
		case *port == 0:
			return misuse("-p 0, expected 1 to 65535")
		case *count < 1:
			return misuse("-C %d, expected 1 at least", *count)
		case *size < rping.MinSize || *size > rping.MaxSize:
			return misuse("-S %d, expected %d to %d", *size, rping.MinSize, rping.MaxSize)
		}
		address, local = address.Unmap(), local.Unmap()
		if local.IsValid() && local.Is4() != address.Is4() {
			return misuse("-I %v with -a %v, expected two of IPv4 or two of IPv6", local, address)
		}
		o := rping.Options{Size: *size, Local: local}
		if *verbose {
			o.Verbose = cmd.OutOrStdout()
		}
		at := netip.AddrPortFrom(address, *port)
		return withAdapter(cmd, func(ctx context.Context, adapter *provider.Adapter) error {
			if *client {
				return rping.Call(ctx, adapter, at, *count, o)
			}
			return rping.Serve(ctx, adapter, at, o, func() { fmt.Fprintln(cmd.ErrOrStderr(), "listening at", at) })
		})
	}
	return cmd
}

// withAdapter calls f with the adapter of the node that this process runs in. An
// error of f is a workload's failure.
func withAdapter(cmd *cobra.Command, f func(context.Context, *provider.Adapter) error) error {
	ctx := cmd.Context()
	device, err := lease.Open(ctx)
	if err != nil {
		return control.Errorf(control.Usage, "%v", err)
	}
	defer device.Close()
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		return fmt.Errorf("open adapter: %w", status)
	}
	defer adapter.Close() // waits until what was made on it is closed
	err = f(ctx, adapter)
	if err == nil || ctx.Err() != nil {
		return err
	}
	tell(cmd.ErrOrStderr(), err, exitFailed)
	return exitStatus(exitFailed)
}
