// Package filter is the language of capture filters: that of tcpdump
// (pcap-filter(7)), as far as it is about Ethernet, ARP, IPv4, IPv6 and what they
// carry.
//
//	udp port 4791
//	host 10.0.0.1 and not arp
//	udp[8] = 0x11 or (src net 10.1.0.0/16 and greater 1000)
//
// A Filter decides on single packets. It is not compiled for the kernel, because
// that would decide on super-packets, whose length, offsets and sequence numbers
// are those of no packet on a wire; and libpcap's compiler is not for a static
// Go program.
//
// It decides as libpcap would, but for two things. udp[...] and its like look into
// IPv6 packets, too, where libpcap knows IPv4 alone. Names are not looked up:
// hosts are addresses and ports are numbers.
//
// The package is pure. Start reading at Parse.
package filter

import "encoding/binary"

// A Filter decides which packets are wanted. It is not for use by several
// goroutines at once.
type Filter struct {
	text   string
	test   test
	packet packet // being looked at
}

// Parse reads an expression. One of only spaces takes every packet. The error
// says where in the expression something is wrong.
func Parse(text string) (*Filter, error) {
	t, err := parse(text)
	if err != nil {
		return nil, err
	}
	return &Filter{text: text, test: t}, nil
}

// String is the expression.
func (f *Filter) String() string { return f.text }

// Match reports whether a packet, from its Ethernet header on, is wanted. As in
// the BPF machine, one that the expression looks beyond the end of is not.
func (f *Filter) Match(frame []byte) bool {
	f.packet = packet{bytes: frame}
	return f.test(&f.packet) && !f.packet.beyond
}

// A test decides an expression, and a number computes one; both set packet.beyond
// when there is no decision.
type (
	test   func(*packet) bool
	number func(*packet) uint32
)

// A packet has the bytes that a test looks at.
type packet struct {
	bytes  []byte
	beyond bool // a test wanted what is not there, or divided by 0
}

// load is size bytes (1, 2 or 4) at an offset.
func (p *packet) load(at uint64, size int) uint32 {
	if at+uint64(size) > uint64(len(p.bytes)) {
		p.beyond = true
		return 0
	}
	b := p.bytes[at:]
	switch size {
	case 1:
		return uint32(b[0])
	case 2:
		return uint32(binary.BigEndian.Uint16(b))
	}
	return binary.BigEndian.Uint32(b)
}

// Where things are in an Ethernet frame.
const (
	etherType = 12
	network   = 14 // the header after Ethernet's

	ip4Fragment = network + 6
	ip4Protocol = network + 9
	ip4Source   = network + 12
	ip4Dest     = network + 16
	ip6Next     = network + 6
	ip6Source   = network + 8
	ip6Dest     = network + 24
	ip6Payload  = network + 40
	arpSource   = network + 14
	arpDest     = network + 24

	typeIP4  = 0x0800
	typeARP  = 0x0806
	typeRARP = 0x8035
	typeIP6  = 0x86dd

	protocolFragment = 44 // an IPv6 fragment header
)

// protocolOf returns the number of one that IP carries, by the name that expressions have; 0: there is none of that name.
func protocolOf(name string) uint32 {
	switch name {
	case "icmp":
		return 1
	case "igmp":
		return 2
	case "tcp":
		return 6
	case "udp":
		return 17
	case "gre":
		return 47
	case "esp":
		return 50
	case "ah":
		return 51
	case "icmp6":
		return 58
	case "sctp":
		return 132
	}
	return 0
}

// etherTypeOf returns that of one that Ethernet carries, likewise.
func etherTypeOf(name string) uint32 {
	switch name {
	case "ip":
		return typeIP4
	case "arp":
		return typeARP
	case "rarp":
		return typeRARP
	case "ip6":
		return typeIP6
	}
	return 0
}

func (p *packet) is(kind uint32) bool { return p.load(etherType, 2) == kind }

func isType(kind uint32) test { return func(p *packet) bool { return p.is(kind) } }

// ip4Carries is IPv4 with a protocol.
func ip4Carries(protocol uint32) test {
	return func(p *packet) bool { return p.is(typeIP4) && p.load(ip4Protocol, 1) == protocol }
}

// ip6Carries is IPv6 with a protocol as its first header, or the first after
// that of a fragment.
func ip6Carries(protocol uint32) test {
	return func(p *packet) bool {
		if !p.is(typeIP6) {
			return false
		}
		next := p.load(ip6Next, 1)
		return next == protocol || next == protocolFragment && p.load(ip6Payload, 1) == protocol
	}
}

// transport returns the offset of the header after IP's, if the packet has one of
// that protocol and is not a later fragment.
func (p *packet) transport(protocol uint32) (at uint64, ok bool) {
	switch p.load(etherType, 2) {
	case typeIP4:
		if p.load(ip4Protocol, 1) != protocol || p.load(ip4Fragment, 2)&0x1fff != 0 {
			return 0, false
		}
		return network + uint64(p.load(network, 1)&15)*4, true
	case typeIP6:
		return ip6Payload, p.load(ip6Next, 1) == protocol
	}
	return 0, false
}

func both(a, b test) test   { return func(p *packet) bool { return a(p) && b(p) } }
func either(a, b test) test { return func(p *packet) bool { return a(p) || b(p) } }
func not(a test) test       { return func(p *packet) bool { return !a(p) } }
