package roce

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestReservedBits: what is reserved is sent as 0 and ignored on arrival
// (roce.md 2.1, 2.2), and so is the content of the padding (2.5).
func TestReservedBits(t *testing.T) {
	for _, test := range []struct {
		op   Opcode
		bits map[int]byte // reserved bits by offset
	}{
		{SendOnly, map[int]byte{4: 0x3F, 8: 0x7F}},
		{Acknowledge, map[int]byte{4: 0x3F, 8: 0x7F}},
		{UDSendOnly, map[int]byte{4: 0x3F, 8: 0x7F, bthLen + 4: 0xFF}},
		{CNP, map[int]byte{4: 0x3F, 8: 0x7F, bthLen: 0xFF, bthLen + reservedLen - 1: 0xFF}},
	} {
		h := Header{Opcode: test.op, PKey: DefaultPKey, DestQPN: 5, PSN: 7}
		b := append(h.Append(nil, 1), 'x', 0, 0, 0, 1, 2, 3, 4)
		var want, got Header
		if _, err := Decode(b, &want); err != nil {
			t.Fatal(err)
		}
		for at, bits := range test.bits {
			if b[at]&bits != 0 {
				t.Errorf("%v: byte %d is sent as %#x", test.op, at, b[at])
			}
			b[at] |= bits
		}
		b[len(b)-5] = 0xEE // the last byte of the padding
		payload, err := Decode(b, &got)
		if err != nil {
			t.Fatal(err)
		}
		if d := cmp.Diff(want, got); d != "" || string(payload) != "x" {
			t.Errorf("%v: payload %q, header with the bits (-without, +with):\n%s", test.op, payload, d)
		}
	}
}
