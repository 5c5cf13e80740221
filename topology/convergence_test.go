package topology

import (
	"fmt"
	"net/netip"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const twoSpines = `topology:
  convergence: 50ms
  nodes: {a: , b: , l0: {kind: router}, l1: {kind: router}, s0: {kind: router}, s1: {kind: router}}
  links:
    - endpoints: [{node: a, interface: eth0, addresses: [10.0.0.1/24]}, "l0:down"]
    - endpoints: [{node: b, interface: eth0, addresses: [10.0.1.1/24]}, "l1:down"]
    - endpoints: [{node: l0, interface: up0, addresses: [10.1.0.1/30]}, "s0:l0"]
    - endpoints: [{node: l0, interface: up1, addresses: [10.1.0.5/30]}, "s1:l0"]
    - endpoints: [{node: l1, interface: up0, addresses: [10.1.0.9/30]}, "s0:l1"]
    - endpoints: [{node: l1, interface: up1, addresses: [10.1.0.13/30]}, "s1:l1"]`

// Routes over all links are those of the file, and go around a link that is down.
func TestRoutesOver(t *testing.T) {
	lab := parsed(t, twoSpines)
	if lab.Convergence != 50*time.Millisecond {
		t.Errorf("convergence %v", lab.Convergence)
	}
	over := func(down ...int) []string {
		is := &Topology{Nodes: slices.Clone(lab.Nodes)}
		for i, routes := range lab.RoutesOver(func(link int) bool { return !slices.Contains(down, link) }) {
			is.Nodes[i].Routes = routes
		}
		return routes(is)
	}
	if diff := cmp.Diff(routes(lab), over()); diff != "" {
		t.Errorf("over all links (-file +over):\n%s", diff)
	}
	want := []string{
		"a 0.0.0.0/0 [10.0.0.2]", "b 0.0.0.0/0 [10.0.1.2]",
		"l0 10.0.1.0/24 [10.1.0.6]", "l0 10.1.0.12/30 [10.1.0.6]",
		"l1 10.0.0.0/24 [10.1.0.14]", "l1 10.1.0.4/30 [10.1.0.14]",
		"s1 10.0.0.0/24 [10.1.0.5]", "s1 10.0.1.0/24 [10.1.0.13]",
	}
	if diff := cmp.Diff(want, over(2, 4)); diff != "" {
		t.Errorf("without s0 (-want +got):\n%s", diff)
	}
	if got := over(0, 1, 2, 3, 4, 5); got != nil {
		t.Errorf("over no link: %q", got)
	}
}

func TestOutOfReach(t *testing.T) {
	lab := parsed(t, twoSpines)
	for _, c := range []struct {
		down []int
		want int
	}{{nil, 0}, {[]int{2, 4}, 0}, {[]int{0}, 1}, {[]int{2, 3}, 1}, {[]int{0, 1}, 2}} {
		if got := lab.OutOfReach(func(link int) bool { return !slices.Contains(c.down, link) }); got != c.want {
			t.Errorf("without links %v: %d hosts, want %d", c.down, got, c.want)
		}
	}
}

// Hosts that are joined by links that are up reach each other by the routes over these,
// by any of the next hops, and no other hosts do, whatever is down. No packet goes in a
// circle.
func TestRoutesOverReach(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		lab := drawnFabric(t)
		down := rapid.SliceOfN(rapid.Bool(), len(lab.Links), len(lab.Links)).Draw(t, "down")
		up := func(link int) bool { return !down[link] }
		w := walker{lab, up, lab.RoutesOver(up)}
		for from := range lab.Nodes {
			for to := range lab.Nodes {
				if lab.Nodes[from].Kind != Host || lab.Nodes[to].Kind != Host {
					continue
				}
				for _, face := range lab.Nodes[to].Interfaces {
					if down[face.Link] {
						continue
					}
					for _, a := range face.Addresses {
						if got, want := w.arrives(t, from, to, a.Addr(), 0), from == to || w.joined(from, face.Link); got != want {
							t.Fatalf("%s reaches %s at %s: %t, want %t; down: %v\n%s", lab.Nodes[from].Name, lab.Nodes[to].Name, a.Addr(), got, want, down, strings.Join(routes(&Topology{Nodes: w.routed()}), "\n"))
						}
					}
				}
			}
		}
	})
}

// drawnFabric draws routers with links between them, and hosts with one or two links to
// routers or to a switch at which routers are, too.
func drawnFabric(t *rapid.T) *Topology {
	var nodes, links []string
	ports := map[string]int{}
	link := func(a, b string) {
		links = append(links, fmt.Sprintf("    - endpoints: [%q, %q]", fmt.Sprintf("%s:e%d", a, ports[a]), fmt.Sprintf("%s:e%d", b, ports[b])))
		ports[a]++
		ports[b]++
	}
	routers := rapid.IntRange(1, 7).Draw(t, "routers")
	router := func(what string) string { return fmt.Sprintf("r%d", rapid.IntRange(0, routers-1).Draw(t, what)) }
	for i := range routers {
		nodes = append(nodes, fmt.Sprintf("r%d: {kind: router}", i))
	}
	for range rapid.IntRange(0, 12).Draw(t, "joins") {
		if a, b := router("from"), router("to"); a != b {
			link(a, b)
		}
	}
	nodes = append(nodes, "s: {kind: switch}")
	for i := range routers {
		if rapid.Bool().Draw(t, "at the switch") {
			link(fmt.Sprintf("r%d", i), "s")
		}
	}
	for i := range rapid.IntRange(1, 5).Draw(t, "hosts") {
		host := fmt.Sprintf("h%d", i)
		nodes = append(nodes, host+": ")
		for range rapid.IntRange(1, 2).Draw(t, "links") {
			link(host, router("at"))
		}
		if rapid.IntRange(0, 2).Draw(t, "at the switch") == 0 {
			link(host, "s")
		}
	}
	lab, err := Parse("drawn.yaml", []byte("topology:\n  convergence: 50ms\n  nodes: {"+strings.Join(nodes, ", ")+"}\n  links:\n"+strings.Join(links, "\n")))
	if err != nil {
		t.Fatal(err)
	}
	return lab
}

// A walker follows routes over links that are up.
type walker struct {
	lab    *Topology
	up     func(link int) bool
	routes [][]Route
}

func (w walker) routed() []Node {
	nodes := slices.Clone(w.lab.Nodes)
	for i := range nodes {
		nodes[i].Routes = w.routes[i]
	}
	return nodes
}

// arrives reports whether packets from a node to an address of another arrive by whatever
// next hops they take.
func (w walker) arrives(t *rapid.T, at, to int, address netip.Addr, hops int) bool {
	if at == to {
		return true
	}
	if hops > len(w.lab.Nodes) {
		t.Fatalf("packets to %s go in a circle", address)
	}
	for _, face := range w.lab.Nodes[at].Interfaces {
		if w.up(face.Link) && slices.ContainsFunc(face.Addresses, func(p netip.Prefix) bool { return p.Masked().Contains(address) }) {
			return w.owner(address) == to
		}
	}
	best := Route{}
	for _, r := range w.routes[at] {
		if r.To.Contains(address) && (best.Via == nil || r.To.Bits() > best.To.Bits()) {
			best = r
		}
	}
	for _, via := range best.Via {
		if next := w.owner(via); next < 0 || !w.arrives(t, next, to, address, hops+1) {
			return false
		}
	}
	return best.Via != nil
}

// owner returns the node whose interface at a link that is up has an address; -1 if none
// does.
func (w walker) owner(address netip.Addr) int {
	return slices.IndexFunc(w.lab.Nodes, func(n Node) bool {
		return slices.ContainsFunc(n.Interfaces, func(f Interface) bool {
			return w.up(f.Link) && slices.ContainsFunc(f.Addresses, func(p netip.Prefix) bool { return p.Addr() == address })
		})
	})
}

// joined reports whether links that are up lead from a host to one of them, over routers
// and switches.
func (w walker) joined(from, link int) bool {
	seen := map[string]bool{}
	var visit func(name string) bool
	visit = func(name string) bool {
		if seen[name] {
			return false
		}
		seen[name] = true
		for i, l := range w.lab.Links {
			for end, e := range l.Endpoints {
				if e.Node != name || !w.up(i) {
					continue
				}
				if i == link {
					return true
				}
				if other := l.Endpoints[1-end].Node; w.lab.FindNode(other).Kind != Host && visit(other) {
					return true
				}
			}
		}
		return false
	}
	return visit(w.lab.Nodes[from].Name)
}
