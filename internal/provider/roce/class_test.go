package roce

import (
	"bytes"
	"testing"
)

// TestClass: the traffic class of a packet is what it says, and the rest of the packet, its ICRC
// included, the same whatever that is.
func TestClass(t *testing.T) {
	for i := range flows {
		var s Sealer
		plain := s.AppendIP(nil, &flows[i], 7, &Packet{Header: Header{Opcode: SendOnly}})
		for class := range 256 {
			b := s.AppendIP(nil, &flows[i], 7, &Packet{Header: Header{Opcode: SendOnly}, Class: uint8(class)})
			var r Received
			if err := new(Verifier).DecodeIP(b, &r); err != nil || r.Class != uint8(class) {
				t.Fatalf("%v: class %#x arrives as %#x, %v", flows[i].Local, class, r.Class, err)
			}
			marked := bytes.Clone(b)
			Mark(marked)
			if err := new(Verifier).DecodeIP(marked, &r); err != nil || r.Class != uint8(class)|CE {
				t.Fatalf("%v: class %#x, marked, arrives as %#x, %v", flows[i].Local, class, r.Class, err)
			}
			if i == 0 {
				b[1], b[10], b[11] = plain[1], plain[10], plain[11]
			} else {
				b[0], b[1] = plain[0], plain[1]
			}
			if !bytes.Equal(b, plain) {
				t.Fatalf("%v: class %#x makes\n%x, class 0\n%x", flows[i].Local, class, b, plain)
			}
		}
	}
}

// TestECN writes out the ECN fields of roce.md 14.1.
func TestECN(t *testing.T) {
	const dscp = 26 << 2
	for class, want := range map[uint8]struct{ ect, ce bool }{
		0: {}, ECT0: {ect: true}, ECT1: {ect: true}, CE: {ce: true},
		dscp: {}, dscp | 0b10: {ect: true}, dscp | 0b01: {ect: true}, dscp | 0b11: {ce: true},
	} {
		if IsECT(class) != want.ect || IsCE(class) != want.ce {
			t.Errorf("%#b: IsECT %v, IsCE %v, want %+v", class, IsECT(class), IsCE(class), want)
		}
	}
}
