package mad

import (
	"encoding/binary"
	"time"
)

// The datagrams by which adapters of our kind pace what nobody acknowledges (package pace) are of a vendor's
// management class (IBTA Vol. 1, 16.5.2), so that others drop them. Like all of those they have 12 bytes of RMPP behind
// the header, which are zero, and a vendor's ID, here a locally administered one. They are addressed to the QP 1 of the
// share that has the receive buffer, and back.
const (
	paceClassVersionMethod = 0x01300103 // base version 1, class 0x30, class version 1, method 3 (Send)
	paceVendor             = 0x6E646B
	attributeMark          = 0x0010
	attributeAnswer        = 0x0011

	vendorOffset = 36
	paceOffset   = 40
)

// A Mark says how far a sender is. The peer repeats it in its Answer.
type Mark struct {
	ID    uint64        // of the sender's pace.Path
	Sent  uint64        // bytes, in all
	At    time.Duration // when it was sent, on the sender's clock
	Taken uint64        // how many of the bytes were known to be taken then,
	Since time.Duration // and since when
}

// An Answer says that what was sent before a Mark is in the receive buffer no longer.
type Answer struct {
	Mark
	Window uint32 // bytes that the sender may have in the buffer
}

// IsPace reports whether a datagram is a Mark or an Answer.
func IsPace(b []byte) bool {
	return len(b) == Size && binary.BigEndian.Uint32(b) == paceClassVersionMethod &&
		binary.BigEndian.Uint32(b[vendorOffset:]) == paceVendor
}

// Append adds the datagram, Size bytes, to b.
func (m *Mark) Append(b []byte) []byte {
	b, _ = m.append(b, attributeMark)
	return b
}

// Append adds the datagram, Size bytes, to b.
func (m *Answer) Append(b []byte) []byte {
	b, rest := m.Mark.append(b, attributeAnswer)
	binary.BigEndian.PutUint32(rest, m.Window)
	return b
}

// append returns what is behind the Mark in the datagram, too.
func (m *Mark) append(b []byte, attribute uint16) (whole, rest []byte) {
	n := len(b)
	b = append(b, zeros[:]...)
	d := b[n:]
	binary.BigEndian.PutUint32(d, paceClassVersionMethod)
	binary.BigEndian.PutUint16(d[16:], attribute)
	binary.BigEndian.PutUint32(d[vendorOffset:], paceVendor)
	p := d[paceOffset:]
	binary.BigEndian.PutUint64(p[0:], m.ID)
	binary.BigEndian.PutUint64(p[8:], m.Sent)
	binary.BigEndian.PutUint64(p[16:], uint64(m.At))
	binary.BigEndian.PutUint64(p[24:], m.Taken)
	binary.BigEndian.PutUint64(p[32:], uint64(m.Since))
	return b, p[40:]
}

// Decode reads a datagram of Size bytes: an Answer, or a Mark, which has no window.
func (m *Answer) Decode(b []byte) (isAnswer bool, err error) {
	if !IsPace(b) {
		return false, ErrMalformed
	}
	attribute := binary.BigEndian.Uint16(b[16:])
	if attribute != attributeMark && attribute != attributeAnswer {
		return false, ErrMalformed
	}
	p := b[paceOffset:]
	*m = Answer{
		Mark: Mark{
			ID: binary.BigEndian.Uint64(p[0:]), Sent: binary.BigEndian.Uint64(p[8:]),
			At:    time.Duration(binary.BigEndian.Uint64(p[16:])),
			Taken: binary.BigEndian.Uint64(p[24:]),
			Since: time.Duration(binary.BigEndian.Uint64(p[32:])),
		},
		Window: binary.BigEndian.Uint32(p[40:]),
	}
	return attribute == attributeAnswer, nil
}
