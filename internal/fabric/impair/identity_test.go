package impair

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/roce/mad"
	"pgregory.net/rapid"
)

var flows = []roce.Flow{
	{Local: netip.MustParseAddr("10.0.0.1"), Remote: netip.MustParseAddr("10.0.0.2"), SourcePort: 0xc000},
	{Local: netip.MustParseAddr("fd00::1"), Remote: netip.MustParseAddr("fd00::2"), SourcePort: 0xffff},
}

// sealed is an IP packet.
func sealed(flow roce.Flow, h roce.Header, payload []byte) []byte {
	var s roce.Sealer
	return s.AppendIP(nil, &flow, 1, &roce.Packet{Header: h, Payload: [][]byte{payload}})
}

// inner returns the bytes behind the UDP header of a packet of sealed.
func inner(ip []byte) []byte {
	const ipv4, ipv6, udp = 20, 40, 8
	if ip[0]>>4 == 4 {
		return ip[ipv4+udp:]
	}
	return ip[ipv6+udp:]
}

// All packets that a sender may send are identified.
func TestIdentifyReadsWhatIsSent(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		h := roce.Header{
			Opcode:  rapid.Custom(func(t *rapid.T) roce.Opcode { return roce.Opcode(rapid.Byte().Draw(t, "opcode")) }).Filter(roce.Opcode.Known).Draw(t, "known"),
			DestQPN: rapid.Uint32Max(roce.PSNMask).Draw(t, "qp"), PSN: rapid.Uint32Max(roce.PSNMask).Draw(t, "psn"),
			AckReq: rapid.Bool().Draw(t, "ackreq"), FECN: rapid.Bool().Draw(t, "fecn"),
			Syndrome: roce.Syndrome(rapid.Byte().Draw(t, "syndrome")), MSN: rapid.Uint32Max(roce.PSNMask).Draw(t, "msn"),
		}
		want := Identity{Opcode: h.Opcode, QP: h.DestQPN, PSN: h.PSN}
		if h.Opcode.HasAETH() {
			want.Syndrome = h.Syndrome
		}
		b := inner(sealed(rapid.SampledFrom(flows).Draw(t, "flow"), h, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload")))
		if got, ok := Identify(b); !ok || got != want {
			t.Fatalf("%+v is taken for %+v, %v", h, got, ok)
		}
	})
}

func TestIdentifyFindsCM(t *testing.T) {
	var rep mad.REP
	payload := rep.Append(nil)
	h := roce.Header{Opcode: roce.UDSendOnly, DestQPN: mad.QPN, QKey: mad.QKey, SourceQPN: mad.QPN, PSN: 7}
	for _, flow := range flows {
		got, ok := Identify(inner(sealed(flow, h, payload)))
		if want := (Identity{Opcode: roce.UDSendOnly, CM: mad.AttributeREP, QP: 1, PSN: 7}); !ok || got != want {
			t.Errorf("a REP is taken for %+v, %v", got, ok)
		}
	}
	payload[1]++ // another management class
	if got, ok := Identify(inner(sealed(flows[0], h, payload))); !ok || got.CM != 0 {
		t.Errorf("a datagram of another class is taken for %+v, %v", got, ok)
	}
	payload[1]--
	h.DestQPN = 2
	if got, ok := Identify(inner(sealed(flows[0], h, payload))); !ok || got.CM != 0 {
		t.Errorf("a datagram to QP 2 is taken for %+v, %v", got, ok)
	}
}

func TestIdentifyRefusesOthers(t *testing.T) {
	ack := inner(sealed(flows[0], roce.Header{Opcode: roce.Acknowledge, Syndrome: roce.SyndromeACK, DestQPN: 5}, nil))
	for name, b := range map[string][]byte{"no BTH": ack[:11], "no AETH": ack[:15], "nothing": nil} {
		if got, ok := Identify(b); ok || got != (Identity{}) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
}

func TestIdentifyDoesNotAllocate(t *testing.T) {
	var rep mad.REP
	b := inner(sealed(flows[0], roce.Header{Opcode: roce.UDSendOnly, DestQPN: mad.QPN}, rep.Append(nil)))
	if n := testing.AllocsPerRun(100, func() { Identify(b) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

// No bytes break Identify, and it reads what a receiver that accepts them does.
func FuzzIdentify(f *testing.F) {
	var rep mad.REP
	for _, flow := range flows {
		f.Add(sealed(flow, roce.Header{Opcode: roce.Acknowledge, Syndrome: 0x61, DestQPN: 5, PSN: 6}, nil))
		f.Add(sealed(flow, roce.Header{Opcode: roce.UDSendOnly, DestQPN: mad.QPN}, rep.Append(nil)))
	}
	f.Fuzz(func(t *testing.T, b []byte) {
		if got, ok := Identify(b); !ok && got != (Identity{}) {
			t.Errorf("not identified, but %+v", got)
		}
		var v roce.Verifier
		var r roce.Received
		switch v.DecodeIP(b, &r) {
		case nil, roce.ErrICRC:
			if b[0]>>4 == 4 && b[0]&15 != 5 {
				return // it has IP options
			}
			got, ok := Identify(inner(b))
			h := &r.Header
			if !ok || got.Opcode != h.Opcode || got.QP != h.DestQPN || got.PSN != h.PSN || got.Syndrome != h.Syndrome {
				t.Errorf("%+v is taken for %+v, %v", h, got, ok)
			}
		}
	})
}
