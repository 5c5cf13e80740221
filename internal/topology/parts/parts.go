// Package parts lays a topology over several hosts: it says which host has each node, and which links cross hosts.
//
// Nodes that have to stay on one host are one vertex of a graph (bonds.go), which has the weights that nodes and links have for
// a machine (weights.go), and which package placement divides. A Summary tells people and programs of the result.
//
// It is pure: the same topology, hosts and delay give the same placement. It starts nothing, and knows no launcher. Start
// reading at Plan.
package parts

import (
	"cmp"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/topology/placement"
	"github.com/ndklab/ndklab/topology"
)

// A Host is a machine that takes a part of a topology.
type Host struct {
	Name   string
	CPUs   float64 // processors that the part may use, by which hosts get their share; 0: not known, as 1
	Memory uint64  // bytes that nodes with a limit of memory may ask for together; 0: not known, any
}

// Alike returns n hosts of equal size, with the names that workers on one machine have: host1 and so on.
func Alike(n int) []Host {
	hosts := make([]Host, n)
	for i := range hosts {
		hosts[i] = Host{Name: "host" + strconv.Itoa(i+1), CPUs: 1}
	}
	return hosts
}

// UsualApart is the time that a packet takes between two hosts of one site, by which links are told apart where nobody has
// measured it: a placement by what was measured would be another one whenever a link's delay is near that.
const UsualApart = 40 * time.Microsecond

// A Placement says which host has each node. It is not changed once it is made.
type Placement struct {
	topo  *topology.Topology
	hosts []Host
	of    map[string]int // host, by the name of a node
	cut   []Crossing
}

// A Crossing is a link whose ends are on different hosts.
type Crossing struct {
	Link  int    // index in Topology.Links
	Hosts [2]int // of the link's Endpoints, indices of the hosts
}

// Plan returns a placement of a topology on hosts, of which there is one at least. A link that asks for less delay than apart, the
// time that a packet takes from host to host, is cut less readily than one whose delay hides that. The error has the places where the file
// says what cannot be.
func Plan(t *topology.Topology, hosts []Host, apart time.Duration) (*Placement, error) {
	return Extend(t, hosts, apart, nil)
}

// Extend is Plan for a lab that is up. Nodes that it has stay at their hosts, which kept has by name, as indices of hosts. New
// nodes are placed beside them. The error is also of what would have to bring nodes together that are at different hosts.
func Extend(t *topology.Topology, hosts []Host, apart time.Duration, kept map[string]int) (*Placement, error) {
	p := &planning{Topology: t, hosts: hosts, kept: kept, index: make(map[string]int, len(t.Nodes))}
	for i := range t.Nodes {
		p.index[t.Nodes[i].Name] = i
	}
	p.bind()
	at := p.places()
	if p.errors != nil {
		return nil, p.ordered()
	}
	g := p.graph(apart)
	divided := placement.Divide(g.of(g.loads), p.capacities(), at, t.SeedOf("hosts"))
	if p.overfull(divided) >= 0 {
		divided = placement.Divide(g.of(g.memory), p.memories(), at, t.SeedOf("hosts"))
		if err := p.checkMemory(divided); err != nil {
			return nil, err
		}
	}
	is := &Placement{topo: t, hosts: hosts, of: make(map[string]int, len(t.Nodes))}
	for i := range t.Nodes {
		is.of[t.Nodes[i].Name] = divided[p.bundle[i]]
	}
	for i := range t.Links {
		ends := t.Links[i].Endpoints
		if ends[0].External() || ends[1].External() {
			continue // the end outside is at the node's own host
		}
		if a, b := is.of[ends[0].Node], is.of[ends[1].Node]; a != b {
			is.cut = append(is.cut, Crossing{i, [2]int{a, b}})
		}
	}
	return is, nil
}

// Of returns the host that has a node, an index of the hosts; -1 if there is no such node.
func (p *Placement) Of(node string) int {
	host, ok := p.of[node]
	if !ok {
		return -1
	}
	return host
}

// Cut returns the links that cross hosts, in the order of the topology. The caller does not change it.
func (p *Placement) Cut() []Crossing { return p.cut }

// A planning is one that goes on.
type planning struct {
	*topology.Topology
	hosts  []Host
	kept   map[string]int // hosts of nodes that are there already
	index  map[string]int // of a node, by its name
	bonds  [][]bond       // by node
	bundle []int          // by node: the nodes that stay on one host have the same, from 0
	first  []int          // by bundle: its first node
	errors topology.ErrorList
}

func (p *planning) errorf(at topology.Place, format string, args ...any) {
	p.errors = append(p.errors, topology.Error{File: at.File, Line: at.Line, Column: at.Column, Message: fmt.Sprintf(format, args...)})
}

// ordered returns the errors in the order of the file, each once: nodes inherit what is wrong.
func (p *planning) ordered() topology.ErrorList {
	slices.SortStableFunc(p.errors, func(a, b topology.Error) int {
		return cmp.Or(cmp.Compare(a.Line, b.Line), cmp.Compare(a.Column, b.Column))
	})
	return slices.Compact(p.errors)
}

// places returns the host of each bundle, or placement.Anywhere. Nodes that are there stay. An end outside of the lab is on the first host, where
// the command is, unless host says otherwise of what stays with it.
func (p *planning) places() []int {
	at := slices.Repeat([]int{placement.Anywhere}, len(p.first))
	by := make([]int, len(p.first)) // the node that said so
	for i := range p.Nodes {
		host, ok := p.kept[p.Nodes[i].Name]
		bundle := p.bundle[i]
		switch {
		case !ok:
		case at[bundle] == placement.Anywhere:
			at[bundle], by[bundle] = host, i
		case at[bundle] != host:
			a, b := by[bundle], i
			p.errorf(p.placeOf(a, b), "%s, which is on the host %s, would have to be on one host with %s, which is on %s: %s; expected this only of nodes on one host, since a lab that is up moves none",
				p.Nodes[a].Name, p.hosts[at[bundle]].Name, p.Nodes[b].Name, p.hosts[host].Name, p.why(a, b))
		}
	}
	for i := range p.Nodes {
		n := &p.Nodes[i]
		if _, stays := p.kept[n.Name]; stays || n.Host == "" {
			continue
		}
		host, ok := p.find(n)
		bundle := p.bundle[i]
		switch {
		case !ok:
		case at[bundle] == placement.Anywhere:
			at[bundle], by[bundle] = host, i
		case at[bundle] != host:
			other := &p.Nodes[by[bundle]]
			is := fmt.Sprintf("to be on %s (line %d)", p.hosts[at[bundle]].Name, other.HostAt.Line)
			if _, stays := p.kept[other.Name]; stays {
				is = "on " + p.hosts[at[bundle]].Name
			}
			p.errorf(n.HostAt, "host: %s is to be on %s, but stays on one host with %s, which is %s: %s; expected the same host for both",
				n.Name, p.hosts[host].Name, other.Name, is, p.why(by[bundle], i))
		}
	}
	for _, x := range p.Externals {
		bundle := p.bundle[p.index[p.Links[x.Link].Endpoints[1-x.End].Node]]
		if at[bundle] == placement.Anywhere {
			at[bundle] = 0
		}
	}
	return at
}

// find returns the host that a node asks for.
func (p *planning) find(n *topology.Node) (host int, ok bool) {
	if i := slices.IndexFunc(p.hosts, func(h Host) bool { return h.Name == n.Host }); i >= 0 {
		return i, true
	}
	number, err := strconv.Atoi(n.Host)
	if err == nil && number >= 1 && number <= len(p.hosts) {
		return number - 1, true
	}
	p.errorf(n.HostAt, "host: no host is %q, expected a number from 1 to %d or one of %s", n.Host, len(p.hosts), p.names())
	return 0, false
}

// names names the hosts, not all if they are many.
func (p *planning) names() string {
	var names []string
	for _, h := range p.hosts[:min(len(p.hosts), mostNames)] {
		names = append(names, h.Name)
	}
	text := strings.Join(names, ", ")
	if more := len(p.hosts) - mostNames; more > 0 {
		text += fmt.Sprintf(" and %d more", more)
	}
	return text
}

// mostNames bounds the hosts that an error names.
const mostNames = 16
