package roce

// PSNMask cuts a number to the 24 bits of a PSN (or MSN, or QPN).
const PSNMask = mask24

// PSNAdd returns the PSN n packets after a, or before it if n is negative.
func PSNAdd(a uint32, n int) uint32 { return (a + uint32(n)) & PSNMask }

// PSNDiff returns how many packets a is ahead of b: negative if it is behind, and
// -2^23 for the PSN opposite (roce.md 5). Bits above the 24th are ignored.
func PSNDiff(a, b uint32) int { return int(int32((a-b)<<8) >> 8) }
