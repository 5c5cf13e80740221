package impair

import (
	"encoding/binary"
	"hash/fnv"
	"math/bits"
	"math/rand/v2"
)

// A decision is a kind of random decisions, which are drawn apart from those of
// other kinds. The numbers are part of what a seed promises: they stay.
type decision uint8

const (
	ofLoss decision = iota
	ofJitter
	ofDuplicate
	ofReorder
	ofCorrupt
	ofFlip
	ofMark
	ofFault // and the fault's index added
	decisions
)

// draws are the random numbers of a direction: one for each place and kind of
// decision, and a function of those. So a number that is not drawn costs nothing, and
// none depends on which others were drawn.
//
// Those of one kind, by ascending place, are the sequence of the generator
// SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom number
// generators", OOPSLA 2014) from a key.
type draws struct {
	keys [decisions]uint64
}

// newDraws derives the keys by ChaCha8 from the seed and a hash of the name.
func newDraws(seed uint64, link string, index int) (d draws) {
	var key [32]byte
	binary.LittleEndian.PutUint64(key[0:], seed)
	binary.LittleEndian.PutUint64(key[8:], uint64(index))
	name := fnv.New128a()
	name.Write([]byte(link)) // a hash.Hash never fails
	name.Sum(key[:16])
	random := rand.NewChaCha8(key)
	for i := range d.keys {
		d.keys[i] = random.Uint64()
	}
	return d
}

// gamma is the golden ratio, in units of 2^-64, as an odd number.
const gamma = 0x9e3779b97f4a7c15

// bits returns 64 random bits.
func (d *draws) bits(of decision, place uint64) uint64 { return mix(d.keys[of] + place*gamma) }

// chance returns true with probability p.
func (d *draws) chance(of decision, place uint64, p float64) bool {
	return uniform(d.bits(of, place)) < p
}

// mix is the output function of SplitMix64.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// uniform turns random bits into a number in [0, 1).
func uniform(random uint64) float64 { return float64(random>>11) / (1 << 53) }

// below turns random bits into a number in [0, n), n > 0.
func below(random, n uint64) uint64 {
	high, _ := bits.Mul64(random, n)
	return high
}
