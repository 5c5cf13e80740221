package trial

import (
	"fmt"
	"hash/maphash"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// A Stream is the request packets from one end of a reliable connection to the other, as they are seen on the wire.
// Sequence numbers are kept extended: the low 24 bits are the PSN.
type Stream struct {
	trial *Trial
	from  fmt.Stringer     // the end that sends
	begun bool             // next and frontier are known
	next  int64            // behind the newest sent
	said  map[int64]uint64 // hashes of what was sent, but for READ requests
	// arrived are the numbers behind frontier that have arrived; everything before frontier has.
	frontier int64
	arrived  map[int64]bool
}

var hashSeed = maphash.MakeSeed()

// NewStream makes the stream of an end. It begins with the first packet that is seen, or by Begin.
func (t *Trial) NewStream(from fmt.Stringer) *Stream {
	return &Stream{trial: t, from: from, said: map[int64]uint64{}, arrived: map[int64]bool{}}
}

// Begin says which sequence number the first packet has.
func (s *Stream) Begin(first int64) *Stream {
	s.begun, s.next, s.frontier = true, first, first
	return s
}

// extend returns the sequence number with a PSN that is nearest to near.
func extend(psn uint32, near int64) int64 { return near + int64(roce.PSNDiff(psn, uint32(near))) }

// numbers returns how many sequence numbers a request packet has on a connection with a path MTU.
func numbers(h *roce.Header, mtu int64) int64 {
	if h.Opcode != roce.ReadRequest {
		return 1
	}
	return max(1, (int64(h.DMALength)+mtu-1)/mtu)
}

// A Transmission says what a packet on the wire is.
type Transmission int

const (
	Probe Transmission = iota // it asks how far the peer is, with the number of another packet (package rc)
	First                     // it has not been sent before
	Retransmission
)

// Sent checks a request packet that its end sends.
func (s *Stream) Sent(h *roce.Header, payload [][]byte, mtu int64) Transmission {
	mayProbe := h.Opcode == roce.WriteOnly && h.DMALength == 0 && h.RKey == 0
	if !s.begun {
		first := int64(h.PSN)
		if mayProbe { // of an end that has sent nothing: it has the number before the first
			first++
		}
		s.Begin(first)
	}
	if mayProbe && h.PSN != uint32(s.next)&roce.PSNMask {
		return Probe
	}
	at := extend(h.PSN, s.next)
	if at > s.next {
		s.trial.Fail("sequence numbers without gaps", "%v sends %#x after %#x", s.from, h.PSN, (s.next-1)&roce.PSNMask)
	}
	if h.Opcode != roce.ReadRequest {
		sum := hash(h, payload)
		if before, ok := s.said[at]; ok && before != sum {
			s.trial.Fail("what is sent again is as before", "%v sends %#x otherwise than it did", s.from, h.PSN)
		}
		s.said[at] = sum
	}
	kind := First
	if at < s.next {
		s.trial.Coverage.Count("packets retransmitted")
		kind = Retransmission
	}
	s.next = max(s.next, at+numbers(h, mtu))
	return kind
}

func hash(h *roce.Header, payload [][]byte) uint64 {
	var sum maphash.Hash
	sum.SetSeed(hashSeed)
	sum.WriteByte(byte(h.Opcode))
	maphash.WriteComparable(&sum, [...]uint64{h.VA, uint64(h.RKey), uint64(h.DMALength), uint64(h.Immediate), uint64(h.InvalidateKey), h.SwapAdd, h.Compare})
	for _, piece := range payload {
		sum.Write(piece)
	}
	return sum.Sum64()
}

// Arrived takes note of a request packet that arrives at the peer.
func (s *Stream) Arrived(h *roce.Header, mtu int64) {
	if !s.begun || !h.Opcode.IsRequest() {
		return
	}
	at := extend(h.PSN, s.frontier)
	for i := range numbers(h, mtu) {
		if at+i >= s.frontier {
			s.arrived[at+i] = true
		}
	}
	for s.arrived[s.frontier] {
		delete(s.arrived, s.frontier)
		s.frontier++
	}
}

// Acknowledged checks an acknowledgement that the peer sends.
func (s *Stream) Acknowledged(by fmt.Stringer, h *roce.Header) {
	if s.begun && extend(h.PSN, s.frontier) >= s.frontier {
		s.trial.Fail("nothing is acknowledged that has not arrived", "%v acknowledges %#x of %v, of which all before %#x has arrived",
			by, h.PSN, s.from, s.frontier&roce.PSNMask)
	}
}

// CheckArrived fails the trial unless everything that was sent has arrived.
func (s *Stream) CheckArrived() {
	if s.next != s.frontier {
		s.trial.Fail("sequence numbers agree", "%v has sent all before %#x, of which all before %#x has arrived",
			s.from, s.next&roce.PSNMask, s.frontier&roce.PSNMask)
	}
}
