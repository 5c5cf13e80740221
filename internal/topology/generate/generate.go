// Package generate writes topology files of usual shapes, as a person would who
// wants to go on editing them: with names, comments, what is common to all in one
// place, a small workload and checks.
//
// It makes text and nothing else; package topology reads it. Every file that it
// writes is right, whatever the parameters within their ranges: that is tested.
// Start reading at Shapes; each shape is a function in shapes.go, fabrics.go or congestion.go. Package
// shape decides which nodes and links a fabric has.
package generate

import (
	"fmt"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/topology/shape"
	"github.com/ndklab/ndklab/topology"
)

// A Shape is a form of topology.
type Shape struct {
	Name       string // as the command line has it
	Summary    string // half a line
	Text       string // sentences for its help, lines of usual length
	Parameters []Parameter
	Link       Link    // how its links fare unless asked otherwise
	Fabric     *Fabric // of a simulated shape: how it fares unless asked otherwise
	write      func(*file)
}

// A Parameter is a whole number that a shape depends on.
type Parameter = shape.Parameter

// A Link has the properties of the links of a shape, or of some of them, as the
// shape's text says.
type Link struct {
	Rate  uint64        // bits per second; 0: no limit
	Delay time.Duration // one way
	Loss  float64       // 0 to 1
}

// An Order describes the file to generate.
type Order struct {
	Name    string         // of the lab
	Command string         // what the first comment says that wrote the file
	Values  map[string]int // of all the shape's parameters, by name
	Link    Link
	Fabric  Fabric // of a simulated shape
}

// Generate is the file. The error is that of a parameter that is out of range.
func (s Shape) Generate(order Order) (string, error) {
	for _, p := range s.Parameters {
		if err := p.Check(order.Values[p.Name]); err != nil {
			return "", fmt.Errorf("%s: %w", p.Name, err)
		}
	}
	if err := s.checkFabric(order); err != nil {
		return "", err
	}
	f := &file{Order: order}
	s.write(f)
	return f.String(), nil
}

// Shapes are all there are.
func Shapes() []Shape {
	return []Shape{pair, star, ring, mesh, leafSpine, fatTree, dumbbell, wan, incast, victim, parkingLot, ringRouters}
}

// A file is a topology that is being written.
type file struct {
	strings.Builder
	Order
}

// line writes one line.
func (f *file) line(format string, args ...any) { fmt.Fprintf(f, format+"\n", args...) }

// begin writes all that comes before the nodes' and links' own part. The parameter
// what says what the lab is, for the first comment.
func (f *file) begin(what string) {
	f.line("# %s.", what)
	f.line("#")
	f.line("#   ndklab run FILE      build it, run its workloads, report, take it down")
	f.line("#   ndklab up FILE       build it and leave it to you")
	f.line("#")
	f.line("# Written by %q, for you to edit.", f.Command)
	f.line("")
	f.line("name: %s", f.Name)
	f.line("seed: 1                # of all randomness, so that a run can be repeated")
	f.line("")
	f.line("topology:")
}

// defaults writes link defaults, with the order's link if that is for all.
func (f *file) defaults(all bool) {
	f.line("  defaults:")
	f.line("    link:              # what a link says of itself comes before this")
	f.line("      mtu: 4200        # bytes of IP packet: one RDMA packet carries 4 KiB")
	if all {
		f.impairment("      ")
	}
}

// impairment writes the keys of the order's link, one a line.
func (f *file) impairment(indent string) {
	key := func(text, comment string) { f.line("%s%-*s # %s", indent, 22-len(indent), text, comment) }
	if f.Link.Rate > 0 {
		key("rate: "+topology.FormatRate(f.Link.Rate), "of Ethernet frames, as a wire would carry them")
	}
	if f.Link.Delay > 0 {
		key("delay: "+topology.FormatDuration(f.Link.Delay), "one way, in each direction")
	}
	if f.Link.Loss > 0 {
		key("loss: "+topology.FormatPercent(f.Link.Loss), "of the packets on the wire")
	}
}

// link writes a link that has nothing of its own.
func (f *file) link(a, b string) { f.line("    - {endpoints: [%q, %q]}", a, b) }

// work writes two workloads between two hosts, and their checks. A message to the
// other and its acknowledgement meet the order's delay so many times; 0 if that is
// not known.
func (f *file) work(from, to string, delays int) {
	f.line("")
	f.line(`# The traffic: "from" connects and posts. Each byte is compared.`)
	f.line("workloads:")
	f.line("  - {name: bulk, from: %s, to: %s, operation: write, size: 64KiB, depth: 16, duration: 2s, verify: true}", from, to)
	f.line("  - {name: ping, from: %s, to: %s, operation: send, size: 64B, count: 200, start: 2500ms, verify: true}", from, to)
	f.check(delays, "bulk", "ping")
}

// check writes the checks: no workload has errors, and the last has the latency
// that delays add up to.
func (f *file) check(delays int, workloads ...string) {
	f.line("")
	f.line("# What must hold for the run to pass.")
	f.line("checks:")
	last := len(workloads) - 1
	for _, w := range workloads[:last] {
		f.line("  - {workload: %s, errors: 0}", w)
	}
	least := ""
	if sum := time.Duration(delays) * f.Link.Delay; sum > 0 {
		least = fmt.Sprintf(", latency_min: %q", ">= "+topology.FormatDuration(sum))
	}
	f.line("  - {workload: %s, errors: 0%s}", workloads[last], least)
}
