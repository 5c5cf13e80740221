package generate

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/topology/shape"
)

// This file is the shapes whose packets are routed.

var leafSpine = Shape{
	Name:    "leaf-spine",
	Summary: "hosts at leaves, and every leaf at every spine",
	Text: `A leaf-spine fabric: hosts at routed leaves, each of which has a link to every
spine. Rate, delay and loss are those of every link. All ways from leaf to leaf
are equally long, and flows are shared out over them (ECMP, by UDP source port).`,
	Parameters: shape.LeafSpine.Parameters,
	Link:       Link{Rate: 1e9, Delay: 20 * time.Microsecond},
	write: func(f *file) {
		spines, leaves, perLeaf := f.Values["spines"], f.Values["leaves"], f.Values["hosts-per-leaf"]
		f.begin(fmt.Sprintf("A leaf-spine fabric: %d spines, %d leaves, %d hosts at each leaf", spines, leaves, perLeaf))
		f.defaults(true)
		f.routers("spine", "leaf")
		f.plan(shape.LeafSpine)
		switch {
		case leaves > 1:
			f.work("h1-1", fmt.Sprintf("h%d-%d", leaves, perLeaf), 8)
		case perLeaf > 1:
			f.work("h1-1", "h1-2", 4)
		}
	},
}

var fatTree = Shape{
	Name:    "fat-tree",
	Summary: "a fat tree of routers with k ports each",
	Text: `A fat tree of routers with k ports each: k pods of k/2 edge and k/2 aggregation
routers, k/2 hosts at each edge router, and k*k/4 core routers. Rate, delay and
loss are those of every link. Flows are shared out over all shortest paths (ECMP, by
UDP source port).`,
	Parameters: shape.FatTree.Parameters,
	Link:       Link{Rate: 1e9, Delay: 20 * time.Microsecond},
	write: func(f *file) {
		k := f.Values["k"]
		half := k / 2
		f.begin(fmt.Sprintf("A fat tree of routers with %d ports each: %d pods, %d hosts", k, k, k*half*half))
		f.defaults(true)
		f.routers("core", "agg", "edge")
		f.plan(shape.FatTree)
		f.work("p1-h1-1", fmt.Sprintf("p%d-h%d-%d", k, half, half), 12)
	},
}

var wan = Shape{
	Name:    "wan",
	Summary: "sites with a switch and a router each, far from each other",
	Text: `Sites far from each other. Each has hosts at a switch and a router, and each router
has a link to every other, with the rate, delay and loss. These links have the MTU of
the internet, for which the adapters make smaller packets.`,
	Parameters: []Parameter{
		{Name: "sites", Usage: "how many sites", Default: 3, Minimum: 2, Maximum: 32},
		hosts("how many hosts at each site", 1, 2, 250),
	},
	Link: Link{Rate: 100e6, Delay: 10 * time.Millisecond},
	write: func(f *file) {
		sites, n := f.Values["sites"], f.Values["nodes"]
		f.begin(fmt.Sprintf("%d sites far from each other, each with %d hosts", sites, n))
		f.defaults(false)
		f.line("    adapter:")
		f.line("      roce_frame_size: 1024   # bytes of payload: what the links between sites carry")
		f.line("  nodes:")
		for s := range sites {
			f.line("    # Site %d.", s+1)
			f.line("    router%d: {kind: router}", s+1)
			f.line("    switch%d: {kind: switch}", s+1)
			f.nodes(fmt.Sprintf("s%d-h", s+1), n)
		}
		f.line("  links:")
		for s := range sites {
			f.line("    # Site %d, one subnet.", s+1)
			f.link(fmt.Sprintf("router%d:site", s+1), fmt.Sprintf("switch%d:router", s+1))
			for h := range n {
				f.link(fmt.Sprintf("s%d-h%d:eth0", s+1, h+1), fmt.Sprintf("switch%d:p%d", s+1, h+1))
			}
		}
		for a := range sites {
			for b := a + 1; b < sites; b++ {
				f.line("    # From site %d to site %d.", a+1, b+1)
				f.line("    - endpoints: [%q, %q]", fmt.Sprintf("router%d:wan%d", a+1, b+1), fmt.Sprintf("router%d:wan%d", b+1, a+1))
				f.line("      mtu: 1500")
				f.impairment("      ")
			}
		}
		f.work("s1-h1", "s2-h1", 2)
	},
}

// plan writes the nodes and links of a shape whose packets are routed.
func (f *file) plan(s shape.Shape) {
	plan := s.Plan(f.Values)
	f.line("  nodes:")
	for _, n := range plan.Nodes {
		if n.Kind == "" {
			f.line("    %s:", n.Name)
		} else {
			f.line("    %s: {kind: %s}", n.Name, n.Tier)
		}
	}
	f.line("  links:               # each is a subnet; routes over all shortest paths are computed")
	f.links(plan.Links)
}

// routers writes kinds of routers.
func (f *file) routers(kinds ...string) {
	f.line("  kinds:               # what all routers of a tier have in common")
	for _, k := range kinds {
		f.line("    %s: {kind: router}   # port: {queue: 256KiB, ecn: {min: 64KiB, max: 192KiB}}", k)
	}
}
