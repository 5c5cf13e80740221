package generate

import (
	"fmt"
	"time"
)

// This file is the shapes whose packets are routed.

var leafSpine = Shape{
	Name:    "leaf-spine",
	Summary: "hosts at leaves, and every leaf at every spine",
	Text: `A leaf-spine fabric: hosts at routed leaves, each of which has a link to every
spine. Rate, delay and loss are those of every link. All ways from leaf to leaf
are equally long, and flows are shared out over them (ECMP, by UDP source port).`,
	Parameters: []Parameter{
		{Name: "spines", Usage: "how many spines", Default: 2, Minimum: 1, Maximum: 32},
		{Name: "leaves", Usage: "how many leaves", Default: 4, Minimum: 1, Maximum: 64},
		{Name: "hosts-per-leaf", Usage: "how many hosts at each leaf", Default: 2, Minimum: 1, Maximum: 64},
	},
	Link: Link{Rate: 1e9, Delay: 20 * time.Microsecond},
	write: func(f *file) {
		spines, leaves, perLeaf := f.Values["spines"], f.Values["leaves"], f.Values["hosts-per-leaf"]
		f.begin(fmt.Sprintf("A leaf-spine fabric: %d spines, %d leaves, %d hosts at each leaf", spines, leaves, perLeaf))
		f.defaults(true)
		f.routers("spine", "leaf")
		f.line("  nodes:")
		for s := range spines {
			f.line("    spine%d: {kind: spine}", s+1)
		}
		for l := range leaves {
			f.line("    leaf%d: {kind: leaf}", l+1)
			for h := range perLeaf {
				f.line("    h%d-%d:", l+1, h+1)
			}
		}
		f.line("  links:               # each is a subnet; routes over all shortest ways are computed")
		for l := range leaves {
			f.line("    # Hosts of leaf %d.", l+1)
			for h := range perLeaf {
				f.link(fmt.Sprintf("h%d-%d:eth0", l+1, h+1), fmt.Sprintf("leaf%d:down%d", l+1, h+1))
			}
		}
		for s := range spines {
			f.line("    # Spine %d.", s+1)
			for l := range leaves {
				f.link(fmt.Sprintf("leaf%d:up%d", l+1, s+1), fmt.Sprintf("spine%d:leaf%d", s+1, l+1))
			}
		}
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
loss are those of every link. Flows are shared out over all shortest ways (ECMP, by
UDP source port).`,
	Parameters: []Parameter{{Name: "k", Usage: "how many ports a router has; an even number", Default: 4, Minimum: 2, Maximum: 16, Even: true}},
	Link:       Link{Rate: 1e9, Delay: 20 * time.Microsecond},
	write: func(f *file) {
		k := f.Values["k"]
		half := k / 2
		f.begin(fmt.Sprintf("A fat tree of routers with %d ports each: %d pods, %d hosts", k, k, k*half*half))
		f.defaults(true)
		f.routers("core", "agg", "edge")
		f.line("  nodes:")
		for c := range half * half {
			f.line("    core%d: {kind: core}", c+1)
		}
		for p := range k {
			for i := range half {
				f.line("    p%d-agg%d: {kind: agg}", p+1, i+1)
			}
			for i := range half {
				f.line("    p%d-edge%d: {kind: edge}", p+1, i+1)
				for h := range half {
					f.line("    p%d-h%d-%d:", p+1, i+1, h+1)
				}
			}
		}
		f.line("  links:               # each is a subnet; routes over all shortest ways are computed")
		for p := range k {
			f.line("    # Pod %d: hosts to edge.", p+1)
			for i := range half {
				for h := range half {
					f.link(fmt.Sprintf("p%d-h%d-%d:eth0", p+1, i+1, h+1), fmt.Sprintf("p%d-edge%d:down%d", p+1, i+1, h+1))
				}
			}
		}
		for p := range k {
			f.line("    # Pod %d: edge to aggregation.", p+1)
			for a := range half {
				for e := range half {
					f.link(fmt.Sprintf("p%d-edge%d:up%d", p+1, e+1, a+1), fmt.Sprintf("p%d-agg%d:down%d", p+1, a+1, e+1))
				}
			}
		}
		for c := range half * half {
			f.line("    # Core %d: to every pod.", c+1)
			for p := range k {
				f.link(fmt.Sprintf("p%d-agg%d:up%d", p+1, c/half+1, c%half+1), fmt.Sprintf("core%d:pod%d", c+1, p+1))
			}
		}
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

// routers writes kinds of routers.
func (f *file) routers(kinds ...string) {
	f.line("  kinds:               # what all routers of a tier have in common")
	for _, k := range kinds {
		f.line("    %s: {kind: router}   # port: {queue: 256KiB, ecn: {min: 64KiB, max: 192KiB}}", k)
	}
}
