// Command datapath measures the provider's data path against the kernel's own floor and
// against what people would use instead, all in the same run: one line for each figure,
// with the medians of several rounds, how far they spread, the ratio of the two, and
// what it is to be.
//
//	datapath [-rounds N] [-only REGEXP] [-json FILE]
//	datapath pair [-op write|read|send] [-mode bw|lat|post|idle] [-size 64KiB] [-cpuprofile FILE] ...
//	datapath pair floor|udp [-crc] [-copy] [-busy] ...
//
// The second and the third form make one measurement by hand. All that is measured are pairs of
// processes, in network namespaces of their own that are joined by a veth pair: ends of
// ndklab (end.go), which are consumers written directly on package provider; ends of
// plain UDP (floor.go, udppingpong.go); and the programs of others (peers.go). They are
// this program itself under other names, or of others.
//
// It is a measurement: that a goal is missed is no error. It exits with 1 if something
// could not be measured, and with 2 if the command line is wrong.
//
// Start reading at figures, then at probes; README.md explains each figure.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"

	"github.com/ndklab/ndklab/internal/fabric/lab"
	"golang.org/x/sys/unix"
)

// programs holds what this command runs, instead of the bench, by its first argument.
var programs = map[string]func(context.Context, []string) error{
	"end":   runEnd,
	"pair":  runPair,
	"floor": runFloor,
	"udp":   runUDP,
}

func main() {
	lab.Child()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, unix.SIGTERM)
	defer stop()
	run, args := runBench, os.Args[1:]
	if len(args) > 0 && programs[args[0]] != nil {
		run, args = programs[args[0]], args[1:]
	}
	err := run(ctx, args)
	if err == nil || errors.Is(err, flag.ErrHelp) {
		return
	}
	fmt.Fprintln(os.Stderr, "bench-datapath:", err)
	if errors.Is(err, errUsage) {
		os.Exit(2)
	}
	os.Exit(1)
}
