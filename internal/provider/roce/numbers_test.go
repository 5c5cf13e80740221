package roce

import (
	"testing"
	"time"

	"pgregory.net/rapid"
)

func TestPSN(t *testing.T) {
	for _, test := range []struct {
		a    uint32
		n    int
		want uint32
	}{
		{0, 1, 1}, {0xFFFFFF, 1, 0}, {0, -1, 0xFFFFFF}, {5, -7, 0xFFFFFE}, {0x123456, 0, 0x123456}, {1, 1 << 24, 1},
	} {
		if got := PSNAdd(test.a, test.n); got != test.want {
			t.Errorf("PSNAdd(%#x, %d) = %#x, want %#x", test.a, test.n, got, test.want)
		}
	}
	for _, test := range []struct {
		a, b uint32
		want int
	}{
		{1, 0, 1}, {0, 1, -1}, {0, 0xFFFFFF, 1}, {0xFFFFFF, 0, -1}, {7, 7, 0},
		{0x7FFFFF, 0, 1<<23 - 1}, {0x800000, 0, -1 << 23}, {0, 0x800000, -1 << 23},
		{0xAA000001, 0, 1},
	} {
		if got := PSNDiff(test.a, test.b); got != test.want {
			t.Errorf("PSNDiff(%#x, %#x) = %d, want %d", test.a, test.b, got, test.want)
		}
	}
	rapid.Check(t, func(t *rapid.T) {
		a := rapid.Uint32Range(0, PSNMask).Draw(t, "a")
		n := rapid.IntRange(-1<<23, 1<<23-1).Draw(t, "n")
		if got := PSNDiff(PSNAdd(a, n), a); got != n {
			t.Fatalf("%#x plus %d is %d ahead", a, n, got)
		}
	})
}

func TestRNRTimer(t *testing.T) {
	ms := [32]float64{655.36, 0.01, 0.02, 0.03, 0.04, 0.06, 0.08, 0.12, 0.16, 0.24, 0.32, 0.48, 0.64, 0.96, 1.28, 1.92,
		2.56, 3.84, 5.12, 7.68, 10.24, 15.36, 20.48, 30.72, 40.96, 61.44, 81.92, 122.88, 163.84, 245.76, 327.68, 491.52}
	for code, want := range ms {
		d := time.Duration(want*100+0.5) * 10 * time.Microsecond
		if got := RNRTimer(uint8(code)); got != d {
			t.Errorf("code %d: %v, want %v", code, got, d)
		}
		if got := RNRCode(d); got != uint8(code) {
			t.Errorf("%v: code %d, want %d", d, got, code)
		}
		// One nanosecond more takes the next longer time: code 0 is the longest.
		next := uint8(code+1) % 32
		if code == 0 {
			next = 0
		}
		if got := RNRCode(d + 1); got != next {
			t.Errorf("%v: code %d, want %d", d+1, got, next)
		}
	}
	for d, want := range map[time.Duration]uint8{-time.Second: 1, 0: 1, time.Nanosecond: 1, time.Hour: 0} {
		if got := RNRCode(d); got != want {
			t.Errorf("%v: code %d, want %d", d, got, want)
		}
	}
}

func TestSyndrome(t *testing.T) {
	for _, test := range []struct {
		s             Syndrome
		ack, rnr, nak bool
		name          string
	}{
		{SyndromeACK, true, false, false, "ACK"},
		{0x00, true, false, false, "ACK"},
		{SyndromeRNR + 26, false, true, false, "RNR NAK 81.92ms"},
		{SyndromeRNR, false, true, false, "RNR NAK 655.36ms"},
		{0x40, false, false, false, "syndrome 0x40"},
		{SyndromePSNSequence, false, false, true, "NAK PSN sequence error"},
		{SyndromeInvalidRequest, false, false, true, "NAK invalid request"},
		{SyndromeRemoteAccess, false, false, true, "NAK remote access error"},
		{SyndromeRemoteOperation, false, false, true, "NAK remote operational error"},
		{SyndromeInvalidRDRequest, false, false, true, "NAK invalid RD request"},
		{0x65, false, false, true, "syndrome 0x65"},
		{0x9F, false, false, false, "syndrome 0x9f"},
	} {
		if s := test.s; s.IsACK() != test.ack || s.IsRNR() != test.rnr || s.IsNAK() != test.nak || s.String() != test.name {
			t.Errorf("0x%02x: ACK %v, RNR %v, NAK %v, %q; want %+v", uint8(s), s.IsACK(), s.IsRNR(), s.IsNAK(), s, test)
		}
	}
}

func TestMTU(t *testing.T) {
	for code, mtu := range []int{0, 256, 512, 1024, 2048, 4096, 0, 0} {
		if got := MTUOfCode(uint8(code)); got != mtu {
			t.Errorf("code %d: MTU %d, want %d", code, got, mtu)
		}
		if mtu != 0 && MTUCode(mtu) != uint8(code) {
			t.Errorf("MTU %d: code %d, want %d", mtu, MTUCode(mtu), code)
		}
	}
	for _, mtu := range []int{-1, 0, 128, 255, 257, 1500, 8192} {
		if code := MTUCode(mtu); code != 0 {
			t.Errorf("MTU %d: code %d, want 0", mtu, code)
		}
	}
	for link, mtu := range map[int]int{0: 0, 351: 0, 352: 256, 1500: 1024, 2143: 1024, 2144: 2048, 4191: 2048, 4192: 4096, 4200: 4096, 9000: 4096} {
		if got := PathMTU(link); got != mtu {
			t.Errorf("link MTU %d: %d, want %d", link, got, mtu)
		}
	}
}

func TestSourcePort(t *testing.T) {
	// The REQ of roce.md 18: rdma_cm ports 0x9C40 and 7174.
	if got := SourcePort((0x9C40*31 + 7174) & 0xFFFFF); got != 0xC7CA {
		t.Errorf("flow label 0x307C6: source port %#x, want 0xC7CA", got)
	}
	if got := SourcePort(0xFFFFF); got != 0xFFC0 {
		t.Errorf("flow label 0xFFFFF: source port %#x, want 0xFFC0", got)
	}
	// 0x123456 * 0x654321 = 0x7336BF94116, folded: 0x94116 ^ 0x336BF ^ 0x7.
	if got := FlowLabel(0x123456, 0x654321); got != 0xA77AE {
		t.Errorf("flow label %#x, want 0xA77AE", got)
	}
}
