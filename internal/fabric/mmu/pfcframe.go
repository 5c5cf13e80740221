package mmu

import (
	"encoding/binary"
	"fmt"
)

// This file is the PFC frame on the wire (roce.md 14.4): what follows the Ethernet header, of EtherType 0x8808.

const (
	// PFCFrameLen is the length of a PFC frame behind its Ethernet header, bytes.
	PFCFrameLen = 46
	opcodePFC   = 0x0101
	pfcLen      = 2 + 2 + 2*Classes // without the padding
)

// Append appends the frame behind its Ethernet header.
func (f *PFC) Append(to []byte) []byte {
	to = binary.BigEndian.AppendUint16(to, opcodePFC)
	to = binary.BigEndian.AppendUint16(to, uint16(f.Enabled))
	for _, quanta := range f.Quanta {
		to = binary.BigEndian.AppendUint16(to, quanta)
	}
	return append(to, make([]byte, PFCFrameLen-pfcLen)...)
}

// DecodePFC takes such a frame apart. Padding may be absent. The error says why it is none.
func DecodePFC(b []byte) (f PFC, err error) {
	if len(b) < pfcLen {
		return f, fmt.Errorf("mmu: %d bytes are no PFC frame, which has at least %d", len(b), pfcLen)
	}
	if opcode := binary.BigEndian.Uint16(b); opcode != opcodePFC {
		return f, fmt.Errorf("mmu: opcode %#04x of a MAC control frame, want %#04x", opcode, opcodePFC)
	}
	f.Enabled = uint8(binary.BigEndian.Uint16(b[2:])) // the high byte is reserved
	for i := range f.Quanta {
		f.Quanta[i] = binary.BigEndian.Uint16(b[4+2*i:])
	}
	return f, nil
}
