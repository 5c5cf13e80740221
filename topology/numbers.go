package topology

import (
	"net/netip"
	"slices"
)

// This file keeps what a running lab has when its file changes: the numbers of
// links, and the addresses that the lab chose (Options.Running).

// numberLinks gives each link its number: that which it has in the running lab, if both
// of its ends are the same there; else its place in the file, if that is free; else
// one that is.
func numberLinks(links []Link, before *Topology) {
	taken := make(map[int]bool)
	numbered := make([]bool, len(links))
	if before != nil {
		running := make(map[[2]Endpoint]int, len(before.Links))
		for _, l := range before.Links {
			running[l.Endpoints] = l.Number
		}
		for i := range links {
			if number, ok := running[links[i].Endpoints]; ok {
				links[i].Number, taken[number], numbered[i] = number, true, true
			}
		}
	}
	next := len(links) // beyond the places of others
	for i := range links {
		if numbered[i] {
			continue
		}
		number := i
		for taken[number] {
			number = next % maxItems
			next++
		}
		links[i].Number, taken[number] = number, true
	}
}

// chosenBefore is the addresses that the running lab has chosen for the ends of links that
// it has.
func chosenBefore(running *Topology, links []Link) map[linkEnd][]netip.Prefix {
	if running == nil {
		return nil
	}
	at := make(map[int]int, len(links)) // by number
	for i, l := range links {
		at[l.Number] = i
	}
	chosen := make(map[linkEnd][]netip.Prefix)
	add := func(faces []Interface) {
		for _, f := range faces {
			l := running.Links[f.Link]
			if i, ok := at[l.Number]; ok && links[i].Endpoints == l.Endpoints && !f.Given && len(f.Addresses) > 0 {
				chosen[linkEnd{i, f.End}] = f.Addresses
			}
		}
	}
	for _, n := range running.Nodes {
		add(n.Interfaces)
	}
	add(running.Externals)
	return chosen
}

// keep gives the ends of segments the addresses that the running lab chose for them, where
// these still suit: all ends of a segment get addresses in the same subnets, which no
// other segment has. The subnets are those of the first end that the file gives addresses,
// else of the first that has been chosen some. keep adds to all what it keeps, and to the
// sets what others must not get.
func (r *addressing) keep(before map[linkEnd][]netip.Prefix) {
	links, all, owner, taken := r.links, r.all, r.owner, &r.taken
	for _, s := range r.segments {
		var inside []netip.Prefix
		for _, e := range s.ends {
			if links[e.link].is.gives(e.end) {
				inside = subnetsOf(all[e.link][e.end])
				break
			}
		}
		for _, e := range s.ends {
			if inside == nil && taken.suits(before[e], len(s.ends)) {
				inside = subnetsOf(before[e])
				taken.take(inside)
			}
			if chosen := before[e]; chosen == nil || links[e.link].is.gives(e.end) || !slices.Equal(subnetsOf(chosen), inside) ||
				slices.ContainsFunc(chosen, func(a netip.Prefix) bool { return owner[a.Addr()] != nil }) {
				continue
			}
			all[e.link][e.end] = before[e]
			for _, a := range before[e] {
				owner[a.Addr()] = links[e.link].is.endpoints[e.end].at
			}
		}
	}
}

// suits reports whether addresses are of subnets that nobody else has and that are
// large enough for so many ends.
func (l *ledger) suits(chosen []netip.Prefix, ends int) bool {
	for _, a := range chosen {
		// All but two addresses of an IPv4 subnet are usable.
		if free := a.Addr().BitLen() - a.Bits(); free < 32 && 1<<free-2 < ends {
			return false
		}
		for i, of := range reserves {
			for _, p := range of.families {
				if first, end := p.overlap(a.Masked()); slices.Contains(l[i][first:end], true) {
					return false
				}
			}
		}
	}
	return len(chosen) > 0
}

// take takes subnets for a segment.
func (l *ledger) take(inside []netip.Prefix) {
	for _, subnet := range inside {
		for i, of := range reserves {
			for _, p := range of.families {
				first, end := p.overlap(subnet)
				for n := first; n < end; n++ {
					l[i][n] = true
				}
			}
		}
	}
}

// subnetsOf is the subnets that addresses are in, each once.
func subnetsOf(addresses []netip.Prefix) []netip.Prefix {
	var inside []netip.Prefix
	for _, a := range addresses {
		if subnet := a.Masked(); !slices.Contains(inside, subnet) {
			inside = append(inside, subnet)
		}
	}
	return inside
}

// gives reports whether the file gives an end of the link addresses.
func (m linkMap) gives(end int) bool {
	return end < len(m.endpoints) && len(m.endpoints[end].addresses) > 0
}
