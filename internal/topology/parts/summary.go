package parts

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/topology"
)

// A Summary describes a placement, to people by String, to programs as JSON.
type Summary struct {
	Hosts []Share `json:"hosts"`
	Links int     `json:"links"` // of the lab
	Cut   int     `json:"cut"`   // that cross hosts
	// Near counts those that cross, and ask for less delay than hosts are apart.
	Near    int     `json:"near"`
	ApartUS float64 `json:"apart_us"`
	Pairs   []Pair  `json:"pairs"` // of hosts between which links cross
}

// A Share is the part of a lab that a host has.
type Share struct {
	Name   string `json:"name"`
	Nodes  int    `json:"nodes"`
	Cut    int    `json:"cut"`    // links that cross from it
	Memory uint64 `json:"memory"` // bytes that its nodes ask for
}

// A Pair is the links between two hosts.
type Pair struct {
	Hosts [2]string `json:"hosts"`
	Links int       `json:"links"`
	Near  int       `json:"near"`
	// BPS is the sum of the links' rates, in bits per second, from the first host and from the second, without those that have none.
	BPS [2]uint64 `json:"bps"`
	// Unlimited counts the links without a rate in either direction.
	Unlimited int `json:"unlimited"`
}

// Summary returns what is said of the placement, where a packet takes the time apart from host to host.
func (p *Placement) Summary(apart time.Duration) *Summary {
	s := &Summary{Hosts: make([]Share, len(p.hosts)), Links: len(p.topo.Links), Cut: len(p.cut), ApartUS: float64(apart) / float64(time.Microsecond), Pairs: []Pair{}}
	for i, h := range p.hosts {
		s.Hosts[i].Name = h.Name
	}
	for i := range p.topo.Nodes {
		n := &p.topo.Nodes[i]
		share := &s.Hosts[p.of[n.Name]]
		share.Nodes++
		share.Memory += n.Memory
	}
	pairs := make(map[[2]int]*Pair) // by the lesser index, then the greater
	for _, c := range p.cut {
		l := &p.topo.Links[c.Link]
		a, b := c.Hosts[0], c.Hosts[1]
		forth := 0 // the direction from the lesser
		if a > b {
			a, b, forth = b, a, 1
		}
		pair := pairs[[2]int{a, b}]
		if pair == nil {
			pair = &Pair{Hosts: [2]string{p.hosts[a].Name, p.hosts[b].Name}}
			pairs[[2]int{a, b}] = pair
		}
		pair.Links++
		for direction := range l.Directions {
			pair.BPS[direction^forth] += l.Directions[direction].Rate
		}
		if l.Directions[0].Rate == 0 || l.Directions[1].Rate == 0 {
			pair.Unlimited++
		}
		if near(l, apart) {
			pair.Near++
			s.Near++
		}
		s.Hosts[a].Cut++
		s.Hosts[b].Cut++
	}
	for _, hosts := range slices.SortedFunc(maps.Keys(pairs), func(a, b [2]int) int { return slices.Compare(a[:], b[:]) }) {
		s.Pairs = append(s.Pairs, *pairs[hosts])
	}
	return s
}

// Crossing says in one line what crosses hosts.
func (s *Summary) Crossing() string {
	text := fmt.Sprintf("links that cross hosts: %d of %d", s.Cut, s.Links)
	if s.Near > 0 {
		text += fmt.Sprintf(", %d of them ask for less delay than the %.0f us between hosts", s.Near, s.ApartUS)
	}
	return text
}

// String is the summary, a line for each host, for what crosses and for each pair of hosts.
func (s *Summary) String() string {
	var b strings.Builder
	for _, h := range s.Hosts {
		fmt.Fprintf(&b, "host %s: nodes: %d, links that cross: %d", h.Name, h.Nodes, h.Cut)
		if h.Memory > 0 {
			fmt.Fprintf(&b, ", memory asked for: %s", topology.FormatSize(h.Memory))
		}
		b.WriteByte('\n')
	}
	fmt.Fprintf(&b, "%s\n", s.Crossing())
	for i := range s.Pairs {
		fmt.Fprintf(&b, "%s\n", s.Pairs[i].line())
	}
	return b.String()
}

// line is the pair in words.
func (p *Pair) line() string {
	text := fmt.Sprintf("%s - %s: links: %d", p.Hosts[0], p.Hosts[1], p.Links)
	switch {
	case p.BPS == [2]uint64{}:
	case p.BPS[0] == p.BPS[1]:
		text += ", " + topology.FormatRate(p.BPS[0]) + " each way"
	default:
		text += fmt.Sprintf(", %s and %s back", topology.FormatRate(p.BPS[0]), topology.FormatRate(p.BPS[1]))
	}
	if p.Unlimited > 0 {
		text += fmt.Sprintf(", %d without a rate", p.Unlimited)
	}
	if p.Near > 0 {
		text += fmt.Sprintf(", %d of less delay", p.Near)
	}
	return text
}
