package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// routes is the routes of all nodes, one text for each.
func routes(t *Topology) []string {
	var all []string
	for _, n := range t.Nodes {
		for _, r := range n.Routes {
			all = append(all, fmt.Sprint(n.Name, " ", r.To, " ", r.Via))
		}
	}
	return all
}

func TestRoutes(t *testing.T) {
	tests := []struct {
		name, file string
		want       []string
	}{
		{
			name: "one router, and a host that is not at it",
			file: `topology:
  nodes: {a: , b: , c: , r: {kind: router}}
  links:
    - endpoints: ["a:eth0", "r:eth0"]
    - endpoints: ["r:eth1", "b:eth0"]
    - endpoints: ["a:eth1", "c:eth1"]`,
			want: []string{
				"a 0.0.0.0/0 [10.0.0.2]", "a ::/0 [fd6e:646b:1::2]",
				"b 0.0.0.0/0 [10.0.1.1]", "b ::/0 [fd6e:646b:1:1::1]",
			},
		},
		{
			name: "a router with nothing behind it",
			file: `topology:
  nodes: {a: , b: , r: {kind: router}, s: {kind: switch}}
  links:
    - endpoints: ["a:eth0", "s:1"]
    - endpoints: ["b:eth0", "s:2"]
    - endpoints: ["r:eth0", "s:3"]`,
		},
		{
			name: "two leaves and two spines",
			file: `topology:
  nodes: {a: , b: , l0: {kind: router}, l1: {kind: router}, s0: {kind: router}, s1: {kind: router}}
  links:
    - endpoints: [{node: a, interface: eth0, addresses: [10.0.0.1/24]}, "l0:down"]
    - endpoints: [{node: b, interface: eth0, addresses: [10.0.1.1/24]}, "l1:down"]
    - endpoints: [{node: l0, interface: up0, addresses: [10.1.0.1/30]}, "s0:l0"]
    - endpoints: [{node: l0, interface: up1, addresses: [10.1.0.5/30]}, "s1:l0"]
    - endpoints: [{node: l1, interface: up0, addresses: [10.1.0.9/30]}, "s0:l1"]
    - endpoints: [{node: l1, interface: up1, addresses: [10.1.0.13/30]}, "s1:l1"]`,
			want: []string{
				"a 0.0.0.0/0 [10.0.0.2]",
				"b 0.0.0.0/0 [10.0.1.2]",
				"l0 10.0.1.0/24 [10.1.0.2 10.1.0.6]", "l0 10.1.0.8/30 [10.1.0.2]", "l0 10.1.0.12/30 [10.1.0.6]",
				"l1 10.0.0.0/24 [10.1.0.10 10.1.0.14]", "l1 10.1.0.0/30 [10.1.0.10]", "l1 10.1.0.4/30 [10.1.0.14]",
				"s0 10.0.0.0/24 [10.1.0.1]", "s0 10.0.1.0/24 [10.1.0.9]", "s0 10.1.0.4/30 [10.1.0.1]", "s0 10.1.0.12/30 [10.1.0.9]",
				"s1 10.0.0.0/24 [10.1.0.5]", "s1 10.0.1.0/24 [10.1.0.13]", "s1 10.1.0.0/30 [10.1.0.5]", "s1 10.1.0.8/30 [10.1.0.13]",
			},
		},
		{
			name: "two routers at one switch that are equally near",
			file: `topology:
  nodes: {x: {kind: router}, r0: {kind: router}, r1: {kind: router}, y: {kind: router}, a: , s: {kind: switch}}
  links:
    - endpoints: [{node: x, interface: s, addresses: [10.0.0.1/24]}, "s:1"]
    - endpoints: ["r0:s", "s:2"]
    - endpoints: ["r1:s", "s:3"]
    - endpoints: [{node: r0, interface: y, addresses: [10.0.2.1/24]}, "y:0"]
    - endpoints: [{node: r1, interface: y, addresses: [10.0.4.1/24]}, "y:1"]
    - endpoints: [{node: a, interface: e, addresses: [10.0.6.1/24]}, "y:2"]`,
			want: []string{
				"x 10.0.2.0/24 [10.0.0.2]", "x 10.0.4.0/24 [10.0.0.3]", "x 10.0.6.0/24 [10.0.0.2 10.0.0.3]",
				"r0 10.0.4.0/24 [10.0.0.3 10.0.2.2]", "r0 10.0.6.0/24 [10.0.2.2]",
				"r1 10.0.2.0/24 [10.0.0.2 10.0.4.2]", "r1 10.0.6.0/24 [10.0.4.2]",
				"y 10.0.0.0/24 [10.0.2.1 10.0.4.1]",
				"a 0.0.0.0/0 [10.0.6.2]",
			},
		},
		{
			name: "subnets that lie together",
			file: `topology:
  nodes: {a: , h0: , h1: , h2: , h3: , near: {kind: router}, far: {kind: router}}
  links:
    - endpoints: [{node: h0, interface: e, addresses: [10.4.0.1/24]}, "far:0"]
    - endpoints: [{node: h1, interface: e, addresses: [10.4.1.1/24]}, "far:1"]
    - endpoints: [{node: h2, interface: e, addresses: [10.4.2.1/24]}, "far:2"]
    - endpoints: [{node: h3, interface: e, addresses: [10.4.4.1/23]}, "far:3"]
    - endpoints: [{node: near, interface: e, addresses: [10.5.0.1/24]}, "far:4"]`,
			want: []string{
				"h0 0.0.0.0/0 [10.4.0.2]", "h1 0.0.0.0/0 [10.4.1.2]", "h2 0.0.0.0/0 [10.4.2.2]", "h3 0.0.0.0/0 [10.4.4.2]",
				"near 10.4.0.0/23 [10.5.0.2]", "near 10.4.2.0/24 [10.5.0.2]", "near 10.4.4.0/23 [10.5.0.2]",
			},
		},
		{
			name: "a host with two interfaces in two fabrics, and one at two routers",
			file: `topology:
  nodes: {a: , b: , c: , r0: {kind: router}, r1: {kind: router}, s: {kind: switch}}
  links:
    - endpoints: [{node: a, interface: e0, addresses: [10.0.0.1/24]}, "r0:0"]
    - endpoints: [{node: a, interface: e1, addresses: [10.0.1.1/24]}, "r1:0"]
    - endpoints: [{node: b, interface: e0, addresses: [10.0.2.1/24]}, "r0:1"]
    - endpoints: [{node: b, interface: e1, addresses: [10.0.3.1/24]}, "r1:1"]
    - endpoints: [{node: c, interface: e0, addresses: [10.0.8.1/24]}, "s:c"]
    - endpoints: ["r0:2", "s:0"]
    - endpoints: ["r1:2", "s:1"]`,
			want: []string{
				"a 10.0.2.0/24 [10.0.0.2]", "a 10.0.3.0/24 [10.0.1.2]", "a 10.0.8.0/24 [10.0.0.2 10.0.1.2]",
				"b 10.0.0.0/24 [10.0.2.2]", "b 10.0.1.0/24 [10.0.3.2]", "b 10.0.8.0/24 [10.0.2.2 10.0.3.2]",
				"c 10.0.0.0/24 [10.0.8.2]", "c 10.0.1.0/24 [10.0.8.3]", "c 10.0.2.0/24 [10.0.8.2]", "c 10.0.3.0/24 [10.0.8.3]",
				"r0 10.0.1.0/24 [10.0.8.3]", "r0 10.0.3.0/24 [10.0.8.3]",
				"r1 10.0.0.0/24 [10.0.8.2]", "r1 10.0.2.0/24 [10.0.8.2]",
			},
		},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			if diff := cmp.Diff(test.want, routes(parsed(t, test.file))); diff != "" {
				t.Errorf("routes (-want +got):\n%s", diff)
			}
		})
	}
}

func TestPathOverRouters(t *testing.T) {
	lab := parsed(t, `topology:
  nodes: {a: , b: , c: , r0: {kind: router}, r1: {kind: router}}
  links:
    - endpoints: ["a:eth0", "r0:0"]
    - endpoints: ["r0:1", "r1:1"]
    - endpoints: ["r1:0", "b:eth0"]
    - endpoints: ["a:eth1", {node: r1, interface: "2", addresses: ["fd00::1/64"]}]
    - endpoints: [{node: c, interface: eth0, addresses: ["fd01::1/64"]}, "r0:2"]
workloads:
  - {name: w, from: a, to: b, operation: send, size: 1B, count: 1}`)
	for _, p := range []struct {
		from, to string
		want     Path
	}{
		{"a", "b", Path{Hop{"a", "eth0", netip.MustParseAddr("10.0.0.1")}, Hop{"b", "eth0", netip.MustParseAddr("10.0.2.2")}}},
		{"b", "a", Path{Hop{"b", "eth0", netip.MustParseAddr("10.0.2.2")}, Hop{"a", "eth0", netip.MustParseAddr("10.0.0.1")}}},
		{"c", "b", Path{Hop{"c", "eth0", netip.MustParseAddr("fd01::1")}, Hop{"b", "eth0", netip.MustParseAddr("fd6e:646b:1:2::2")}}},
		{"a", "c", Path{Hop{"a", "eth0", netip.MustParseAddr("fd6e:646b:1::1")}, Hop{"c", "eth0", netip.MustParseAddr("fd01::1")}}},
	} {
		got, ok := lab.Path(p.from, p.to)
		if diff := cmp.Diff(p.want, got, compare); diff != "" || !ok {
			t.Errorf("path from %s to %s is %v (-want +got):\n%s", p.from, p.to, ok, diff)
		}
	}
}

// anyFabric is a file of hosts, switches and routers that are linked at random,
// without loops of switches.
func anyFabric(t *rapid.T) string {
	var nodes, links strings.Builder
	hosts := rapid.IntRange(1, 6).Draw(t, "hosts")
	routers := rapid.IntRange(1, 6).Draw(t, "routers")
	switches := rapid.IntRange(0, 2).Draw(t, "switches")
	name := func(i int) string {
		switch {
		case i < hosts:
			return fmt.Sprint("h", i)
		case i < hosts+routers:
			return fmt.Sprint("r", i-hosts)
		}
		return fmt.Sprint("s", i-hosts-routers)
	}
	n := hosts + routers + switches
	for i := range n {
		kind := map[byte]string{'h': "host", 'r': "router", 's': "switch"}[name(i)[0]]
		fmt.Fprintf(&nodes, "    %s: {kind: %s}\n", name(i), kind)
	}
	once := make(map[[2]int]bool) // links to switches
	for i := range rapid.IntRange(1, 14).Draw(t, "links") {
		a, b := rapid.IntRange(0, n-1).Draw(t, "a"), rapid.IntRange(0, n-1).Draw(t, "b")
		aSwitch, bSwitch := a >= hosts+routers, b >= hosts+routers
		if a == b || aSwitch && bSwitch || (aSwitch || bSwitch) && once[[2]int{min(a, b), max(a, b)}] {
			continue
		}
		once[[2]int{min(a, b), max(a, b)}] = true
		fmt.Fprintf(&links, "    - endpoints: [\"%s:e%d\", \"%s:e%d\"]\n", name(a), i, name(b), i)
	}
	return "topology:\n  nodes:\n" + nodes.String() + "  links:\n" + links.String()
}

// TestRoutesLead sends a packet along every choice that routes offer: it passes as
// many routers as it must by any way, whoever sends it and wherever to.
func TestRoutesLead(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		file := anyFabric(t)
		lab, err := Parse("x.ndklab.yaml", []byte(file))
		if err != nil {
			t.Fatalf("%v\n%s", err, file)
		}
		in := segmentOf(lab.segments(), len(lab.Links))
		owner := make(map[netip.Addr]*Node)
		for i := range lab.Nodes {
			for _, f := range lab.Nodes[i].Interfaces {
				for _, a := range f.Addresses {
					owner[a.Addr()] = &lab.Nodes[i]
				}
			}
		}
		for i := range lab.Nodes {
			from := &lab.Nodes[i]
			if from.Kind == Switch {
				continue
			}
			for j := range lab.Nodes {
				for _, f := range lab.Nodes[j].Interfaces {
					for _, to := range f.Addresses {
						least := routersBetween(lab, in, i, in[f.Link])
						if got := follow(lab, owner, from, to.Addr(), 0); got[0] != least || got[1] != least {
							t.Fatalf("from %s to %s at %s it is between %d and %d routers, want %d\n%s", from.Name, to, lab.Nodes[j].Name, got[0], got[1], least, file)
						}
					}
				}
			}
		}
	})
}

// follow is the least and the greatest number of routers that a packet passes by
// the routes, one too many if it does not arrive.
func follow(lab *Topology, owner map[netip.Addr]*Node, n *Node, to netip.Addr, passed int) [2]int {
	for _, f := range n.Interfaces {
		for _, a := range f.Addresses {
			if a.Masked().Contains(to) {
				return [2]int{passed, passed}
			}
		}
	}
	var best *Route
	for i, r := range n.Routes {
		if r.To.Contains(to) && (best == nil || r.To.Bits() > best.To.Bits()) {
			best = &n.Routes[i]
		}
	}
	if best == nil || passed > len(lab.Nodes) {
		return [2]int{-1, -1}
	}
	var all []int
	for _, via := range best.Via {
		next := owner[via]
		if next == nil || next.Kind != Router || next == n {
			return [2]int{-2, -2}
		}
		got := follow(lab, owner, next, to, passed+1)
		all = append(all, got[0], got[1])
	}
	return [2]int{slices.Min(all), slices.Max(all)}
}

// routersBetween counts the routers between a node and a segment, by trying ever more
// of them; -1 if it is not reached.
func routersBetween(lab *Topology, in []int, node, segment int) int {
	segments := make(map[int]bool)
	for _, f := range lab.Nodes[node].Interfaces {
		segments[in[f.Link]] = true
	}
	for passed := range len(lab.Nodes) + 1 {
		if segments[segment] {
			return passed
		}
		more := make(map[int]bool)
		for _, n := range lab.Nodes {
			if n.Kind != Router || !slices.ContainsFunc(n.Interfaces, func(f Interface) bool { return segments[in[f.Link]] }) {
				continue
			}
			for _, f := range n.Interfaces {
				more[in[f.Link]] = true
			}
		}
		for s := range more {
			segments[s] = true
		}
	}
	return -1
}
