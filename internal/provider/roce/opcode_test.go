package roce

import "testing"

// TestOpcodes writes out roce.md 3: header lengths from the sums of 2.2, and
// what each opcode is.
func TestOpcodes(t *testing.T) {
	// r request, p response, s send, w write, d read response, k acknowledgement, a atomic,
	// F first, M middle, L last, O only, R RETH, A AETH, i immediate, v invalidate.
	want := map[Opcode]struct {
		length     int
		properties string
	}{
		0x00: {12, "rsF"}, 0x01: {12, "rsM"}, 0x02: {12, "rsL"}, 0x03: {16, "rsLi"},
		0x04: {12, "rsO"}, 0x05: {16, "rsOi"},
		0x06: {28, "rwFR"}, 0x07: {12, "rwM"}, 0x08: {12, "rwL"}, 0x09: {16, "rwLi"},
		0x0A: {28, "rwOR"}, 0x0B: {32, "rwORi"},
		0x0C: {28, "rOR"},
		0x0D: {16, "pdFA"}, 0x0E: {12, "pdM"}, 0x0F: {16, "pdLA"}, 0x10: {16, "pdOA"},
		0x11: {16, "pkOA"}, 0x12: {24, "pOA"},
		0x13: {40, "raO"}, 0x14: {40, "raO"},
		0x16: {16, "rsLv"}, 0x17: {16, "rsOv"},
		0x1C: {32, "rOR"}, 0x1D: {28, "raOR"},
		0x20: {12, "sF"}, 0x21: {12, "sM"}, 0x22: {12, "sL"}, 0x23: {16, "sLi"},
		0x24: {12, "sO"}, 0x25: {16, "sOi"},
		0x26: {28, "wFR"}, 0x27: {12, "wM"}, 0x28: {12, "wL"}, 0x29: {16, "wLi"},
		0x2A: {28, "wOR"}, 0x2B: {32, "wORi"},
		0x64: {20, "sO"}, 0x65: {24, "sOi"},
		0x81: {28, "O"},
		0xD1: {24, "pkOA"},
	}
	for i := range 256 {
		o := Opcode(i)
		got := ""
		for _, p := range []struct {
			is     bool
			letter string
		}{
			{o.IsRequest(), "r"}, {o.IsResponse(), "p"}, {o.IsSend(), "s"}, {o.IsWrite(), "w"},
			{o.IsReadResponse(), "d"}, {o.OnlyAcknowledges(), "k"}, {o.IsAtomic(), "a"},
			{o.IsFirst(), "F"}, {o.IsMiddle(), "M"}, {o.IsLast(), "L"}, {o.IsOnly(), "O"},
			{o.HasRETH(), "R"}, {o.HasAETH(), "A"}, {o.HasImmediate(), "i"}, {o.HasInvalidate(), "v"},
		} {
			if p.is {
				got += p.letter
			}
		}
		w, known := want[o]
		if o.Known() != known || o.HeaderLen() != w.length || got != w.properties {
			t.Errorf("%v (0x%02x): known %v, header %d, properties %q; want %v, %d, %q",
				o, i, o.Known(), o.HeaderLen(), got, known, w.length, w.properties)
		}
		if o.HeaderLen() > MaxHeaderLen {
			t.Errorf("%v is longer than MaxHeaderLen", o)
		}
		if o.IsRC() != (i < 0x20) || o.IsUC() != (i >= 0x20 && i < 0x40) {
			t.Errorf("%v: IsRC %v, IsUC %v", o, o.IsRC(), o.IsUC())
		}
	}
}

func TestOpcodeString(t *testing.T) {
	names := map[string]Opcode{}
	for _, o := range knownOpcodes() {
		if other, ok := names[o.String()]; ok {
			t.Errorf("%#x and %#x are both %q", uint8(other), uint8(o), o)
		}
		names[o.String()] = o
	}
	if got := WriteFirst.String(); got != "RC RDMA WRITE First" {
		t.Errorf("WriteFirst is %q", got)
	}
	if got := Opcode(0x15).String(); got != "opcode 0x15" {
		t.Errorf("0x15 is %q", got)
	}
}
