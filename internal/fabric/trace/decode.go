package trace

import (
	"fmt"
	"net/netip"
	"strings"

	"github.com/gopacket/gopacket"
	"github.com/gopacket/gopacket/layers"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A decoder takes packets apart, one after the other, whose ends may be missing.
type decoder struct {
	parser *gopacket.DecodingLayerParser
	found  []gopacket.LayerType

	ethernet layers.Ethernet
	vlan     layers.Dot1Q
	arp      layers.ARP
	ip4      layers.IPv4
	ip6      layers.IPv6
	udp      layers.UDP
	tcp      layers.TCP
	icmp4    layers.ICMPv4
	icmp6    layers.ICMPv6

	source, destination netip.Addr // the zero Addr: none
	class               uint8
	roce                bool        // what follows is valid
	header              roce.Header //
	payload             int         // bytes
	start               []byte      // of the payload, as much as was kept
	whole               []byte      // scratch: the payload of UDP as long as it was
}

func newDecoder() *decoder {
	d := new(decoder)
	d.parser = gopacket.NewDecodingLayerParser(layers.LayerTypeEthernet,
		&d.ethernet, &d.vlan, &d.arp, &d.ip4, &d.ip6, &d.udp, &d.tcp, &d.icmp4, &d.icmp6)
	d.parser.IgnoreUnsupported = true
	return d
}

// decode overwrites all of the decoder with a packet.
func (d *decoder) decode(p *Packet) {
	d.source, d.destination, d.class, d.roce = netip.Addr{}, netip.Addr{}, 0, false
	// A layer that is cut off or malformed ends the parsing. The layers before it are found.
	_ = d.parser.DecodeLayers(p.Frame, &d.found)
	for _, found := range d.found {
		switch found {
		case layers.LayerTypeARP:
			d.source, d.destination = address(d.arp.SourceProtAddress), address(d.arp.DstProtAddress)
		case layers.LayerTypeIPv4:
			d.source, d.destination, d.class = address(d.ip4.SrcIP), address(d.ip4.DstIP), d.ip4.TOS
		case layers.LayerTypeIPv6:
			d.source, d.destination, d.class = address(d.ip6.SrcIP), address(d.ip6.DstIP), d.ip6.TrafficClass
		case layers.LayerTypeUDP:
			if d.udp.DstPort == roce.Port {
				d.decodeRoCE()
			}
		}
	}
}

func address(b []byte) netip.Addr {
	a, _ := netip.AddrFromSlice(b)
	return a
}

const udpLen = 8

// decodeRoCE takes the payload of UDP apart. roce.Decode wants all of it, so that zeros take the place of what was not kept.
func (d *decoder) decodeRoCE() {
	missing := int(d.udp.Length) - udpLen - len(d.udp.Payload)
	if missing < 0 {
		return
	}
	d.whole = append(d.whole[:0], d.udp.Payload...)
	d.whole = append(d.whole, make([]byte, missing)...)
	payload, err := roce.Decode(d.whole, &d.header)
	headers := d.header.Opcode.HeaderLen()
	if err != nil || headers > len(d.udp.Payload) {
		return // it is described as any UDP packet
	}
	d.roce, d.payload = true, len(payload)
	d.start = payload[:min(len(payload), len(d.udp.Payload)-headers)]
}

// describeOther describes a packet that is not of RoCEv2.
func (d *decoder) describeOther(p *Packet) string {
	if len(d.found) == 0 {
		return "cut off"
	}
	switch d.found[len(d.found)-1] {
	case layers.LayerTypeARP:
		if d.arp.Operation == layers.ARPReply {
			return fmt.Sprintf("ARP: %v is at %v", d.source, hardware(d.arp.SourceHwAddress))
		}
		return fmt.Sprintf("ARP: who has %v? Tell %v", d.destination, d.source)
	case layers.LayerTypeUDP:
		text := fmt.Sprintf("UDP %d > %d, %d bytes", d.udp.SrcPort, d.udp.DstPort, max(0, int(d.udp.Length)-udpLen))
		if d.udp.DstPort == roce.Port {
			text += ", which is not RoCEv2 or cut off"
		}
		return text
	case layers.LayerTypeTCP:
		return fmt.Sprintf("TCP %d > %d [%s] seq %d ack %d window %d, %d bytes",
			d.tcp.SrcPort, d.tcp.DstPort, strings.Join(d.flags(), " "), d.tcp.Seq, d.tcp.Ack, d.tcp.Window, d.segment())
	case layers.LayerTypeICMPv4:
		return "ICMP " + d.icmp4.TypeCode.String()
	case layers.LayerTypeICMPv6:
		return "ICMPv6 " + d.icmp6.TypeCode.String()
	case layers.LayerTypeIPv4:
		return "IPv4 " + d.ip4.Protocol.String()
	case layers.LayerTypeIPv6:
		return "IPv6 " + d.ip6.NextHeader.String()
	}
	return d.describeFrame()
}

func (d *decoder) flags() (names []string) {
	for _, flag := range []struct {
		name string
		set  bool
	}{{"SYN", d.tcp.SYN}, {"FIN", d.tcp.FIN}, {"RST", d.tcp.RST}, {"PSH", d.tcp.PSH}, {"ACK", d.tcp.ACK}, {"URG", d.tcp.URG}, {"ECE", d.tcp.ECE}, {"CWR", d.tcp.CWR}} {
		if flag.set {
			names = append(names, flag.name)
		}
	}
	return names
}

// segment returns the length of the payload of TCP, by the header of IP since the packet may be cut off.
func (d *decoder) segment() int {
	if d.source.Is4() {
		return int(d.ip4.Length) - 4*int(d.ip4.IHL) - 4*int(d.tcp.DataOffset)
	}
	return int(d.ip6.Length) - 4*int(d.tcp.DataOffset)
}

// etherPause is the EtherType of MAC control frames, which pauses are (IEEE 802.3, 31).
const etherPause = 0x8808

// describeFrame describes a packet of a protocol beside ARP and IP.
func (d *decoder) describeFrame() string {
	kind, payload := d.ethernet.EthernetType, d.ethernet.Payload
	if d.found[len(d.found)-1] == layers.LayerTypeDot1Q {
		kind, payload = d.vlan.Type, d.vlan.Payload
	}
	if kind == etherPause {
		pause, err := mmu.DecodePFC(payload)
		if err != nil {
			return "MAC control frame"
		}
		return describePause(&pause)
	}
	if name := kind.String(); !strings.HasPrefix(name, "Unknown") {
		return name
	}
	return fmt.Sprintf("EtherType 0x%04x", uint16(kind))
}

// describePause names the classes that a PFC frame pauses, each with the time in quanta (of 512 bits on the wire), and those
// whose pause it ends.
func describePause(f *mmu.PFC) string {
	var parts []string
	for class, quanta := range f.Quanta {
		switch {
		case f.Enabled&(1<<class) == 0:
		case quanta == 0:
			parts = append(parts, fmt.Sprintf("class %d goes on", class))
		default:
			parts = append(parts, fmt.Sprintf("class %d pauses for %d quanta", class, quanta))
		}
	}
	if parts == nil {
		return "PFC: no class"
	}
	return "PFC: " + strings.Join(parts, ", ")
}

// A hardware address prints as usual.
type hardware []byte

func (h hardware) String() string {
	parts := make([]string, len(h))
	for i, b := range h {
		parts[i] = fmt.Sprintf("%02x", b)
	}
	return strings.Join(parts, ":")
}
