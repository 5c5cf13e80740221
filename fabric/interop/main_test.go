package interop

import (
	"context"
	"fmt"
	"net/netip"
	"os"
	"strconv"
	"strings"
	"testing"

	"github.com/ndklab/ndklab/fabric/lab"
	"github.com/ndklab/ndklab/node/workload/rping"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
)

// The test binary is also every process of a lab, and the programs that tests run
// in nodes.
func TestMain(m *testing.M) {
	lab.Child()
	if program := os.Getenv("NDKLAB_TEST_PROGRAM"); program != "" {
		if err := ours(strings.Fields(program)); err != nil {
			fmt.Fprintln(os.Stderr, program+":", err)
			os.Exit(1)
		}
		os.Exit(0)
	}
	os.Exit(m.Run())
}

// ours is our end of rping, in a node:
//
//	server ADDRESS:PORT SIZE          says "listening" and serves one client
//	client ADDRESS:PORT SIZE ROUNDS
func ours(args []string) error {
	ctx := context.Background()
	at, err := netip.ParseAddrPort(args[1])
	if err != nil {
		return err
	}
	size, err := strconv.Atoi(args[2])
	if err != nil {
		return err
	}
	device, err := lease.Open(ctx)
	if err != nil {
		return err
	}
	defer device.Close()
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		return status
	}
	defer adapter.Close()
	if args[0] == "server" {
		return rping.Serve(ctx, adapter, at, rping.Options{Size: size}, func() { fmt.Println("listening") })
	}
	rounds, err := strconv.Atoi(args[3])
	if err != nil {
		return err
	}
	return rping.Call(ctx, adapter, at, rounds, rping.Options{Size: size})
}
