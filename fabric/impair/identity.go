package impair

import (
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/roce/mad"
)

// An Identity is what tells a RoCEv2 packet from others.
type Identity struct {
	Opcode   roce.Opcode
	Syndrome roce.Syndrome // 0 if the opcode has none
	CM       mad.Attribute // of a connection management message; 0: it is none
	QP       uint32        // the destination's
	PSN      uint32
}
