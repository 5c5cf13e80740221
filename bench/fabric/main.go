// Command fabric measures what the links of a lab do, and holds it against what
// they promise: one line for each figure, with what was asked for, what was found
// and how far the two may be apart.
//
// It trusts nothing that an engine says of itself. Its probes are programs in the
// nodes: they read the kernel's timestamps off packet sockets at both ends of a
// link, count bytes as a wire would carry them, and number every packet, so that
// they know which were lost. The engine's own measurements are shown beside theirs.
//
// Most parts start labs (pair.go). Those that compare carriers, or need to be sure
// that no packet crosses but their own, make two namespaces of their own (rig.go).
//
//	fabric [-only delay,loss,...] [-engines linkem,netem] [-short | -slow] [-json FILE]
//
// It exits with 1 if a limit was missed, or something could not be measured.
//
// Start reading at parts, then at delay.go.
package main

import (
	"context"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/bench/internal/jsonfile"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"golang.org/x/sys/unix"
)

// patience bounds the whole run.
const patience = 15 * time.Minute

// A part is a group of figures that are measured together.
type part struct {
	name    string
	measure func(context.Context, *bench)
	// without says why netem has nothing to show; "" if it has.
	without string
}

// parts lists all that there is to measure, in the order of the table.
var parts = []part{
	{"delay", delay, ""},
	{"loss", loss, ""},
	{"burst", burst, ""},
	{"rate", rate, ""},
	{"tcp", tcp, ""},
	{"passage", inRig("passage"), "packets pass no process"},
	{"fate", inRig("fate"), "what is random is not from the lab's seed"},
	{"memory", memory, "the kernel's limit counts packets"},
	{"idle", idle, "there is no process that could use any"},
}

// engines are those that links have.
var engines = []string{"linkem", "netem"}

func main() {
	lab.Child()
	if len(os.Args) > 2 && os.Args[1] == programArg {
		if err := programs[os.Args[2]](os.Args[3:]); err != nil {
			fmt.Fprintf(os.Stderr, "%s: %v\n", os.Args[2], err)
			os.Exit(1)
		}
		return
	}
	only := flag.String("only", "", "the parts to measure, separated by commas (default all)")
	which := flag.String("engines", "linkem", "the engines to measure, separated by commas")
	file := flag.String("json", "", "file to write the results to")
	emulated := flag.Bool("slow", false, "the machine is emulated: fewer and slower packets, wider limits")
	hurried := flag.Bool("short", false, "less of it, in two minutes, with limits that a busy machine keeps and a broken engine does not")
	flag.Parse()
	if flag.NArg() > 0 {
		flag.Usage()
		os.Exit(2)
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt, unix.SIGTERM)
	defer stop()
	b := &bench{pace: full}
	switch {
	case *emulated:
		b.pace = slow
	case *hurried:
		b.pace = brief
	}
	b.report = b.results.add
	if err := b.run(ctx, *only, *which); err != nil {
		fmt.Fprintln(os.Stderr, "bench-fabric:", err)
		os.Exit(2)
	}
	if err := b.finish(*file); err != nil {
		fmt.Fprintln(os.Stderr, "bench-fabric:", err)
		os.Exit(1)
	}
}

// A bench is one run of the program.
type bench struct {
	engine  string // the one that is being measured
	pace    pace
	report  func(Row) // takes the rows
	results Results
}

// run measures the parts and engines that were asked for, "" being all parts.
func (b *bench) run(ctx context.Context, only, which string) error {
	names, chosen := strings.Split(only, ","), strings.Split(which, ",")
	for _, name := range names {
		if only != "" && !slices.ContainsFunc(parts, func(p part) bool { return p.name == name }) {
			return fmt.Errorf("there is no part %q", name)
		}
	}
	for _, name := range chosen {
		if !slices.Contains(engines, name) {
			return fmt.Errorf("there is no engine %q", name)
		}
	}
	if err := b.results.begin(chosen); err != nil {
		return err
	}
	for _, p := range parts {
		if only != "" && !slices.Contains(names, p.name) || only == "" && b.pace.parts != nil && !slices.Contains(b.pace.parts, p.name) {
			continue
		}
		for _, b.engine = range b.results.Engines {
			switch {
			case ctx.Err() != nil:
			case b.engine == "netem" && p.without != "":
				b.results.lack(p.name, b.engine, p.without)
			default:
				p.measure(ctx, b)
			}
		}
	}
	return ctx.Err()
}

// finish writes the results, and fails if they are not as they should be.
func (b *bench) finish(file string) error {
	b.results.end()
	if len(b.results.Engines) > 1 {
		fmt.Println()
		b.results.compare(os.Stdout)
	}
	if file != "" {
		if err := jsonfile.Write(file, &b.results); err != nil {
			return err
		}
	}
	return b.results.missed()
}
