package interop

import (
	"context"
	"fmt"
	"os"
	"strings"
	"testing"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/lease"
)

// programs are the programs that tests run in nodes, by name; each is with the
// subject that needs it.
var programs = map[string]func(ctx context.Context, adapter *provider.Adapter, args []string) error{}

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

// programTime bounds the time of one of our programs. It is less than commandTime, so
// that a program that hangs says where.
const programTime = 10 * time.Minute

// ours runs a program with the adapter of the node that it is in.
func ours(args []string) error {
	program := programs[args[0]]
	if program == nil {
		return fmt.Errorf("no program has the name %s", args[0])
	}
	ctx, cancel := context.WithTimeout(context.Background(), programTime)
	defer cancel()
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
	return program(ctx, adapter, args[1:])
}
