package roce

import "math/bits"

// The smallest and largest MTU: payload bytes per packet. All are powers of two.
const (
	MinMTU = 256
	MaxMTU = 4096
)

// MTUCode returns the code of an MTU of 256, 512, 1024, 2048 or 4096 bytes, and 0 of
// any other number (roce.md 2.4).
func MTUCode(mtu int) uint8 {
	if mtu < MinMTU || mtu > MaxMTU || mtu&(mtu-1) != 0 {
		return 0
	}
	return uint8(bits.TrailingZeros(uint(mtu))) - 7
}

// MTUOfCode returns the MTU in bytes that code 1 to 5 stands for, and 0 for others.
func MTUOfCode(code uint8) int {
	if code < 1 || code > 5 {
		return 0
	}
	return 1 << (code + 7)
}

// PathMTU returns the largest MTU that fits an interface with an MTU of linkMTU bytes
// as rdma_cm reckons it, with 96 bytes set aside for headers (roce.md 5), or 0 if
// none fits.
func PathMTU(linkMTU int) int {
	for mtu := MaxMTU; mtu >= MinMTU; mtu /= 2 {
		if mtu <= linkMTU-96 {
			return mtu
		}
	}
	return 0
}
