package generate

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/topology/shape"
)

// This file is the shapes whose nodes share links or switches.

// hosts is a parameter for a number of hosts.
func hosts(usage string, least, usual, most int) Parameter {
	return Parameter{Name: "nodes", Usage: usage, Default: usual, Minimum: least, Maximum: most}
}

var pair = Shape{
	Name:    "pair",
	Summary: "two hosts and one link",
	Text:    "Two hosts, joined by one link with the rate, delay and loss.",
	Link:    Link{Rate: 10e9, Delay: time.Millisecond},
	write: func(f *file) {
		f.begin("Two hosts and one link")
		f.line("  nodes:               # each a host with an RDMA adapter of its own")
		f.line("    client:            # {cpu: 0.5, memory: 256MiB} would limit it")
		f.line("    server:")
		f.line("  links:")
		f.line(`    - endpoints: ["client:eth0", "server:eth0"]`)
		f.line("      mtu: 4200        # bytes of IP packet: one RDMA packet carries 4 KiB")
		f.impairment("      ")
		f.line("      # reverse: {loss: 1%%}   # packets sent by the second endpoint, where they fare differently")
		f.work("client", "server", 2)
	},
}

var star = Shape{
	Name:    "star",
	Summary: "hosts at one switch",
	Text: `Hosts at one switch. Rate, delay and loss are those of every link; the switch has
a queue at each port, and marks packets before it drops them.`,
	Parameters: shape.Star.Parameters,
	Link:       Link{Rate: 1e9, Delay: 50 * time.Microsecond},
	write: func(f *file) {
		n := f.Values["nodes"]
		f.begin(fmt.Sprintf("A star: %d hosts at one switch", n))
		f.defaults(true)
		f.line("  nodes:")
		f.line("    switch1:")
		f.line("      kind: switch")
		f.line("      # stp: true      # spanning tree: needed once links between switches make a loop")
		f.line("      port:            # the packets that the switch sends, at each of its ports")
		f.queue("        ")
		f.nodes("h", n)
		f.line("  links:               # all hosts are in one subnet")
		f.links(shape.Star.Plan(f.Values).Links)
		if n == 2 {
			f.work("h1", "h2", 4)
			return
		}
		f.line("")
		f.line("# Two hosts write to one: its port of the switch is the bottleneck.")
		f.line("workloads:")
		f.line("  - {name: incast-1, from: h2, to: h1, operation: write, size: 64KiB, depth: 4, duration: 2s, verify: true}")
		f.line("  - {name: incast-2, from: h3, to: h1, operation: write, size: 64KiB, depth: 4, duration: 2s, verify: true}")
		f.line("  - {name: ping, from: h2, to: h3, operation: send, size: 64B, count: 200, start: 2500ms, verify: true}")
		f.check(4, "incast-1", "incast-2", "ping")
	},
}

var ring = Shape{
	Name:    "ring",
	Summary: "hosts, each linked to the next",
	Text: `Hosts in a ring, each with a link to the next that has the rate, delay and loss.
Hosts do not forward: each reaches its two neighbours.`,
	Parameters: shape.Ring.Parameters,
	Link:       Link{Rate: 1e9, Delay: 100 * time.Microsecond},
	write: func(f *file) {
		n := f.Values["nodes"]
		f.begin(fmt.Sprintf("A ring of %d hosts, each linked to the next", n))
		f.defaults(true)
		f.line("  nodes:")
		f.nodes("h", n)
		f.line("  links:               # right of one, left of the next")
		f.links(shape.Ring.Plan(f.Values).Links)
		f.work("h1", "h2", 2)
	},
}

var mesh = Shape{
	Name:       "mesh",
	Summary:    "hosts, each linked to every other",
	Text:       "Hosts, each with a link to every other that has the rate, delay and loss.",
	Parameters: shape.Mesh.Parameters,
	Link:       Link{Rate: 1e9, Delay: 100 * time.Microsecond},
	write: func(f *file) {
		n := f.Values["nodes"]
		f.begin(fmt.Sprintf("A mesh of %d hosts, each linked to every other", n))
		f.defaults(true)
		f.line("  nodes:")
		f.nodes("h", n)
		f.line("  links:               # an interface is named for the host at the other end")
		f.links(shape.Mesh.Plan(f.Values).Links)
		f.work("h1", "h2", 2)
	},
}

var dumbbell = Shape{
	Name:    "dumbbell",
	Summary: "hosts at two switches, and a narrow link between",
	Text: `Two switches with as many hosts at each, and one link between them with the rate,
delay and loss, which all traffic from one side to the other shares.`,
	Parameters: shape.Dumbbell.Parameters,
	Link:       Link{Rate: 1e9, Delay: time.Millisecond},
	write: func(f *file) {
		n := f.Values["nodes"]
		f.begin(fmt.Sprintf("A dumbbell: %d hosts on the left, as many on the right, and a narrow link between", n))
		f.defaults(false)
		f.line("  kinds:")
		f.line("    switch:            # what all switches have in common")
		f.line("      port:            # the packets that a switch sends, at each of its ports")
		f.queue("        ")
		f.line("  nodes:")
		f.line("    west: {kind: switch}")
		f.line("    east: {kind: switch}")
		f.nodes("w", n)
		f.nodes("e", n)
		f.line("  links:               # all hosts are in one subnet")
		f.line("    # The bottleneck.")
		f.line(`    - endpoints: ["west:trunk", "east:trunk"]`)
		f.impairment("      ")
		f.links(shape.Dumbbell.Plan(f.Values).Links[1:])
		if n == 1 {
			f.work("w1", "e1", 2)
			return
		}
		f.line("")
		f.line("# Two flows share the bottleneck.")
		f.line("workloads:")
		f.line("  - {name: flow-1, from: w1, to: e1, operation: write, size: 64KiB, depth: 4, duration: 2s, verify: true}")
		f.line("  - {name: flow-2, from: w2, to: e2, operation: write, size: 64KiB, depth: 4, duration: 2s, verify: true}")
		f.line("  - {name: ping, from: w1, to: e2, operation: send, size: 64B, count: 200, start: 2500ms, verify: true}")
		f.check(2, "flow-1", "flow-2", "ping")
	},
}

// nodes writes n hosts.
func (f *file) nodes(prefix string, n int) {
	for i := range n {
		f.line("    %s%d:", prefix, i+1)
	}
}

// links writes links that have nothing of their own.
func (f *file) links(links []shape.Link) {
	part := ""
	for _, l := range links {
		if l.Part != part {
			f.line("    # %s", l.Part)
			part = l.Part
		}
		f.link(l.Ends[0], l.Ends[1])
	}
}

// queue writes the keys of a port's queue.
func (f *file) queue(indent string) {
	f.line("%squeue: 256KiB              # what finds it full is dropped", indent)
	f.line("%secn: {min: 64KiB, max: 192KiB}   # in between, ever more packets are marked, of RDMA those of adapters with congestion: dcqcn or dctcp", indent)
}
