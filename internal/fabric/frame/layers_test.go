package frame

import (
	"encoding/binary"
	"encoding/hex"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

const addresses6 = "fd000000000000000000000000000001 fd000000000000000000000000000002"

func TestLayers(t *testing.T) {
	for _, c := range []struct {
		name    string
		packet  string
		payload int
		ect     bool
		roce    bool
	}{
		{"ARP", "ffffffffffff 020000000001 0806 0001 0800 0604 0001", 14, false, false},
		{"RoCEv2 over IPv4", ethernet4 + "4502 0024 0000 4000 4011 0000 0a000001 0a000002 c000 12b7 0010 0000 6400ffff 00000001", 42, true, true},
		{"answers from its port are none", ethernet4 + "4501 0024 0000 4000 4011 0000 0a000001 0a000002 12b7 c000 0010 0000 6400ffff 00000001", 42, true, false},
		{"RoCEv2 over IPv6", ethernet6 + "6020 0000 0010 11 40" + addresses6 + "c000 12b7 0010 0000 6400ffff 00000001", 62, true, true},
		{"not ECN-capable", ethernet6 + "6fc0 0000 0010 11 40" + addresses6 + "c000 12b7 0010 0000 6400ffff 00000001", 62, false, true},
		{"marked already", ethernet6 + "6030 0000 0010 11 40" + addresses6 + "c000 12b7 0010 0000 6400ffff 00000001", 62, false, true},
		{"TCP with options", ethernet4 + "4500 0030 0000 4000 4006 0000 0a000001 0a000002 c000 12b7 00000000 00000000 6000 0000 0000 0000 01010101 6162", 58, false, false},
		{"TCP that claims more header than it has", ethernet4 + "4500 0030 0000 4000 4006 0000 0a000001 0a000002 c000 12b7 00000000 00000000 f000 0000 0000 0000 0101", 56, false, false},
		{"ICMP", ethernet4 + "4500 0020 0000 4000 4001 0000 0a000001 0a000002 0800 0000 0000 0000", 34, false, false},
		{"a later fragment", ethernet4 + "4500 0024 0000 2001 4011 0000 0a000001 0a000002 c000 12b7 0010 0000 6400ffff", 34, false, false},
		{"UDP cut short", ethernet4 + "4500 001a 0000 4000 4011 0000 0a000001 0a000002 c000 12b7", 34, false, false},
		{"IPv4 cut short", ethernet4 + "4500 001a 0000", 14, false, false},
		{"IPv4 with less header than it claims", ethernet4 + "4f02 0024 0000 4000 4011 0000 0a000001 0a000002 c000 12b7", 38, true, false},
	} {
		f, err := Parse(append(make([]byte, HeaderLen), unhex(c.packet)...))
		if err != nil {
			t.Fatal(err)
		}
		got := f.Layers()
		if got.Payload != c.payload || got.ECT != c.ect || got.RoCE != c.roce {
			t.Errorf("%s: %+v, want a payload at %d, ECT %v, RoCE %v", c.name, got, c.payload, c.ect, c.roce)
		}
	}
}

func TestMessages(t *testing.T) {
	f, err := Parse(superUDP4())
	if err != nil {
		t.Fatal(err)
	}
	at := f.Layers()
	if at.Payload != 42 || !at.RoCE || string(f.Message(1, at)) != "cd" || string(f.Message(2, at)) != "e" {
		t.Errorf("%+v, messages %q and %q", at, f.Message(1, at), f.Message(2, at))
	}
	one, err := Parse(append(make([]byte, HeaderLen), unhex(udp4Packets[0])...))
	if err != nil {
		t.Fatal(err)
	}
	if got := one.Message(0, one.Layers()); string(got) != "ab" {
		t.Errorf("message %q of a single packet", got)
	}
}

// Parsing looks for nothing outside of the frame, whatever bytes the frame has.
func TestLayersOfAnything(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		b := append(make([]byte, HeaderLen), rapid.SliceOfN(rapid.Byte(), 14, 120).Draw(t, "bytes")...)
		binary.BigEndian.PutUint16(b[HeaderLen+12:], rapid.SampledFrom([]uint16{etherIPv4, etherIPv6, 0x0806}).Draw(t, "protocol"))
		f, err := Parse(b)
		if err != nil {
			t.Fatal(err)
		}
		at := f.Layers()
		if at.Payload < 14 || at.Payload > len(f.Packet()) {
			t.Fatalf("payload at %d of %d", at.Payload, len(f.Packet()))
		}
		f.Message(0, at)
		Mark(f.Packet())
		f.Reseal(f.AppendPacket(nil, 0), at)
	})
}

func TestMark(t *testing.T) {
	for _, c := range []struct{ name, before, after string }{
		// Header checksums worked out by hand: one's complement sum of the words.
		{"IPv4", ethernet4 + "4502 001e fffe 4000 4011 26cc 0a000001 0a000002", ethernet4 + "4503 001e fffe 4000 4011 26cb 0a000001 0a000002"},
		{"IPv4, checksum that wraps", ethernet4 + "4500 001e 26cc 4000 4011 0000 0a000001 0a000002", ethernet4 + "4503 001e 26cc 4000 4011 fffc 0a000001 0a000002"},
		{"IPv6", ethernet6 + "6f2a 0000 0010 11 40" + addresses6, ethernet6 + "6f3a 0000 0010 11 40" + addresses6},
		{"ARP", "ffffffffffff 020000000001 0806 0001 0800 0604 0001 0000 0000 0000 0000 0000", "ffffffffffff 020000000001 0806 0001 0800 0604 0001 0000 0000 0000 0000 0000"},
		{"short", ethernet4 + "4500", ethernet4 + "4500"},
	} {
		b := unhex(c.before)
		Mark(b)
		if diff := cmp.Diff(hex.Dump(unhex(c.after)), hex.Dump(b)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.name, diff)
		}
	}
}

// A changed RoCEv2 packet has a UDP checksum that is right, or none as before;
// of any other packet the change shows in the checksum.
func TestReseal(t *testing.T) {
	ipv6 := append(virtio(needsCsum, gsoUDP, 62, 4, 54, 6), unhex(ethernet6+"6000 0000 0010 11 40"+addresses6+"c000 12b7 0010 1111 6162636465666768")...)
	unchecked := append(virtio(0, gsoNone, 0, 0, 0, 0), unhex(ethernet4+"4500 0024 0000 4000 4011 26c8 0a000001 0a000002 c000 12b7 0010 0000 6400ffff 00000001")...)
	other := superUDP4()
	other[HeaderLen+37]++ // another port
	for _, c := range []struct {
		name  string
		frame []byte
		none  bool // no checksum
		wrong bool
	}{
		{"super-packet over IPv4", superUDP4(), false, false},
		{"super-packet over IPv6", ipv6, false, false},
		{"without a checksum", unchecked, true, false},
		{"not RoCEv2", other, false, true},
	} {
		f, err := Parse(c.frame)
		if err != nil {
			t.Fatal(err)
		}
		at := f.Layers()
		for i := range f.Segments() {
			for _, where := range []int{at.Payload, at.Payload - 1, at.Payload - 8} { // payload, UDP checksum, source port
				if c.wrong && where == at.Payload-1 {
					continue
				}
				p := f.AppendPacket(nil, i)
				p[where] ^= 0x10
				f.Reseal(p, at)
				l4 := at.Payload - udpLen
				pseudo := p[26:34]
				if p[12] == 0x86 {
					pseudo = p[22:54]
				}
				right := fold(sum(pseudo)+protoUDP+uint64(len(p)-l4)+sum(p[l4:])) == 0xffff
				none := binary.BigEndian.Uint16(p[l4+udpCsum:]) == 0
				if none != c.none || !none && right == c.wrong {
					t.Errorf("%s, packet %d, byte %d changed: checksum none %v, right %v", c.name, i, where, none, right)
				}
			}
		}
	}
}
