package parts

import (
	"fmt"
	"slices"
	"strings"

	"github.com/ndklab/ndklab/topology"
)

// This file finds the nodes that have to stay on one host. Two engines do together all that a link does across hosts: neither the kernel's
// netem nor a packet buffer, which the engine has whole with all that is at it, is one of those.

// A bond keeps two nodes on one host.
type bond struct {
	to   int
	link int // that keeps them there; -1: the group of both does
}

// bind finds the bonds, and the bundles that they make of nodes.
func (p *planning) bind() {
	p.bonds = make([][]bond, len(p.Nodes))
	join := func(a, b, link int) {
		p.bonds[a] = append(p.bonds[a], bond{b, link})
		p.bonds[b] = append(p.bonds[b], bond{a, link})
	}
	leaders := make(map[string]int) // the first node of each group
	for i := range p.Nodes {
		group := p.Nodes[i].Together
		if group == "" {
			continue
		}
		if leader, ok := leaders[group]; ok {
			join(leader, i, -1)
		} else {
			leaders[group] = i
		}
	}
	for i, buffered := range p.BufferedLinks() {
		l := &p.Links[i]
		if l.Endpoints[0].External() || l.Endpoints[1].External() || !buffered && l.Engine != topology.Netem {
			continue
		}
		join(p.index[l.Endpoints[0].Node], p.index[l.Endpoints[1].Node], i)
	}
	p.bundle = slices.Repeat([]int{-1}, len(p.Nodes))
	for i := range p.Nodes {
		if p.bundle[i] < 0 {
			p.walk(i, func(to int, _ bond) { p.bundle[to] = len(p.first) })
			p.first = append(p.first, i)
		}
	}
}

// walk calls visit for a node and for each that bonds lead to from there, nearest first, with the bond that leads back.
func (p *planning) walk(from int, visit func(node int, back bond)) {
	met := map[int]bool{from: true}
	visit(from, bond{to: from, link: -1})
	for queue := []int{from}; len(queue) > 0; queue = queue[1:] {
		for _, b := range p.bonds[queue[0]] {
			if !met[b.to] {
				met[b.to] = true
				visit(b.to, bond{queue[0], b.link})
				queue = append(queue, b.to)
			}
		}
	}
}

// why says what keeps two nodes on one host.
func (p *planning) why(a, b int) string {
	back := make(map[int]bond)
	p.walk(a, func(node int, by bond) { back[node] = by })
	var reasons []string
	for node := b; node != a; node = back[node].to {
		reason := p.reason(node, back[node])
		if !slices.Contains(reasons, reason) {
			reasons = append(reasons, reason)
		}
	}
	if more := len(reasons) - mostReasons; more > 0 {
		reasons = append(reasons[:mostReasons], fmt.Sprintf("and %d links more", more))
	}
	return strings.Join(reasons, ", ")
}

// placeOf returns the place where the file says that two nodes stay on one host: that of the first bond between them that has one.
func (p *planning) placeOf(a, b int) (at topology.Place) {
	back := make(map[int]bond)
	p.walk(a, func(node int, by bond) { back[node] = by })
	for node := b; node != a && at == (topology.Place{}); node = back[node].to {
		if link := back[node].link; link >= 0 {
			at = p.Links[link].EngineAt
		} else {
			at = p.Nodes[node].TogetherAt
		}
	}
	return at
}

// mostReasons bounds the bonds that an error names.
const mostReasons = 3

// reason says what one bond of a node is.
func (p *planning) reason(node int, b bond) string {
	if b.link < 0 {
		n := &p.Nodes[node]
		return fmt.Sprintf("the group %s stays together (%s)", n.Together, n.TogetherAt)
	}
	l := &p.Links[b.link]
	name := l.Endpoints[0].String() + " - " + l.Endpoints[1].String()
	if l.Engine == topology.Netem {
		return fmt.Sprintf("the link %s has engine: netem (%s)", name, l.EngineAt)
	}
	return fmt.Sprintf("the link %s is at a packet buffer", name)
}
