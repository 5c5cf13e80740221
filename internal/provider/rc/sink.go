package rc

import (
	"encoding/binary"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A sink places the responses to the oldest request in the request's SGL.
type sink struct {
	position Position
	of       int64    // first sequence number of the request
	ranges   [][]byte // scratch
}

// place copies data to the SGL of w at offset; false if its memory refuses. The last data of w is in place when it
// returns.
func (s *sink) place(q *sendQueue, w *request, offset int64, data []byte, last bool) bool {
	if s.of != w.first {
		s.position, s.of = Position{}, w.first
	}
	var ok bool
	s.ranges, ok = s.position.Resolve(s.ranges[:0], q.config.Memory, q.sglOf(w), offset, len(data), ReadSink)
	return ok && q.config.Scatter(s.ranges, data, last)
}

// placeData places the data of packet at of w, a READ, which has the right length. It returns the status with which that
// fails. selective is Connection.Selective.
func (s *sink) placeData(q *sendQueue, w *request, h *roce.Header, at int64, payload []byte, selective bool) Status {
	beginsChunk, endsChunk, last := at == q.chunkStart(w, at), at+1 == q.chunkEnd(w, at), at+1 == w.end
	switch {
	case h.Opcode.Ends() != endsChunk && (endsChunk || !selective), beginsChunk && !h.Opcode.Starts():
		return BadResponse
	case !s.place(q, w, q.bytesBefore(w, at), payload, last):
		return LocalProtection
	case w.flags.has(invalidates) && last && w.pieces > 0 && !q.config.Memory.InvalidateLocal(q.sglOf(w)[0].Token):
		return LocalProtection
	}
	return Success
}

// placeOriginal places the answer to w, an atomic: what the memory was before. It returns the status with which that
// fails.
func (s *sink) placeOriginal(q *sendQueue, w *request, h *roce.Header) Status {
	if w.op == OpAtomicWrite {
		if h.Opcode != roce.ReadResponseOnly {
			return BadResponse
		}
		return Success
	}
	if h.Opcode != roce.AtomicAcknowledge {
		return BadResponse
	}
	var original [atomicBytes]byte
	binary.NativeEndian.PutUint64(original[:], h.Original)
	if !s.place(q, w, 0, original[:], true) {
		return LocalProtection
	}
	return Success
}
