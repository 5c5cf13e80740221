package main

import (
	"context"
	"fmt"
	"net"
	"net/netip"
	"strconv"

	"github.com/ndklab/ndklab/internal/node/workload/pingpong"
	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/provider"
	"github.com/spf13/cobra"
)

func rcPingpongCommand() *cobra.Command {
	cmd := &cobra.Command{
		Use:     "rc-pingpong [-p PORT] [-s SIZE] [-m MTU] [-n COUNT] [-r COUNT] [-c] [-I ADDRESS] [SERVER]",
		Aliases: []string{"rc_pingpong", "ibv_rc_pingpong"},
		Short:   "In a node: be one end of rdma-core's ibv_rc_pingpong",
		Long: `Runs one end of ibv_rc_pingpong, in a node, by "ndklab exec". It has the flags of
rdma-core's ibv_rc_pingpong, and the other end may be that program. Without SERVER it is
the server, with the server's address the client. The ends find each other over TCP, do
without connection management, and send a message to and fro. Size, MTU and count must
be the same at both. The server serves one client and ends with it.

The GID is the node's address from which the peer is reached, or that of -I. With -c
every byte that arrives is compared; both ends need it.`,
		Example: `  ndklab exec pair/server -- ndklab rc-pingpong
  ndklab exec pair/client -- ndklab rc-pingpong -s 65536 -n 100 10.0.0.2`,
		Args: arguments(0, 1, "one server at most"),
	}
	flags := cmd.Flags()
	port := flags.Uint16P("port", "p", pingpong.DefaultPort, "of the server, TCP")
	var o pingpong.Options
	flags.IntVarP(&o.Size, "size", "s", pingpong.DefaultSize, "bytes of a message")
	flags.IntVarP(&o.MTU, "mtu", "m", pingpong.DefaultMTU, "bytes of a message in a packet: 256, 512, 1024, 2048 or 4096")
	flags.IntVarP(&o.Iterations, "iters", "n", pingpong.DefaultIterations, "how often the message goes to and fro")
	flags.IntVarP(&o.Receives, "rx-depth", "r", pingpong.DefaultReceives, "how many receives to post at a time")
	flags.BoolVarP(&o.Validate, "chk", "c", false, "compare what arrives")
	flags.TextVarP(&o.Local, "bind", "I", netip.Addr{}, "address of the node; absent: the one from which the peer is reached")
	flags.DurationVar(&o.Patience, "timeout", pingpong.DefaultPatience, "how long the peer may take for a message")
	flags.BoolP("events", "e", false, "sleep until something has happened, which is always done")
	flags.StringP("ib-dev", "d", "", "means nothing here: a node has one adapter")
	flags.IntP("gid-idx", "g", 0, "means nothing here: see -I")
	cmd.RunE = func(cmd *cobra.Command, args []string) error {
		switch {
		case *port == 0:
			return misuse("-p 0, expected 1 to 65535")
		case o.Size < 1 || o.Size > pingpong.MaxSize:
			return misuse("-s %d, expected 1 to %d", o.Size, pingpong.MaxSize)
		case roce.MTUCode(o.MTU) == 0:
			return misuse("-m %d, expected 256, 512, 1024, 2048 or 4096", o.MTU)
		case o.Iterations < 1:
			return misuse("-n %d, expected 1 at least", o.Iterations)
		case o.Receives < 1:
			return misuse("-r %d, expected 1 at least", o.Receives)
		case o.Patience <= 0:
			return misuse("--timeout %v, expected more than 0", o.Patience)
		case len(args) > 0 && args[0] == "":
			return misuse("SERVER is empty")
		}
		o.Output = cmd.OutOrStdout()
		var r pingpong.Result
		err := withAdapter(cmd, func(ctx context.Context, adapter *provider.Adapter) (err error) {
			if len(args) > 0 {
				r, err = pingpong.Call(ctx, adapter, net.JoinHostPort(args[0], strconv.Itoa(int(*port))), o)
			} else {
				r, err = pingpong.Serve(ctx, adapter, *port, o, func() { fmt.Fprintln(cmd.ErrOrStderr(), "listening at TCP port", *port) })
			}
			return err
		})
		if err != nil {
			return err
		}
		if r.Unacknowledged {
			fmt.Fprintln(cmd.ErrOrStderr(), "the client has not acknowledged the last message; it may have left before")
		}
		_, err = fmt.Fprintln(cmd.OutOrStdout(), r)
		return written(err)
	}
	return cmd
}
