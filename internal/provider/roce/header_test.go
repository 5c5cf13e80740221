package roce

import (
	"errors"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

// knownOpcodes are all opcodes that this package knows.
func knownOpcodes() []Opcode {
	var known []Opcode
	for o := range 256 {
		if Opcode(o).Known() {
			known = append(known, Opcode(o))
		}
	}
	return known
}

// drawHeader draws a header with every field set that its opcode carries, and
// only those.
func drawHeader(t *rapid.T) Header {
	u24 := rapid.Uint32Range(0, PSNMask)
	u32, u64 := rapid.Uint32(), rapid.Uint64()
	h := Header{
		Opcode:    rapid.SampledFrom(knownOpcodes()).Draw(t, "opcode"),
		Solicited: rapid.Bool().Draw(t, "solicited"),
		MigReq:    rapid.Bool().Draw(t, "migreq"),
		PKey:      rapid.Uint16().Draw(t, "pkey"),
		FECN:      rapid.Bool().Draw(t, "fecn"),
		BECN:      rapid.Bool().Draw(t, "becn"),
		DestQPN:   u24.Draw(t, "destination qpn"),
		AckReq:    rapid.Bool().Draw(t, "ackreq"),
		PSN:       u24.Draw(t, "psn"),
	}
	ext := opcodes[h.Opcode].extension
	if ext&extDETH != 0 {
		h.QKey, h.SourceQPN = u32.Draw(t, "qkey"), u24.Draw(t, "source qpn")
	}
	if ext&extFETH != 0 {
		h.FlushPlacement = rapid.Uint8Range(0, 15).Draw(t, "placement")
		h.FlushSelectivity = rapid.Uint8Range(0, 3).Draw(t, "selectivity")
	}
	if ext&(extRETH|extAtomicETH) != 0 {
		h.VA, h.RKey = u64.Draw(t, "va"), u32.Draw(t, "rkey")
	}
	if ext&extRETH != 0 {
		h.DMALength = u32.Draw(t, "dma length")
	}
	if ext&extAtomicETH != 0 {
		h.SwapAdd, h.Compare = u64.Draw(t, "swap"), u64.Draw(t, "compare")
	}
	if ext&extAETH != 0 {
		h.Syndrome, h.MSN = Syndrome(rapid.Byte().Draw(t, "syndrome")), u24.Draw(t, "msn")
	}
	if ext&extAtomicAckETH != 0 {
		h.Original = u64.Draw(t, "original")
	}
	if ext&extImmDt != 0 {
		h.Immediate = u32.Draw(t, "immediate")
	}
	if ext&extIETH != 0 {
		h.InvalidateKey = u32.Draw(t, "invalidate")
	}
	return h
}

// datagram is a UDP payload with h, data, padding and four bytes for an ICRC.
func datagram(h *Header, data []byte) []byte {
	b := append(h.Append(nil, len(data)), data...)
	return append(b, make([]byte, padLen(len(data))+icrcLen)...)
}

func TestHeaderRoundTrip(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		want := drawHeader(t)
		data := rapid.SliceOfN(rapid.Byte(), 0, 64).Draw(t, "payload")
		prefix := []byte("kept")
		b := want.Append(prefix, len(data))
		if string(b[:len(prefix)]) != "kept" || len(b) != len(prefix)+want.Opcode.HeaderLen() {
			t.Fatalf("Append made %x", b)
		}
		got := Header{InvalidateKey: 1, Compare: 1, SourceQPN: 1} // must not survive
		payload, err := Decode(datagram(&want, data), &got)
		if err != nil {
			t.Fatal(err)
		}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("header (-want +got):\n%s", diff)
		}
		if string(payload) != string(data) || cap(payload) != len(payload) {
			t.Fatalf("payload %x with capacity %d, want %x", payload, cap(payload), data)
		}
	})
}

// TestAppendCuts proves that numbers over 24 bits do not spill into their
// neighbours.
func TestAppendCuts(t *testing.T) {
	h := Header{Opcode: Acknowledge, DestQPN: 0xFFFFFFFF, PSN: 0xFFFFFFFF, MSN: 0xFFFFFFFF}
	want := Header{Opcode: Acknowledge, DestQPN: 0xFFFFFF, PSN: 0xFFFFFF, MSN: 0xFFFFFF}
	var got Header
	if _, err := Decode(datagram(&h, nil), &got); err != nil || got != want {
		t.Errorf("got %+v, %v", got, err)
	}
	h = Header{Opcode: UDSendOnly, SourceQPN: 0xFFFFFFFF}
	if b := h.Append(nil, 0); b[bthLen+4] != 0 {
		t.Errorf("DETH %x: the reserved byte is not 0", b[bthLen:])
	}
}

func TestAppendUnknownOpcodePanics(t *testing.T) {
	defer func() {
		if recover() == nil {
			t.Error("no panic")
		}
	}()
	(&Header{Opcode: 0x15}).Append(nil, 0)
}

func TestDecodeErrors(t *testing.T) {
	good := datagram(&Header{Opcode: WriteOnlyImm}, []byte("12345")) // 3 bytes of padding
	edit := func(f func(b []byte) []byte) []byte { return f(append([]byte(nil), good...)) }
	for _, test := range []struct {
		name string
		b    []byte
		want error
	}{
		{"whole", good, nil},
		{"empty", nil, ErrTruncated},
		{"BTH cut", good[:bthLen+icrcLen-1], ErrTruncated},
		{"BTH alone of an opcode with more", good[:bthLen+icrcLen], ErrTruncated},
		{"extended header cut", good[:bthLen+20+icrcLen-4], ErrTruncated},
		{"headers alone, but padding announced", good[:bthLen+20+icrcLen], ErrLength},
		{"CNP cut", datagram(&Header{Opcode: CNP}, nil)[:bthLen+reservedLen-4+icrcLen], ErrTruncated},
		{"not a multiple of 4", good[:len(good)-1], ErrLength},
		{"version 1", edit(func(b []byte) []byte { b[1] |= 1; return b }), ErrVersion},
		{"reserved opcode", edit(func(b []byte) []byte { b[0] = 0x15; return b }), ErrOpcode},
		{"reserved of the unreliable connection", edit(func(b []byte) []byte { b[0] = 0x2C; return b }), ErrOpcode},
		{"reserved between SEND with Invalidate and FLUSH", edit(func(b []byte) []byte { b[0] = 0x18; return b }), ErrOpcode},
		{"reserved behind ATOMIC WRITE", edit(func(b []byte) []byte { b[0] = 0x1E; return b }), ErrOpcode},
		{"reliable datagram", edit(func(b []byte) []byte { b[0] = 0x44; return b }), ErrOpcode},
		{"UD of another kind", edit(func(b []byte) []byte { b[0] = 0x66; return b }), ErrOpcode},
		{"of the CNP's class", edit(func(b []byte) []byte { b[0] = 0x80; return b }), ErrOpcode},
		{"XRC", edit(func(b []byte) []byte { b[0] = 0xA4; return b }), ErrOpcode},
		{"a manufacturer's", edit(func(b []byte) []byte { b[0] = 0xFF; return b }), ErrOpcode},
		{"reserved bits set", edit(func(b []byte) []byte { b[4] |= 0x3F; b[8] |= 0x7F; return b }), nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			var h Header
			payload, err := Decode(test.b, &h)
			if !errors.Is(err, test.want) {
				t.Errorf("error %v, want %v", err, test.want)
			}
			if err == nil && string(payload) != "12345" {
				t.Errorf("payload %q", payload)
			}
		})
	}
}
