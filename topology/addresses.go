package topology

import (
	"encoding/binary"
	"math/bits"
	"net/netip"
	"slices"

	"gopkg.in/yaml.v3"
)

// A segment has the number of its first link, so that the link i between two nodes
// has the subnets 10.(i/256).(i%256).0/24 and fd6e:646b:1:i::/64 unless the file
// gives addresses. Its ends have the first addresses in each, in the order of the
// file. Where a lab has more segments than there are such subnets, the others get
// those of the second reserve, which are no larger than they need.
var reserves = [2]reserve{
	newReserve("10.0.0.0/8", "fd6e:646b:1::/48", 24),
	newReserve("172.16.0.0/12", "fd6e:646b:4::/46", 30),
}

// A reserve is addresses of both families, cut into as many numbered subnets of each.
type reserve struct {
	families [2]pool // IPv4, IPv6
	subnets  int
}

// A pool is addresses cut into numbered subnets.
type pool struct {
	all  netip.Prefix
	bits int // of a subnet
}

// newReserve returns the reserve of two pools, of which that of IPv4 has subnets of so many bits, and that of IPv6 of 64.
func newReserve(v4, v6 string, bits int) reserve {
	r := reserve{families: [2]pool{{netip.MustParsePrefix(v4), bits}, {netip.MustParsePrefix(v6), 64}}}
	r.subnets = 1 << (bits - r.families[0].all.Bits())
	return r
}

// subnet is the subnet with that number.
func (p pool) subnet(number int) netip.Prefix {
	if p.all.Addr().Is4() {
		a := p.all.Addr().As4()
		binary.BigEndian.PutUint32(a[:], binary.BigEndian.Uint32(a[:])+uint32(number)<<(32-p.bits))
		return netip.PrefixFrom(netip.AddrFrom4(a), p.bits)
	}
	a := p.all.Addr().As16()
	binary.BigEndian.PutUint64(a[:], binary.BigEndian.Uint64(a[:])+uint64(number)<<(64-p.bits))
	return netip.PrefixFrom(netip.AddrFrom16(a), p.bits)
}

// overlap is the numbers of the subnets that have addresses in common with a
// prefix: from first up to, not including, end.
func (p pool) overlap(prefix netip.Prefix) (first, end int) {
	if !p.all.Overlaps(prefix) {
		return 0, 0
	}
	if prefix.Bits() <= p.all.Bits() {
		return 0, 1 << (p.bits - p.all.Bits())
	}
	if a, base := prefix.Masked().Addr(), p.all.Addr(); a.Is4() {
		is, of := a.As4(), base.As4()
		first = int((binary.BigEndian.Uint32(is[:]) - binary.BigEndian.Uint32(of[:])) >> (32 - p.bits))
	} else {
		is, of := a.As16(), base.As16()
		first = int((binary.BigEndian.Uint64(is[:]) - binary.BigEndian.Uint64(of[:])) >> (64 - p.bits))
	}
	return first, first + 1<<max(0, p.bits-prefix.Bits())
}

// larger is by how many bits a subnet of the reserve has to be larger in IPv4, so that a segment has addresses for
// its ends: all but two are usable.
func (r reserve) larger(ends int) int {
	return max(0, bits.Len(uint(ends+1))-(32-r.families[0].bits))
}

// A ledger has, by reserve and number, the subnets that are taken.
type ledger [len(reserves)][]bool

func newLedger() (l ledger) {
	for i, r := range reserves {
		l[i] = make([]bool, r.subnets)
	}
	return l
}

// An addressing gives the ends of links their addresses.
type addressing struct {
	network
	all   [][2][]netip.Prefix       // of each link's ends, so far
	owner map[netip.Addr]*yaml.Node // of all addresses that are taken
	taken ledger
	next  map[netip.Prefix]netip.Addr // where to go on looking in a subnet
}

// addresses returns the addresses of every link's ends: those the file gives, else
// the first free ones in the subnets of the first end in the segment that the file
// gives addresses, else of the subnets with the segment's number. If the file uses
// one of these, the segment gets instead the first pair that is free beyond all
// links' numbers, so that no other link's addresses change; one with more ends
// than a /24 has addresses gets as many free numbers in a row there as make a
// subnet that is large enough. Where there are none, it gets them in the second
// reserve. Addresses that the running lab has chosen come before those that would
// be chosen now.
func (n network) addresses() [][2][]netip.Prefix {
	r := addressing{n, make([][2][]netip.Prefix, len(n.links)), make(map[netip.Addr]*yaml.Node), newLedger(), make(map[netip.Prefix]netip.Addr)}
	of, links, all, owner, taken := n.lab.Links, n.links, r.all, r.owner, &r.taken
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
					taken.take([]netip.Prefix{subnet})
				}
			}
		}
	}
	before := chosenBefore(r.Running, of)
	if before != nil {
		r.keep(before)
	}
	next := [len(reserves)]int{len(links)} // from where numbers are free that are no link's
	for _, l := range of {
		next[0] = max(next[0], l.Number+1)
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
		at, number := 0, of[s.links[0]].Number // of which reserve, and the subnet there
		var extra int
		for ; at < len(reserves); at++ {
			extra = reserves[at].larger(len(s.ends))
			if at == 0 && extra == 0 && number < reserves[at].subnets && !taken[at][number] {
				break
			}
			if number = taken.free(at, next[at], 1<<extra); number+1<<extra <= reserves[at].subnets {
				next[at] = number + 1<<extra
				break
			}
		}
		if at == len(reserves) {
			r.errorf(links[s.links[0]].at, "no subnet is left for the link, expected addresses for it in the file")
			continue
		}
		for f, p := range reserves[at].families {
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

// free is the first of so many numbers in a row of a reserve, of which it is a
// multiple, that are not taken; from the number of its subnets on, none are.
func (l *ledger) free(reserve, from, size int) int {
	taken := l[reserve]
	number := (from + size - 1) / size * size
	for number+size <= len(taken) && slices.Contains(taken[number:number+size], true) {
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
