package mmu

import "hash/fnv"

// marks reports whether the packet that has this place is marked in a queue of so many bytes.
func (w *WRED) marks(bytes int64, key, place uint64) bool {
	switch {
	case w.Max == 0 || bytes <= w.Min:
		return false
	case bytes > w.Max:
		return true
	}
	p := w.Probability * float64(bytes-w.Min) / float64(w.Max-w.Min)
	return float64(mix(key+place*gamma)>>11)/(1<<53) < p
}

// gamma is the golden ratio, in units of 2^-64, as an odd number.
const gamma = 0x9e3779b97f4a7c15

// mix is the output function of SplitMix64 (Steele, Lea and Flood, "Fast splittable pseudorandom
// number generators", OOPSLA 2014). As in package impair a number is a function of its place.
func mix(z uint64) uint64 {
	z = (z ^ z>>30) * 0xbf58476d1ce4e5b9
	z = (z ^ z>>27) * 0x94d049bb133111eb
	return z ^ z>>31
}

// nameKey returns the key from which those of a switch's queues derive.
func nameKey(seed uint64, name string) uint64 {
	h := fnv.New64a()
	h.Write([]byte(name)) // a hash.Hash never fails
	return mix(mix(seed+gamma) ^ h.Sum64())
}
