package roce

// FlowLabel returns the 20-bit flow label of a connection between two QPs for which
// no other was agreed on, as Linux derives it (roce.md 1).
func FlowLabel(localQPN, remoteQPN uint32) uint32 {
	v := uint64(localQPN) * uint64(remoteQPN)
	v ^= v >> 20
	v ^= v >> 40
	return uint32(v & 0xFFFFF)
}

// SourcePort returns the UDP source port, 0xC000 to 0xFFFF, of packets with a 20-bit
// flow label (roce.md 1).
func SourcePort(flowLabel uint32) uint16 {
	return uint16(flowLabel&0x3FFF^flowLabel>>14) | 0xC000
}
