package rc

// A segmentation says how requests are split into packets: packet i carries the bytes from
// i x MTU. It depends on nothing that changes while the QP is connected.
type segmentation struct {
	mtu   int32 // payload bytes per packet
	chunk int8  // the most that one READ on the wire asks for, in packets
	even  bool  // see Connection.evenPackets
}

// maxChunk is the most that one READ on the wire asks for, in packets.
const maxChunk = 32

// packets returns the number of packets of a message: one even if it is empty.
func packets(length int64, mtu int) int64 {
	return max(1, (length+int64(mtu)-1)/int64(mtu))
}

// bytesBefore returns the bytes of w that the packets before sequence number s carry.
func (g *segmentation) bytesBefore(w *request, s int64) int64 {
	return min(w.length, (s-w.first)*int64(g.mtu))
}

// payloadAt returns the bytes of payload that packet s of w carries.
func (g *segmentation) payloadAt(w *request, s int64) int64 {
	return g.bytesBefore(w, s+1) - g.bytesBefore(w, s)
}

// cost returns what the packets of w in [from, to) count in the window: those of a
// request to write or send, or those that answer a READ.
func (g *segmentation) cost(w *request, from, to int64) int64 {
	return g.bytesBefore(w, to) - g.bytesBefore(w, from) + (to-from)*PacketOverhead
}

// chunkStart and chunkEnd return the bounds of the READ on the wire that sequence number s
// is part of. A chunk that is asked for again, whole or in part, ends where it
// did (roce.md 6.5).
func (g *segmentation) chunkStart(w *request, s int64) int64 { return s - (s-w.first)%int64(g.chunk) }

func (g *segmentation) chunkEnd(w *request, s int64) int64 {
	return min(w.end, g.chunkStart(w, s)+int64(g.chunk))
}
