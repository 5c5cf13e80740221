package impair

import (
	"net/netip"
	"testing"

	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
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

// Whatever a sender may send is identified.
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
		b := sealed(rapid.SampledFrom(flows).Draw(t, "flow"), h, rapid.SliceOfN(rapid.Byte(), 0, 300).Draw(t, "payload"))
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
		got, ok := Identify(sealed(flow, h, payload))
		if want := (Identity{Opcode: roce.UDSendOnly, CM: mad.AttributeREP, QP: 1, PSN: 7}); !ok || got != want {
			t.Errorf("a REP is taken for %+v, %v", got, ok)
		}
	}
	payload[1]++ // another management class
	if got, ok := Identify(sealed(flows[0], h, payload)); !ok || got.CM != 0 {
		t.Errorf("a datagram of another class is taken for %+v, %v", got, ok)
	}
	payload[1]--
	h.DestQPN = 2
	if got, ok := Identify(sealed(flows[0], h, payload)); !ok || got.CM != 0 {
		t.Errorf("a datagram to QP 2 is taken for %+v, %v", got, ok)
	}
}

func TestIdentifyRefusesOthers(t *testing.T) {
	ack := roce.Header{Opcode: roce.Acknowledge, Syndrome: roce.SyndromeACK, DestQPN: 5}
	for name, change := range map[string]func(b []byte) []byte{
		"another protocol": func(b []byte) []byte { b[9] = 6; return b },
		"another port":     func(b []byte) []byte { b[23]++; return b },
		"a fragment":       func(b []byte) []byte { b[6] = 0x20; return b },
		"a later fragment": func(b []byte) []byte { b[7] = 1; return b },
		"another version":  func(b []byte) []byte { b[0] = 0x55; return b },
		"a short header":   func(b []byte) []byte { b[0] = 0x44; return b },
		"no IP header":     func(b []byte) []byte { return b[:19] },
		"no UDP header":    func(b []byte) []byte { return b[:27] },
		"no BTH":           func(b []byte) []byte { return b[:39] },
		"no AETH":          func(b []byte) []byte { return b[:43] },
		"nothing":          func([]byte) []byte { return nil },
	} {
		if got, ok := Identify(change(sealed(flows[0], ack, nil))); ok || got != (Identity{}) {
			t.Errorf("%s: %+v, %v", name, got, ok)
		}
	}
	b := sealed(flows[1], ack, nil)
	b[6] = 6
	if _, ok := Identify(b); ok {
		t.Error("TCP over IPv6 was taken for RoCEv2")
	}
}

// Options of IPv4 are skipped.
func TestIdentifySkipsOptions(t *testing.T) {
	b := sealed(flows[0], roce.Header{Opcode: roce.SendOnly, DestQPN: 5, PSN: 9}, nil)
	b = append(append(append([]byte{}, b[:20]...), 1, 1, 1, 0), b[20:]...)
	b[0] = 0x46
	if got, ok := Identify(b); !ok || got.PSN != 9 {
		t.Errorf("got %+v, %v", got, ok)
	}
}

func TestIdentifyDoesNotAllocate(t *testing.T) {
	var rep mad.REP
	b := sealed(flows[0], roce.Header{Opcode: roce.UDSendOnly, DestQPN: mad.QPN}, rep.Append(nil))
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
		got, ok := Identify(b)
		if !ok && got != (Identity{}) {
			t.Errorf("not identified, but %+v", got)
		}
		var v roce.Verifier
		var r roce.Received
		switch v.DecodeIP(b, &r) {
		case nil, roce.ErrICRC:
			h := &r.Header
			if !ok || got.Opcode != h.Opcode || got.QP != h.DestQPN || got.PSN != h.PSN || got.Syndrome != h.Syndrome {
				t.Errorf("%+v is taken for %+v, %v", h, got, ok)
			}
		}
	})
}
