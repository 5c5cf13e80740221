package generate

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// This file is the shapes in which congestion spreads. Their switches or routers have shared buffers, so that
// a lab takes some dilation for them. The papers that describe the phenomena are named in examples/congestion.

// A Fabric says how the nodes of a simulated shape fare with congestion.
type Fabric struct {
	Buffer     uint64 // bytes that all ports of a switch share
	Congestion string // control of the adapters, one of Congestions
	PFC        bool   // ports and adapters pause each other, so that nothing is lost
}

// Congestions names the controls that adapters of a Fabric may have.
var Congestions = []string{"none", "dcqcn"}

// usualFabric pauses and does nothing else about congestion.
var usualFabric = Fabric{Buffer: 12 << 20, Congestion: "none", PFC: true}

// shared is the link of a simulated shape.
var shared = Link{Rate: 40e9, Delay: time.Microsecond}

// senders is a parameter for a number of hosts that send.
func senders(usage string, least, usual, most int) []Parameter {
	return []Parameter{{Name: "senders", Usage: usage, Default: usual, Minimum: least, Maximum: most}}
}

var incast = Shape{
	Name:    "incast",
	Summary: "hosts that write to one over a switch",
	Text: `Hosts at a switch write to one more host there. Rate, delay and loss are those of every
link. The ports share a buffer. Run it with --simulate, or in a lab with --dilation.`,
	Parameters: senders("how many hosts write", 2, 16, 64),
	Link:       shared,
	Fabric:     &usualFabric,
	write: func(f *file) {
		n := f.Values["senders"]
		f.simulated(fmt.Sprintf("An incast: %d hosts write to one over a switch", n), "switch")
		f.line("    s0: {kind: shared}")
		f.hosts("h[1-%d]", n)
		f.line("    server:")
		f.line("  links:")
		f.ends("h[1-%d]:eth0", n, "s0:*")
		f.link("server:eth0", "s0:server")
		f.line("")
		f.line("workloads:")
		f.incast("incast", n)
		f.outcome("s0", "incast")
	},
}

var victim = Shape{
	Name:    "victim",
	Summary: "an incast beside a flow to another host",
	Text: `Hosts at a switch write to one host at a second switch, and one more host writes to
another there. With PFC alone the flow of that one is slowed down as well, though its
links have room. Rate, delay and loss are those of the hosts' links; the link between the
switches has two and a half times the rate. The ports of a switch share a buffer, which
fills up. Run it with --simulate, or in a lab with --dilation.`,
	Parameters: senders("how many hosts write to one", 2, 4, 64),
	Link:       shared,
	Fabric:     &usualFabric,
	write: func(f *file) {
		n := f.Values["senders"]
		f.simulated(fmt.Sprintf("A victim flow beside an incast of %d hosts", n), "switch")
		f.line("    s[0-1]: {kind: shared}")
		f.hosts("h[1-%d]", n)
		f.line("    sender:")
		f.line("    server:")
		f.line("    other:")
		f.line("  links:")
		f.ends("h[1-%d]:eth0", n, "s0:*")
		f.link("sender:eth0", "s0:sender")
		f.line(`    - {endpoints: ["s0:trunk", "s1:trunk"], rate: %s}   # it has room for the server's link and the other's`, topology.FormatRate(f.Link.Rate*5/2))
		f.link("server:eth0", "s1:server")
		f.link("other:eth0", "s1:other")
		f.line("")
		f.line("workloads:")
		f.incast("incast", n)
		f.flow("victim", "sender", "other")
		f.outcome("s[0-1]", "incast", "victim")
	},
}

var parkingLot = Shape{
	Name:    "parking-lot",
	Summary: "far hosts that share a link with a near one",
	Text: `Hosts at a switch write to a host at a second switch, and so does one host there. With PFC
alone that one gets half of the server's link, and the others share the other half.
Rate, delay and loss are those of every link. The ports of a switch share a buffer, which
fills up. Run it with --simulate, or in a lab with --dilation.`,
	Parameters: senders("how many far hosts write", 2, 3, 64),
	Link:       shared,
	Fabric:     &usualFabric,
	write: func(f *file) {
		n := f.Values["senders"]
		f.simulated(fmt.Sprintf("A parking lot: %d far hosts and a near one write to a server", n), "switch")
		f.line("    s[0-1]: {kind: shared}")
		f.hosts("h[1-%d]", n)
		f.line("    near:")
		f.line("    server:")
		f.line("  links:")
		f.ends("h[1-%d]:eth0", n, "s0:*")
		f.link("s0:trunk", "s1:trunk")
		f.link("near:eth0", "s1:near")
		f.link("server:eth0", "s1:server")
		f.line("")
		f.line("workloads:")
		f.incast("far", n)
		f.flow("near", "near", "server")
		f.outcome("s[0-1]", "far", "near")
	},
}

var ringRouters = Shape{
	Name:    "ring-routers",
	Summary: "routers in a ring that may deadlock",
	Text: `Routers in a ring, each with a host that writes to the host of the second next router.
With PFC alone the routers come to wait for each other, for ever. Rate, delay and loss are
those of every link. The ports of a router share a buffer. Run it with
--simulate, or in a lab with --dilation. The shape "ring" is hosts without routers.`,
	// With fewer routers the way round is as short as the other.
	Parameters: senders("how many routers, each with a host that writes", 5, 5, 64),
	Link:       shared,
	Fabric:     &usualFabric,
	write: func(f *file) {
		n := f.Values["senders"]
		f.simulated(fmt.Sprintf("A ring of %d routers, each with a host that writes to that of the second next", n), "router")
		f.line("    r[1-%d]: {kind: shared}", n)
		f.hosts("h[1-%d]", n)
		f.line("  links:")
		f.line(`    - {endpoints: ["h[1-%d]:eth0", "r[1-%[1]d]:host"]}`, n)
		f.line(`    - {endpoints: ["r[1-%d]:right", "r[2-%d]:left"]}`, n-1, n)
		f.link(fmt.Sprintf("r%d:right", n), "r1:left")
		f.line("")
		f.line("workloads:")
		var names []string
		for i := range n {
			names = append(names, fmt.Sprintf("f%d", i+1))
			f.flow(names[i], fmt.Sprintf("h%d", i+1), fmt.Sprintf("h%d", (i+2)%n+1))
		}
		if !f.Fabric.PFC || f.Fabric.Congestion != "none" {
			f.outcome(fmt.Sprintf("r[1-%d]", n), names...)
			return
		}
		f.line("")
		f.line("# What must hold for the run to pass: it deadlocks. A buffer that is larger than what is in flight does not.")
		f.line("checks:")
		f.line(`  - {deadlocks: ">= 1"}`)
		for _, name := range names {
			f.line(`  - {workload: %s, errors: ">= 1"}`, name)
		}
	},
}

// checkFabric reports a fabric that no file of these shapes can have, in the manner of a Parameter.
func (s Shape) checkFabric(order Order) error {
	switch {
	case s.Fabric == nil:
		return nil
	case order.Link.Rate == 0:
		return errors.New("rate: none, expected a rate such as 40gbit: ports with a shared buffer have one")
	case order.Fabric.Congestion != Congestions[0] && order.Fabric.Congestion != Congestions[1]:
		return fmt.Errorf("congestion: %q is unknown, expected %s", order.Fabric.Congestion, strings.Join(Congestions, " or "))
	}
	return nil
}

// simulated writes all that comes before the nodes of a simulated shape, with the kind "shared" of its switches or
// routers.
func (f *file) simulated(what, kind string) {
	f.line("# %s.", what)
	f.line("#")
	f.line("#   ndklab run FILE --simulate               in virtual time, and report")
	f.line("#   ndklab run FILE --simulate --html PAGE   with plots of queues and rates")
	f.line("#   ndklab run FILE --dilation 160           in a lab, 160 times slower")
	f.line("#")
	f.line("# Written by %q, for you to edit.", f.Command)
	f.line("")
	f.line("name: %s", f.Name)
	f.line("seed: 1                # of all randomness, so that a run can be repeated")
	f.line("series: 100us          # queues and rates over time, for --html and -o json")
	f.line("")
	pauses, lossless := "pfc: [3], ", "[3]"
	if !f.Fabric.PFC {
		pauses, lossless = "", "[]"
	}
	f.line("topology:")
	f.line("  defaults:")
	f.line("    # Adapters as hardware has them, with packets of 1 KiB. DSCP 26 is class 3 of the switches.")
	f.line("    adapter: {congestion: %s, %sdscp: 26, roce_frame_size: 1024, turnaround: 500ns}", f.Fabric.Congestion, pauses)
	f.line("    link:              # what a link says of itself comes before this")
	f.line("      mtu: 1500        # bytes of IP packet")
	f.impairment("      ")
	f.line("  kinds:")
	f.line("    shared:            # what all of them have in common")
	f.line("      kind: %s", kind)
	f.line("      buffer: {preset: hpcc, size: %s}   # of all ports together", topology.FormatSize(f.Fabric.Buffer))
	f.line("      priorities: {lossless: %s}   # classes that pause instead of dropping", lossless)
	f.line("      # watchdog: {detect: 200ms}   # what ends pauses that do not end by themselves")
	f.line("      # port: {ecn: {min: 160KB, max: 640KB, probability: 20%%}}   # absent: as the preset marks")
	f.line("  nodes:")
}

// hosts writes hosts by a range.
func (f *file) hosts(format string, n int) { f.line("    "+format+":", n) }

// ends writes links of a range of hosts to one switch.
func (f *file) ends(format string, n int, at string) { f.link(fmt.Sprintf(format, n), at) }

// incast writes a workload of the hosts h1 ... hN to the server.
func (f *file) incast(name string, n int) {
	f.line(`  - {name: %s, pattern: incast, to: server, nodes: "h[1-%d]", operation: write, size: 1MiB, depth: 8, count: 10}`, name, n)
}

// flow writes a workload from one host to another.
func (f *file) flow(name, from, to string) {
	f.line("  - {name: %s, from: %s, to: %s, operation: write, size: 1MiB, depth: 8, count: 10}", name, from, to)
}

// outcome writes the checks: no workload has errors, and nodes that pause drop nothing.
func (f *file) outcome(nodes string, workloads ...string) {
	f.line("")
	f.line("# What must hold for the run to pass.")
	f.line("checks:")
	for _, w := range workloads {
		f.line("  - {workload: %s, errors: 0}", w)
	}
	if f.Fabric.PFC {
		f.line(`  - {switch: "%s", drops: 0, deadlocks: 0}`, nodes)
	}
}
