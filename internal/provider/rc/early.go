package rc

import "github.com/ndklab/ndklab/internal/provider/roce"

// Between two of our own adapters, which agree on it when they connect
// (Connection.Selective), a packet that arrives before one that is missing is
// kept instead of dropped, and only what is missing is sent again. Nothing is
// executed or placed before its turn: a kept packet is a copy, handled when the
// gap before it has closed as if it arrived then. So whatever holds of the order
// in which memory changes, or of errors, holds with loss as without.
//
// Two packets inform the requester:
//
//	ACK                     as ever: everything up to a PSN has been executed
//	SelectiveAcknowledge    that, and what is kept beyond
//
// The second is a packet of our own. Its PSN and syndrome are those of a NAK of
// the missing packet. Then it names the newest of the kept packets that it is
// about and says of each of the 64 before that whether it is there. One goes
// out when a packet arrives that opens a gap or asks for an acknowledgement, at
// the latest every ackReqInterval packets, so each arrival is told of some four times,
// and a report that is lost costs next to nothing.
//
// Plain NAKs would not do: "one per gap" says nothing of the second gap until
// the first is closed, and the 24 bits of their MSN do not hold what is needed.
// A payload behind an Acknowledge would be taken for an ICRC by whoever
// reads along. The opcodes from 0xC0 are the manufacturer's by the IBTA, and
// readers of packets take them for what they are: somebody's own.
//
// The requester draws the conclusions (scoreboard.go).

// earlyBytes bounds what either half of a QP keeps, in bytes of payload. At 10 Gb/s
// it is 27 ms: some round trips on a long path, so that a packet may be lost several
// times before the requester has to wait for it.
//
// A peer of ours keeps to its window, which is far less on most paths. One that
// means harm can have all of it taken, for each QP that a consumer connects to it,
// until the QP ends. EarlyMemory bounds the sum over QPs.
const earlyBytes = 32 << 20

// An EarlyMemory counts the bytes that all QPs of an adapter together take to keep early
// packets in, and bounds them. The owner of QPs that share one makes it safe for as many
// callers as there are calls of QPs at once.
type EarlyMemory interface {
	// Take reserves bytes for the caller; false if fewer are left. Give returns them.
	Take(bytes int) bool
	Give(bytes int)
	// HalfFree reports whether at least half is left. Only then does a QP that keeps
	// nothing any more hold on to its memory, to use it again: of 1,000 that are idle
	// then, the others still have half.
	HalfFree() bool
}

const (
	earlyPacketBytes = 192 // of an earlyPacket, without its payload
	earlySlotBytes   = 8   // of a place in an earlyStore's ring
)

// maxEarlyDistance returns how far beyond the packet that is missing one may be to be kept, in
// packets. Both ends go by it.
func maxEarlyDistance(mtu int) int64 { return int64(earlyBytes / mtu) }

// readsOnWire returns how many READs on the wire may be outstanding where n are agreed
// on. One that is answered but for a packet stays outstanding, and there have to
// be enough behind it for the round trips until that is here. Of READs that are
// posted no more than n are in progress (NDK-RL-07): most are split.
func (c *Connection) readsOnWire(n int) int {
	if c.Selective {
		return 4 * n
	}
	return n
}

// An earlyPacket is a copy of a packet.
type earlyPacket struct {
	sequence int64
	header   roce.Header
	payload  []byte
}

// An earlyStore keeps early packets by sequence number. It has no memory before
// the first, and reuses what it has.
type earlyStore struct {
	memory EarlyMemory    // nil: no bound but maxEarlyDistance
	taken  int            // bytes of memory
	ring   []*earlyPacket // a packet is in slot sequence modulo the length, a power of two
	count  int
	base   int64 // no packet before it is kept
	end    int64 // no packet from it on was ever kept
	idle   []*earlyPacket
}

// at returns the packet kept with the given sequence number; nil if it is not there.
func (s *earlyStore) at(sequence int64) *earlyPacket {
	if s.count == 0 {
		return nil
	}
	p := s.ring[sequence&int64(len(s.ring)-1)]
	if p == nil || p.sequence != sequence {
		return nil
	}
	return p
}

// keep stores a copy of the packet with sequence number at, as long as expected is
// missing; false if there is no memory for it. The caller has made sure that it is
// within maxEarlyDistance and not there yet.
func (s *earlyStore) keep(expected, at int64, h *roce.Header, payload []byte) bool {
	if s.count == 0 {
		s.base = expected
	}
	p := s.takePacket(at-s.base+1, len(payload))
	if p == nil {
		s.clearIfEmpty()
		return false
	}
	p.sequence, p.header = at, *h
	p.payload = append(p.payload[:0], payload...)
	s.ring[at&int64(len(s.ring)-1)] = p
	s.count++
	s.end = max(s.end, at+1)
	return true
}

// takePacket returns a packet with room for so many bytes of payload, where the ring has so many
// slots; nil if there is no memory for that.
func (s *earlyStore) takePacket(slots int64, payload int) *earlyPacket {
	if slots > int64(len(s.ring)) && !s.grow(slots) {
		return nil
	}
	last := len(s.idle) - 1
	if last < 0 {
		if !s.take(earlyPacketBytes + payload) {
			return nil
		}
		return &earlyPacket{payload: make([]byte, 0, payload)}
	}
	p := s.idle[last]
	if lacking := payload - cap(p.payload); lacking > 0 {
		if !s.take(lacking) {
			return nil
		}
		p.payload = make([]byte, 0, payload)
	}
	s.idle = s.idle[:last]
	return p
}

func (s *earlyStore) grow(slots int64) bool {
	size := 64
	for int64(size) < slots {
		size *= 2
	}
	if !s.take((size - len(s.ring)) * earlySlotBytes) {
		return false
	}
	ring := make([]*earlyPacket, size)
	for _, p := range s.ring {
		if p != nil {
			ring[p.sequence&int64(size-1)] = p
		}
	}
	s.ring = ring
	return true
}

func (s *earlyStore) take(bytes int) bool {
	if s.memory != nil && !s.memory.Take(bytes) {
		return false
	}
	s.taken += bytes
	return true
}

// next removes the packet with sequence number expected, and all before it, and
// returns it; nil if it is not there. It is the caller's until given back.
func (s *earlyStore) next(expected int64) *earlyPacket {
	for ; s.count > 0 && s.base < expected; s.base++ {
		if p := s.at(s.base); p != nil {
			s.remove(p)
			s.recycle(p)
		}
	}
	p := s.at(expected)
	if p != nil {
		s.remove(p)
	}
	return p
}

func (s *earlyStore) remove(p *earlyPacket) {
	s.ring[p.sequence&int64(len(s.ring)-1)] = nil
	s.count--
}

func (s *earlyStore) recycle(p *earlyPacket) {
	s.idle = append(s.idle, p)
	s.clearIfEmpty()
}

// clearIfEmpty lets the memory go when nothing is kept and others may need it.
func (s *earlyStore) clearIfEmpty() {
	if s.count == 0 && s.memory != nil && !s.memory.HalfFree() {
		s.clear()
	}
}

// unneeded reports whether more has arrived in order since than was ever kept: then
// the memory may go.
func (s *earlyStore) unneeded(expected int64) bool {
	return s.count == 0 && expected-s.end > int64(len(s.ring))
}

// clear forgets all that is kept.
func (s *earlyStore) clear() {
	if s.taken > 0 && s.memory != nil {
		s.memory.Give(s.taken)
	}
	*s = earlyStore{memory: s.memory}
}

// keepEarly takes a packet ahead of the one that is expected.
func (r *responder) keepEarly(h *roce.Header, at int64, payload []byte) {
	switch {
	case !LengthFits(h, len(payload), r.q.connection.MTU):
		r.q.counters.BadLengths++
		return // it is refused when it comes in its turn
	case at-r.expected >= maxEarlyDistance(r.q.connection.MTU):
		r.q.counters.EarlyDropped++
		return // the requester will find out
	}
	if r.early == nil {
		r.early = &earlyStore{memory: r.q.config.Early}
	}
	gap := at > max(r.early.end, r.expected)
	known := r.early.at(at) != nil
	if !known && !r.early.keep(r.expected, at, h, payload) {
		r.q.counters.EarlyDropped++
		return // likewise
	}
	if gap || known || h.AckReq {
		r.replies.report(at)
	}
}

// executeAndResume executes the packet that is expected, and the early packets
// that follow it.
func (r *responder) executeAndResume(h *roce.Header, payload []byte) {
	r.execute(h, payload)
	early, from := r.early, r.expected
	for r.q.state == Ready {
		p := early.next(r.expected)
		if p == nil {
			break
		}
		// A receive may be lacking: then the packet is dropped, as it would be
		// without anything missing before it.
		r.execute(&p.header, p.payload)
		r.q.config.settle()
		early.recycle(p)
	}
	switch {
	case r.q.state != Ready:
	case early.count > 0:
		r.replies.report(early.end - 1)
	case r.expected != from:
		r.replies.acknowledge()
	case early.unneeded(r.expected):
		early.clear()
		r.early = nil
	}
}
