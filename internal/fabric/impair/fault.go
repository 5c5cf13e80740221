package impair

import (
	"reflect"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/topology"
)

// A fault is a topology.Fault, prepared for use, with its counters.
type fault struct {
	topology.Fault
	opcodes [4]uint64 // that match by themselves or their syndrome, a bit each
	answers uint8     // bits of classes of syndromes that match; 0: any
	met     uint64    // packets that Match applies to, but for the numbers
	place   int       // in Match.Packets, of the next
	count   uint64    // of those that all of Match applies to
}

// The classes of syndromes: bits of fault.answers.
const (
	answerACK = 1 << iota
	answerNAK
	answerRNR
)

var answerNames = map[string]uint8{"ack": answerACK, "nak": answerNAK, "rnr": answerRNR}

// answer returns a syndrome's class; 0 of a reserved one.
func answer(s roce.Syndrome) uint8 {
	switch {
	case s.IsACK():
		return answerACK
	case s.IsNAK():
		return answerNAK
	case s.IsRNR():
		return answerRNR
	}
	return 0
}

// acknowledges reports whether packets of an opcode do nothing but answer.
func acknowledges(o roce.Opcode) bool { return o.HasAETH() && !o.IsReadResponse() }

func newFaults(settings []topology.Fault) []fault {
	faults := make([]fault, len(settings))
	for i, s := range settings {
		f := &faults[i]
		f.Fault = s
		for _, name := range s.Match.Syndromes {
			f.answers |= answerNames[name]
		}
		for o := range 256 {
			chosen := len(s.Match.Opcodes) == 0 || slices.Contains(s.Match.Opcodes, uint8(o))
			if chosen && (f.answers == 0 || acknowledges(roce.Opcode(o))) {
				f.opcodes[o/64] |= 1 << (o % 64)
			}
		}
	}
	return faults
}

func sameFaults(a, b []topology.Fault) bool {
	return len(a) == 0 && len(b) == 0 || reflect.DeepEqual(a, b)
}

// fault returns the first fault that matches the present packet, and its place from 1; nil
// and 0 if there is none. Every fault counts the packet.
func (d *Direction) fault(id *Identity) (first *fault, place uint16) {
	for i := range d.faults {
		f := &d.faults[i]
		if f.describes(id) && d.matches(f, i) && first == nil {
			first, place = f, uint16(i+1)
		}
	}
	return first, place
}

// describes reports whether the part of Match that is about the packet itself matches.
func (f *fault) describes(id *Identity) bool {
	m := &f.Match
	return f.opcodes[id.Opcode/64]&(1<<(id.Opcode%64)) != 0 &&
		(f.answers == 0 || f.answers&answer(id.Syndrome) != 0) &&
		(len(m.CM) == 0 || slices.Contains(m.CM, uint16(id.CM))) &&
		(m.QP == nil || *m.QP == id.QP) &&
		(m.PSN == nil || (id.PSN-m.PSN.First)&roce.PSNMask <= (m.PSN.Last-m.PSN.First)&roce.PSNMask)
}

// matches counts a packet that a fault describes and reports whether the rest of Match
// matches, too.
func (d *Direction) matches(f *fault, index int) bool {
	m := &f.Match
	f.met++
	if len(m.Packets) > 0 {
		if f.place == len(m.Packets) || m.Packets[f.place] != f.met {
			return false
		}
		f.place++
	}
	if m.Every > 0 && f.met%m.Every != 0 {
		return false
	}
	if m.Probability > 0 && uniform(mix(d.draws.bits(ofFault, d.place)+uint64(index)*gamma)) >= m.Probability {
		return false
	}
	if m.Count > 0 && f.count == m.Count {
		return false
	}
	f.count++
	return true
}
