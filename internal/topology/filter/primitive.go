package filter

import (
	"fmt"
	"net"
	"net/netip"
	"strconv"
	"strings"
)

// The qualifiers of a primitive; "" is one that is not given.
type qualifiers struct {
	protocol  string // ether, ip, ip6, arp, rarp, tcp, udp or sctp
	direction string // src, dst, "src or dst" or "src and dst"
	kind      string // host, net, port, portrange or proto
}

// ways combines the tests of the two directions.
func (q qualifiers) ways(source, destination test) test {
	switch q.direction {
	case "src":
		return source
	case "dst":
		return destination
	case "src and dst":
		return both(source, destination)
	}
	return either(source, destination)
}

// primitive returns the test that the qualifiers make of an id, which is an
// address, a net, a number or a range.
func (q qualifiers) primitive(id string) (test, error) {
	switch q.kind {
	case "port", "portrange":
		return q.port(id)
	case "proto":
		return q.proto(id)
	case "net":
		prefix, err := parseNet(id)
		if err != nil {
			return nil, err
		}
		return q.within(prefix)
	}
	if mac, err := net.ParseMAC(id); err == nil && len(mac) == 6 {
		if q.protocol != "ether" {
			return nil, fmt.Errorf("%s is an Ethernet address, expected ether host %s", id, id)
		}
		return q.ether(mac), nil
	}
	address, err := netip.ParseAddr(id)
	if err != nil || address.Zone() != "" {
		return nil, fmt.Errorf("found %q, expected an address: names are not looked up", id)
	}
	if q.kind == "" && q.direction == "" && q.protocol == "" {
		return nil, fmt.Errorf("found an address, expected host %s", id)
	}
	return q.within(netip.PrefixFrom(address, address.BitLen()))
}

func (q qualifiers) ether(mac net.HardwareAddr) test {
	at := func(offset uint64) test {
		high, low := uint32(mac[0])<<8|uint32(mac[1]), uint32(mac[2])<<24|uint32(mac[3])<<16|uint32(mac[4])<<8|uint32(mac[5])
		return func(p *packet) bool { return p.load(offset, 2) == high && p.load(offset+2, 4) == low }
	}
	return q.ways(at(6), at(0))
}

// parseNet reads a net, which may be an IPv4 one without its last bytes.
func parseNet(id string) (netip.Prefix, error) {
	address, length, hasLength := strings.Cut(id, "/")
	bits := 0
	if !strings.Contains(address, ":") {
		for bits = 8 * (1 + strings.Count(address, ".")); strings.Count(address, ".") < 3; {
			address += ".0"
		}
	} else {
		bits = 128
	}
	a, err := netip.ParseAddr(address)
	if err != nil || a.Zone() != "" {
		return netip.Prefix{}, fmt.Errorf("found %q, expected a net such as 10.0.0.0/8", id)
	}
	if hasLength {
		if bits, err = strconv.Atoi(length); err != nil || bits < 0 || bits > a.BitLen() {
			return netip.Prefix{}, fmt.Errorf("found %q, expected a length of 0 to %d", id, a.BitLen())
		}
	}
	prefix := netip.PrefixFrom(a, bits)
	if prefix.Masked() != prefix {
		return netip.Prefix{}, fmt.Errorf("net %s has bits outside of its length, expected %s", id, prefix.Masked())
	}
	return prefix, nil
}

// within tests addresses against a prefix: those of IP, and for IPv4 also those
// that ARP is about.
func (q qualifiers) within(prefix netip.Prefix) (test, error) {
	if prefix.Addr().Is6() {
		if q.protocol != "" && q.protocol != "ip6" {
			return nil, fmt.Errorf("%s is of IPv6, expected no %s before it", prefix.Addr(), q.protocol)
		}
		return both(isType(typeIP6), q.ways(inPrefix(ip6Source, prefix), inPrefix(ip6Dest, prefix))), nil
	}
	ip := both(isType(typeIP4), q.ways(inPrefix(ip4Source, prefix), inPrefix(ip4Dest, prefix)))
	resolution := q.ways(inPrefix(arpSource, prefix), inPrefix(arpDest, prefix))
	switch q.protocol {
	case "":
		return either(ip, both(either(isType(typeARP), isType(typeRARP)), resolution)), nil
	case "ip":
		return ip, nil
	case "arp", "rarp":
		return both(isType(etherTypeOf(q.protocol)), resolution), nil
	}
	return nil, fmt.Errorf("%s is of IPv4, expected no %s before it", prefix.Addr(), q.protocol)
}

// inPrefix tests the address at an offset, word by word.
func inPrefix(at uint64, prefix netip.Prefix) test {
	want := prefix.Addr().AsSlice()
	return func(p *packet) bool {
		for i, left := 0, prefix.Bits(); left > 0; i, left = i+4, left-32 {
			mask := ^uint32(0) << max(0, 32-left)
			word := uint32(want[i])<<24 | uint32(want[i+1])<<16 | uint32(want[i+2])<<8 | uint32(want[i+3])
			if p.load(at+uint64(i), 4)&mask != word {
				return false
			}
		}
		return true
	}
}

// port tests the ports of TCP, UDP and SCTP, or of the one named.
func (q qualifiers) port(id string) (test, error) {
	from, to, isRange := strings.Cut(id, "-")
	if !isRange {
		to = from
	} else if q.kind == "port" {
		return nil, fmt.Errorf("found %q, expected a port: portrange takes a range", id)
	}
	least, err := strconv.ParseUint(from, 0, 16)
	most, errTo := strconv.ParseUint(to, 0, 16)
	if err != nil || errTo != nil {
		return nil, fmt.Errorf("found %q, expected a port number of 0 to 65535: names are not looked up", id)
	}
	if least > most {
		least, most = most, least
	}
	names := []string{"tcp", "udp", "sctp"}
	switch q.protocol {
	case "":
	case "tcp", "udp", "sctp":
		names = []string{q.protocol}
	default:
		return nil, fmt.Errorf("%s has no ports, expected tcp, udp, sctp or nothing before %s", q.protocol, q.kind)
	}
	var t test
	for _, name := range names {
		protocol := protocolOf(name)
		at := func(offset uint64) test {
			return func(p *packet) bool {
				header, ok := p.transport(protocol)
				if !ok {
					return false
				}
				port := uint64(p.load(header+offset, 2))
				return least <= port && port <= most && !p.beyond
			}
		}
		of := q.ways(at(0), at(2))
		if t != nil {
			of = either(t, of)
		}
		t = of
	}
	return t, nil
}

// proto tests what Ethernet or IP carries.
func (q qualifiers) proto(id string) (test, error) {
	if q.direction != "" {
		return nil, fmt.Errorf("a protocol has no direction, expected no %s before proto", q.direction)
	}
	number, most := protocolOf, 8
	if q.protocol == "ether" {
		number, most = etherTypeOf, 16
	}
	n := number(id)
	if n == 0 {
		v, err := strconv.ParseUint(id, 0, most)
		if err != nil {
			return nil, fmt.Errorf("found %q, expected a protocol's name or number", id)
		}
		n = uint32(v)
	}
	switch q.protocol {
	case "ether":
		return isType(n), nil
	case "ip":
		return ip4Carries(n), nil
	case "ip6":
		return ip6Carries(n), nil
	case "":
		return either(ip4Carries(n), ip6Carries(n)), nil
	}
	return nil, fmt.Errorf("found proto after %s, expected ether, ip, ip6 or nothing before it", q.protocol)
}

// kind is a protocol alone, such as udp.
func kind(name string) test {
	switch name {
	case "ether":
		return func(*packet) bool { return true }
	case "ip", "ip6", "arp", "rarp":
		return isType(etherTypeOf(name))
	case "icmp", "igmp":
		return ip4Carries(protocolOf(name))
	case "icmp6":
		return ip6Carries(protocolOf(name))
	}
	return either(ip4Carries(protocolOf(name)), ip6Carries(protocolOf(name)))
}

// group is a protocol's broadcast or multicast.
func group(protocol, word string) (test, error) {
	switch {
	case word == "broadcast" && (protocol == "" || protocol == "ether"):
		return func(p *packet) bool { return p.load(0, 4) == 0xffffffff && p.load(4, 2) == 0xffff }, nil
	case word == "broadcast":
		return nil, fmt.Errorf("only ether has a broadcast address")
	case protocol == "" || protocol == "ether":
		return func(p *packet) bool { return p.load(0, 1)&1 != 0 }, nil
	case protocol == "ip":
		return func(p *packet) bool { return p.is(typeIP4) && p.load(ip4Dest, 1) >= 224 }, nil
	case protocol == "ip6":
		return func(p *packet) bool { return p.is(typeIP6) && p.load(ip6Dest, 1) == 255 }, nil
	}
	return nil, fmt.Errorf("%s has no multicast addresses, expected ether, ip or ip6", protocol)
}

// header returns a function that finds the named protocol's header in a packet
// that has one.
func header(name string) func(*packet) (at uint64, ok bool) {
	switch name {
	case "ether":
		return func(*packet) (uint64, bool) { return 0, true }
	case "ip", "ip6", "arp", "rarp":
		return func(p *packet) (uint64, bool) { return network, p.is(etherTypeOf(name)) }
	}
	protocol := protocolOf(name)
	only := map[string]uint32{"icmp": typeIP4, "igmp": typeIP4, "icmp6": typeIP6}[name]
	return func(p *packet) (uint64, bool) {
		if only != 0 && !p.is(only) {
			return 0, false
		}
		return p.transport(protocol)
	}
}
