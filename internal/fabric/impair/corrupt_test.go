package impair

import (
	"math/bits"
	"testing"

	"github.com/ndklab/ndklab/topology"
)

// flipped is which bits of a packet of n zero bytes are flipped.
func flipped(f Flip, n int) []byte {
	b := make([]byte, n)
	f.Apply(b)
	return b
}

func TestCorruptionHitsItsRange(t *testing.T) {
	for _, c := range []struct {
		name        string
		corrupt     topology.Corrupt
		packet      Packet
		first, last int // bytes that may be hit
		want        int // bits
	}{
		{"payload", topology.Corrupt{}, Packet{Frame: 100, Payload: 42}, 42, 99, 1},
		{"payload of RoCEv2", topology.Corrupt{Bits: 2}, Packet{Frame: 100, Payload: 42, RoCE: &Identity{}}, 54, 99, 2},
		{"anywhere", topology.Corrupt{Anywhere: true, Bits: MaxFlips}, Packet{Frame: 100, Payload: 42, RoCE: &Identity{}}, 14, 99, MaxFlips},
		{"not IP", topology.Corrupt{}, Packet{Frame: 60, Payload: 14}, 14, 59, 1},
		{"one byte", topology.Corrupt{Bits: MaxFlips}, Packet{Frame: 43, Payload: 42}, 42, 42, 8},
		{"no payload", topology.Corrupt{}, Packet{Frame: 42, Payload: 42}, 0, -1, 0},
		{"nonsense", topology.Corrupt{}, Packet{Frame: 42, Payload: 4200}, 0, -1, 0},
	} {
		c.corrupt.Probability = 1
		d := direction(8, "link", 0, topology.Impairment{Corrupt: c.corrupt})
		hits := make([]int, 8*c.packet.Frame)
		const n = 20_000
		for range n {
			count := 0
			v := d.Packet(&c.packet, 0)
			for i, b := range flipped(v.Flip, c.packet.Frame) {
				if b != 0 && (i < c.first || i > c.last) {
					t.Fatalf("%s: byte %d was hit", c.name, i)
				}
				count += bits.OnesCount8(b)
				for bit := range 8 {
					hits[8*i+bit] += int(b >> bit & 1)
				}
			}
			if count != c.want || v.Flip.Any() != (c.want > 0) {
				t.Fatalf("%s: %d bits flipped, want %d", c.name, count, c.want)
			}
		}
		// Each bit is as likely. The 99.9 % interval of all of several hundred is
		// that of 5 standard deviations.
		if c.want == 0 || c.last == c.first {
			continue
		}
		mean := float64(n*c.want) / float64(8*(c.last-c.first+1))
		for i, k := range hits[8*c.first:] {
			if off := float64(k) - mean; off*off > 25*mean {
				t.Errorf("%s: bit %d was hit %d times, want about %.0f", c.name, 8*c.first+i, k, mean)
			}
		}
	}
}

func TestCorruptionIsAsOftenAsAsked(t *testing.T) {
	for _, p := range []float64{0, 0.001, 0.1, 1} {
		d := direction(5, "link", 0, topology.Impairment{Corrupt: topology.Corrupt{Probability: p}})
		hits := 0
		for range million {
			if v := d.Packet(packet(1000), 0); v.Flip.Any() {
				hits++
			}
		}
		within(t, "corrupted", hits, million, p)
	}
}

// Bit 0 is the highest of the first byte, and bits behind the end are left out.
func TestFlipApplies(t *testing.T) {
	f := Flip{bits: [MaxFlips]uint32{1, 16, 24}}
	if got := flipped(f, 2); got[0] != 0x80 || got[1] != 0x01 {
		t.Errorf("flipped %x", got)
	}
}
