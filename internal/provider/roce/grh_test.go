package roce

import (
	"net/netip"
	"testing"
)

// TestGRH: the header that stands before a datagram is one that its receiver finds right.
func TestGRH(t *testing.T) {
	v4 := Flow{Local: netip.MustParseAddr("10.0.0.2"), Remote: netip.MustParseAddr("10.0.0.1"), SourcePort: 0xC123}
	b := GRH(&v4, 0xBA, UDSendOnly, 13)
	if header := b[GRHLen-ipv4Len:]; header[0] != 0x45 || header[1] != 0xBA || ipv4Checksum(header) != 0 {
		t.Errorf("the header of IPv4 is % x, which has another class or checksum", header)
	}
	if [GRHLen - ipv4Len]byte(b[:]) != [GRHLen - ipv4Len]byte{} {
		t.Errorf("% x stands before the header of IPv4, want zeros", b)
	}
	v6 := Flow{Local: netip.MustParseAddr("fd00::2"), Remote: netip.MustParseAddr("fd00::1")}
	b = GRH(&v6, 0xBA, UDSendOnly, 13)
	if from, to := netip.AddrFrom16([16]byte(b[8:])), netip.AddrFrom16([16]byte(b[24:])); ClassOf(b[:]) != 0xBA || b[0]>>4 != 6 || from != v6.Remote || to != v6.Local {
		t.Errorf("the header of IPv6 is % x, want one from %v to %v", b, v6.Remote, v6.Local)
	}
}
