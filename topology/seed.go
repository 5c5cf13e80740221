package topology

import (
	"encoding/binary"
	"hash/fnv"
)

// SeedOf derives the seed of one part of the lab from the lab's, so that what is random
// there depends on no other part.
func (t *Topology) SeedOf(part string) uint64 {
	h := fnv.New64a()
	var seed [8]byte
	binary.LittleEndian.PutUint64(seed[:], t.Seed)
	h.Write(seed[:]) // a hash.Hash never fails
	h.Write([]byte(part))
	return h.Sum64()
}
