package impair

import "github.com/ndklab/ndklab/topology"

const (
	ethernetLen = 14         // bytes
	maxFrame    = 1<<16 + 64 // bytes: longer than any frame
)

// corrupt is the setting of which bits of a packet flip.
type corrupt struct {
	topology.Corrupt
}

// bthLen is the length in bytes of the transport header of RoCEv2. Its ICRC
// does not cover all of that (roce.md 4), but all that follows: what is flipped
// in the payload of a RoCEv2 packet is flipped behind it.
const bthLen = 12

// flip chooses the bits by a draw. A packet that has fewer in the range has all
// of them flipped.
func (c corrupt) flip(p *Packet, random uint64) (f Flip) {
	from := ethernetLen
	switch {
	case c.Anywhere:
	case p.RoCE != nil:
		from = p.Payload + bthLen
	default:
		from = max(from, p.Payload)
	}
	if from >= p.Frame {
		return Flip{}
	}
	first, n := uint32(8*from), uint64(8*(p.Frame-from))
	// Floyd's choice of a subset: each step adds one that is not in it yet.
	bits := uint64(max(1, c.Bits))
	count := 0
	for j := n - min(n, bits); j < n; j++ {
		random = mix(random + gamma)
		bit := 1 + first + uint32(below(random, j+1))
		if f.has(bit) {
			bit = 1 + first + uint32(j)
		}
		f.bits[count] = bit
		count++
	}
	return f
}

func (f *Flip) has(bit uint32) bool {
	for _, b := range f.bits {
		if b == bit {
			return true
		}
	}
	return false
}
