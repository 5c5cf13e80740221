package parts

import (
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/topology/placement"
	"github.com/ndklab/ndklab/topology"
)

// This file has the weights of nodes and links, and the capacities of hosts.

// The load of a node, in hundredths of a processor. A host that asks for no share of one weighs as if it asked for
// one. A router has an agent and no adapter; the kernel forwards for it. A switch has no process: what it costs are the frames of its ports.
const (
	hostLoad   = 100
	routerLoad = 20
	portLoad   = 2
)

// load returns that of a node.
func load(n *topology.Node) int {
	switch {
	case n.Kind == topology.Switch:
		return portLoad * len(n.Interfaces)
	case n.Kind == topology.Router:
		return routerLoad
	case n.CPU > 0:
		return max(1, int(n.CPU*hostLoad))
	}
	return hostLoad
}

const (
	// unlimitedRate is the rate that a link without one counts for, in bits per second: as much as the engine of one host carries.
	unlimitedRate = 10e9
	// rateUnit is the bits per second that weigh 1.
	rateUnit = 1e6
	// nearWeight is by how much more a link weighs that asks for less delay than hosts are apart: what crosses there is late.
	nearWeight = 10
)

// weight returns that of a link: what it carries in its two directions together.
func weight(l *topology.Link, apart time.Duration) int {
	sum := 0.0
	for _, d := range l.Directions {
		sum += rateOf(d)
	}
	w := max(1, int(sum/2/rateUnit))
	if near(l, apart) {
		w *= nearWeight
	}
	return w
}

// rateOf returns the bits per second that a direction of a link counts for.
func rateOf(i topology.Impairment) float64 {
	if i.Rate == 0 {
		return unlimitedRate
	}
	return float64(i.Rate)
}

// near reports whether a link asks for less delay, in either direction, than hosts are apart.
func near(l *topology.Link, apart time.Duration) bool {
	return min(l.Directions[0].Delay, l.Directions[1].Delay) < apart
}

// weights are those of bundles, and the links between them.
type weights struct {
	loads  []int
	memory []int // MiB
	edges  []placement.Edge
}

// memoryUnit is the bytes of memory that weigh 1.
const memoryUnit = 1 << 20

// graph returns the weights of all bundles.
func (p *planning) graph(apart time.Duration) *weights {
	g := &weights{loads: make([]int, len(p.first)), memory: make([]int, len(p.first)), edges: make([]placement.Edge, 0, len(p.Links))}
	for i := range p.Nodes {
		g.loads[p.bundle[i]] += load(&p.Nodes[i])
		g.memory[p.bundle[i]] += int(p.Nodes[i].Memory / memoryUnit)
	}
	for i := range p.Links {
		l := &p.Links[i]
		if l.Endpoints[0].External() || l.Endpoints[1].External() {
			continue
		}
		a, b := p.bundle[p.index[l.Endpoints[0].Node]], p.bundle[p.index[l.Endpoints[1].Node]]
		g.edges = append(g.edges, placement.Edge{A: a, B: b, Weight: weight(l, apart)})
	}
	return g
}

// of returns the graph with some weights of its vertices.
func (g *weights) of(vertices []int) *placement.Graph { return placement.NewGraph(vertices, g.edges) }

// capacities returns the hosts' processors.
func (p *planning) capacities() []float64 {
	all := make([]float64, len(p.hosts))
	for i, h := range p.hosts {
		if all[i] = h.CPUs; all[i] <= 0 {
			all[i] = 1
		}
	}
	return all
}

// memories returns the hosts' memory. One whose memory is not known is as large as the largest.
func (p *planning) memories() []float64 {
	most := 1.0
	for _, h := range p.hosts {
		most = max(most, float64(h.Memory))
	}
	all := make([]float64, len(p.hosts))
	for i, h := range p.hosts {
		if all[i] = float64(h.Memory); h.Memory == 0 {
			all[i] = most
		}
	}
	return all
}

// asked returns the bytes of memory that the nodes of each host ask for, where divided has the hosts of bundles.
func (p *planning) asked(divided []int) []uint64 {
	asked := make([]uint64, len(p.hosts))
	for i := range p.Nodes {
		asked[divided[p.bundle[i]]] += p.Nodes[i].Memory
	}
	return asked
}

// overfull returns the first host whose nodes ask for more memory than it has, or -1.
func (p *planning) overfull(divided []int) int {
	for host, asked := range p.asked(divided) {
		if has := p.hosts[host].Memory; has > 0 && asked > has {
			return host
		}
	}
	return -1
}

// checkMemory fails if a host has not the memory that its nodes ask for, in a division by memory.
func (p *planning) checkMemory(divided []int) error {
	host := p.overfull(divided)
	if host < 0 {
		return nil
	}
	bundles := make([]uint64, len(p.first))
	nodes := make([]int, len(p.first))
	for i := range p.Nodes {
		bundles[p.bundle[i]] += p.Nodes[i].Memory
		nodes[p.bundle[i]]++
	}
	has := p.hosts[host].Memory
	for bundle, asked := range bundles {
		if divided[bundle] != host || asked <= has {
			continue
		}
		n := &p.Nodes[p.first[bundle]]
		where := "lab " + p.Name
		if n.Together != "" {
			where = n.TogetherAt.String()
		}
		return fmt.Errorf("%s: %s and the nodes that stay on one host with it, %d in all, ask for %s of memory, and the host %s has %s, expected less, or nodes that need not stay together",
			where, n.Name, nodes[bundle], topology.FormatSize(asked), p.hosts[host].Name, topology.FormatSize(has))
	}
	return fmt.Errorf("lab %s: the nodes on the host %s would ask for %s of memory, and it has %s, expected less, or more hosts",
		p.Name, p.hosts[host].Name, topology.FormatSize(p.asked(divided)[host]), topology.FormatSize(has))
}
