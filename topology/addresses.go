package topology

import (
	"math/bits"
	"net/netip"
	"slices"

	"gopkg.in/yaml.v3"
)

// A segment has the number of its first link, so that the link i between two nodes
// has the subnets 10.(i/256).(i%256).0/24 and fd6e:646b:1:i::/64 unless the file
// gives addresses. Its ends have the first addresses in each, in the order of the
// file.
const subnets = 1 << 16

var pools = [2]pool{
	{netip.MustParsePrefix("10.0.0.0/8"), 24},
	{netip.MustParsePrefix("fd6e:646b:1::/48"), 64},
}

// A pool is addresses cut into numbered subnets.
type pool struct {
	all  netip.Prefix
	bits int // of a subnet: 16 more than of the pool
}

// subnet is the subnet with that number.
func (p pool) subnet(number int) netip.Prefix {
	a := p.all.Addr().AsSlice()
	at := p.all.Bits() / 8
	a[at], a[at+1] = byte(number>>8), byte(number)
	subnet, _ := netip.AddrFromSlice(a)
	return netip.PrefixFrom(subnet, p.bits)
}

// overlap is the numbers of the subnets that have addresses in common with a
// prefix: from first up to, not including, end.
func (p pool) overlap(prefix netip.Prefix) (first, end int) {
	if !p.all.Overlaps(prefix) {
		return 0, 0
	}
	if prefix.Bits() <= p.all.Bits() {
		return 0, subnets
	}
	a := prefix.Masked().Addr().AsSlice()
	at := p.all.Bits() / 8
	first = int(a[at])<<8 | int(a[at+1])
	return first, first + 1<<max(0, p.bits-prefix.Bits())
}

// An addressing gives the ends of links their addresses.
type addressing struct {
	network
	all   [][2][]netip.Prefix         // of each link's ends, so far
	owner map[netip.Addr]*yaml.Node   // of all addresses that are taken
	taken []bool                      // numbers of subnets
	next  map[netip.Prefix]netip.Addr // where to go on looking in a subnet
}

// addresses returns the addresses of every link's ends: those the file gives, else
// the first free ones in the subnets of the first end in the segment that the file
// gives addresses, else of the subnets with the segment's number. If the file uses
// one of these, the segment gets instead the first pair that is free beyond all
// links' numbers, so that no other link's addresses change; one with more ends
// than a /24 has addresses gets as many free numbers in a row there as make a
// subnet that is large enough. Addresses that the running lab has chosen come
// before those that would be chosen now.
func (n network) addresses() [][2][]netip.Prefix {
	r := addressing{n, make([][2][]netip.Prefix, len(n.links)), make(map[netip.Addr]*yaml.Node), make([]bool, subnets), make(map[netip.Prefix]netip.Addr)}
	of, links, all, owner, taken := n.lab.Links, n.links, r.all, r.owner, r.taken
	given := make(map[netip.Prefix]bool) // subnets
	for i, l := range links {
		for end, e := range l.is.endpoints[:min(2, len(l.is.endpoints))] {
			for _, v := range e.addresses {
				if !v.ok {
					continue
				}
				if first := owner[v.is.Addr()]; first != nil {
					r.errorf(v.at, "address %s a second time, expected one that is free (line %d has it)", v.is.Addr(), first.Line)
					continue
				}
				owner[v.is.Addr()] = v.at
				all[i][end] = append(all[i][end], v.is)
				if subnet := v.is.Masked(); !given[subnet] {
					given[subnet] = true
					take([]netip.Prefix{subnet}, taken)
				}
			}
		}
	}
	before := chosenBefore(r.Running, of)
	if before != nil {
		r.keep(before)
	}
	spare := len(links)
	for _, l := range of {
		spare = max(spare, l.Number+1)
	}
	for _, s := range n.segments {
		if slices.ContainsFunc(s.links, func(i int) bool { return len(links[i].is.endpoints) != 2 }) {
			continue
		}
		i := slices.IndexFunc(s.ends, func(e linkEnd) bool { return links[e.link].is.gives(e.end) })
		if i < 0 && before != nil {
			i = slices.IndexFunc(s.ends, func(e linkEnd) bool { return len(all[e.link][e.end]) > 0 })
		}
		if i >= 0 {
			r.beside(s, s.ends[i])
			continue
		}
		extra := max(0, bits.Len(uint(len(s.ends)+1))-8) // bits of a host in IPv4 beyond 8: all but two addresses are usable
		number, size := of[s.links[0]].Number, 1<<extra
		if number >= subnets || taken[number] || size > 1 {
			number = free(taken, spare, size)
			spare = number + size
		}
		if number+size > subnets {
			r.errorf(links[s.links[0]].at, "no subnet is left for the link, expected addresses for it in the file")
			continue
		}
		for f, p := range pools {
			subnet := p.subnet(number)
			if f == 0 {
				subnet = netip.PrefixFrom(subnet.Addr(), p.bits-extra)
			}
			a := subnet.Addr()
			for _, e := range s.ends {
				a = a.Next()
				all[e.link][e.end] = append(all[e.link][e.end], netip.PrefixFrom(a, subnet.Bits()))
			}
		}
	}
	return all
}

// free is the first of so many numbers in a row, of which it is a multiple, that
// are not taken; from subnets on, none are.
func free(taken []bool, from, size int) int {
	number := (from + size - 1) / size * size
	for number+size <= subnets && slices.Contains(taken[number:number+size], true) {
		number += size
	}
	return number
}

// beside gives the ends of a segment that have no addresses the first free ones in
// each of the subnets of one that has, and checks that the others that the file gives
// some share one of these.
func (r *addressing) beside(s segment, first linkEnd) {
	links, all, owner, next := r.links, r.all, r.owner, r.next
	given := all[first.link][first.end]
	if len(given) == 0 {
		return // there was an error in each
	}
	at := links[first.link].is.endpoints[first.end].at
	inside := subnetsOf(given)
	for _, e := range s.ends {
		own := &all[e.link][e.end]
		if theirs := links[e.link].is.endpoints[e.end].addresses; len(theirs) > 0 {
			switch {
			case len(*own) == 0 || shareSubnet(given, *own):
			case len(s.links) == 1:
				r.errorf(theirs[0].at, "the ends of the link share no subnet (%s, %s), expected addresses in one", given[0], (*own)[0])
			default:
				r.errorf(theirs[0].at, "%s shares no subnet with %s (line %d), which is in the same segment, expected addresses in one", (*own)[0], given[0], at.Line)
			}
			continue
		}
		if len(*own) > 0 {
			continue // it is that which the running lab chose
		}
		for _, subnet := range inside {
			a, ok := next[subnet]
			if !ok {
				a = subnet.Addr()
			}
			for subnet.Contains(a) && (owner[a] != nil || !usable(subnet, a)) {
				a = a.Next()
			}
			next[subnet] = a
			if !subnet.Contains(a) {
				r.errorf(at, "no address is left in %s for the other end, expected addresses for that too", subnet)
				continue
			}
			next[subnet] = a.Next()
			*own = append(*own, netip.PrefixFrom(a, subnet.Bits()))
		}
	}
}

// shareSubnet reports whether an address of each end lies in the other's
// subnet.
func shareSubnet(a, b []netip.Prefix) bool {
	_, _, ok := sharing(a, b, func(netip.Addr) bool { return true })
	return ok
}

// sharing is the first pair of addresses of a family that lie in each other's
// subnet.
func sharing(a, b []netip.Prefix, family func(netip.Addr) bool) (netip.Addr, netip.Addr, bool) {
	for _, x := range a {
		if !family(x.Addr()) {
			continue
		}
		for _, y := range b {
			if x.Masked().Contains(y.Addr()) && y.Masked().Contains(x.Addr()) {
				return x.Addr(), y.Addr(), true
			}
		}
	}
	return netip.Addr{}, netip.Addr{}, false
}

// usable reports whether a host may have the address: it is not the subnet's
// first (in IPv6 the anycast address of routers, RFC 4291, section 2.6.1) and not
// its IPv4 broadcast address. Subnets of two addresses have neither (RFC 3021,
// RFC 6164).
func usable(subnet netip.Prefix, a netip.Addr) bool {
	if subnet.Bits() >= a.BitLen()-1 {
		return true
	}
	if a == subnet.Masked().Addr() {
		return false
	}
	next := a.Next()
	return a.Is6() || next.IsValid() && subnet.Masked().Contains(next)
}
