package topology

import (
	"net/netip"

	"gopkg.in/yaml.v3"
)

// Link i has the subnets 10.(i/256).(i%256).0/24 and fd6e:646b:1:i::/64 unless
// the file gives addresses; its first endpoint has the first address in each.
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

// addresses is the addresses of every link's ends: those the file gives, else
// the first free ones in the other end's subnets if the file gives those, else
// of the subnets with the link's number. If the file uses one of these, the link
// gets instead the first pair that is free beyond all links' numbers, so that no
// other link's addresses change.
func (r *reader) addresses(links []linkMap) [][2][]netip.Prefix {
	all := make([][2][]netip.Prefix, len(links))
	owner := make(map[netip.Addr]*yaml.Node)
	given := make(map[netip.Prefix]bool) // subnets
	taken := make([]bool, subnets)       // numbers of subnets
	for i, l := range links {
		for end, e := range l.endpoints[:min(2, len(l.endpoints))] {
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
					for _, p := range pools {
						first, end := p.overlap(subnet)
						for n := first; n < end; n++ {
							taken[n] = true
						}
					}
				}
			}
		}
	}
	spare := len(links)
	next := make(map[netip.Prefix]netip.Addr)
	for i, l := range links {
		if len(l.endpoints) != 2 {
			continue
		}
		a, b := &all[i][0], &all[i][1]
		switch {
		case len(l.endpoints[0].addresses) > 0 && len(l.endpoints[1].addresses) > 0:
			if len(*a) > 0 && len(*b) > 0 && !shareSubnet(*a, *b) {
				r.errorf(l.endpoints[1].addresses[0].at, "the ends of the link share no subnet (%s, %s), expected addresses in one", (*a)[0], (*b)[0])
			}
		case len(l.endpoints[0].addresses) > 0:
			*b = r.beside(*a, l.endpoints[0], owner, next)
		case len(l.endpoints[1].addresses) > 0:
			*a = r.beside(*b, l.endpoints[1], owner, next)
		default:
			number := i
			if number >= subnets || taken[number] {
				for spare < subnets && taken[spare] {
					spare++
				}
				number = spare
				spare++
			}
			if number >= subnets {
				r.errorf(l.at, "no subnet is left for the link, expected addresses for it in the file")
				continue
			}
			for _, p := range pools {
				subnet := p.subnet(number)
				one := subnet.Addr().Next()
				*a = append(*a, netip.PrefixFrom(one, p.bits))
				*b = append(*b, netip.PrefixFrom(one.Next(), p.bits))
			}
		}
	}
	return all
}

// beside is the first free address in each of the subnets of the other end,
// whose addresses the file gives. Owner has all addresses that the file gives,
// and next where to go on looking in a subnet.
func (r *reader) beside(other []netip.Prefix, e endpointMap, owner map[netip.Addr]*yaml.Node, next map[netip.Prefix]netip.Addr) []netip.Prefix {
	var found []netip.Prefix
	has := make(map[netip.Prefix]bool)
	for _, o := range other {
		subnet := o.Masked()
		if has[subnet] {
			continue
		}
		has[subnet] = true
		a, ok := next[subnet]
		if !ok {
			a = subnet.Addr()
		}
		for subnet.Contains(a) && (owner[a] != nil || !usable(subnet, a)) {
			a = a.Next()
		}
		if !subnet.Contains(a) {
			r.errorf(e.at, "no address is left in %s for the other end, expected addresses for that too", subnet)
			continue
		}
		next[subnet] = a.Next()
		found = append(found, netip.PrefixFrom(a, subnet.Bits()))
	}
	return found
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

// A Path is where traffic from one node to another leaves the first and arrives
// at the second. Both addresses are of one family.
type Path struct {
	From, To Hop
}

// A Hop is one end of a Path.
type Hop struct {
	Node      string
	Interface string
	Address   netip.Addr
}

// Path is the first link that joins two nodes, with its first IPv4 addresses in
// a common subnet, or IPv6 ones if there are none; ok is false if no link joins
// them.
func (t *Topology) Path(from, to string) (p Path, ok bool) {
	for _, l := range t.Links {
		for end, e := range l.Endpoints {
			other := l.Endpoints[1-end]
			if e.Node != from || other.Node != to {
				continue
			}
			a, b := t.addresses(e), t.addresses(other)
			x, y, ok := sharing(a, b, netip.Addr.Is4)
			if !ok {
				x, y, ok = sharing(a, b, netip.Addr.Is6)
			}
			return Path{Hop{from, e.Interface, x}, Hop{to, other.Interface, y}}, ok
		}
	}
	return Path{}, false
}

// addresses is the addresses of a link's end.
func (t *Topology) addresses(e Endpoint) []netip.Prefix {
	if n := t.FindNode(e.Node); n != nil {
		for _, i := range n.Interfaces {
			if i.Name == e.Interface {
				return i.Addresses
			}
		}
	}
	return nil
}
