package roce

import (
	"encoding/binary"
	"errors"
)

const (
	bthLen  = 12
	icrcLen = 4
	// reservedLen is the length in bytes of what follows the BTH of a CNP.
	reservedLen = 16

	// MaxHeaderLen is the length in bytes of the longest header: BTH and AtomicETH.
	MaxHeaderLen = bthLen + 28

	// DefaultPKey is the key of the default partition, full membership.
	DefaultPKey = 0xFFFF

	mask24 = 1<<24 - 1
)

// These errors say what is wrong with a packet. Its receiver drops it in silence
// (roce.md 3.2, 7.1); the distinction is for counters.
var (
	ErrTruncated = errors.New("roce: packet shorter than its headers")
	ErrOpcode    = errors.New("roce: unknown opcode")
	ErrVersion   = errors.New("roce: transport header version is not 0")
	ErrLength    = errors.New("roce: length does not fit the headers and padding")
)

// padLen returns how many zero bytes follow a payload of n bytes (roce.md 2.5).
func padLen(n int) int { return -n & 3 }

// Append appends the BTH and the extended headers that h.Opcode calls for, of a
// packet with payloadLen bytes of payload, to b and returns it. QPNs, PSN and
// MSN are cut to 24 bits. Append panics if the opcode is unknown.
func (h *Header) Append(b []byte, payloadLen int) []byte {
	info := &opcodes[h.Opcode]
	if info.length == 0 {
		panic("roce: Append of " + h.Opcode.String())
	}
	flags := byte(padLen(payloadLen)) << 4
	if h.Solicited {
		flags |= 0x80
	}
	if h.MigReq {
		flags |= 0x40
	}
	word1 := h.DestQPN & mask24
	if h.FECN {
		word1 |= 1 << 31
	}
	if h.BECN {
		word1 |= 1 << 30
	}
	word2 := h.PSN & mask24
	if h.AckReq {
		word2 |= 1 << 31
	}
	be := binary.BigEndian
	b = append(b, byte(h.Opcode), flags, byte(h.PKey>>8), byte(h.PKey))
	b = be.AppendUint32(b, word1)
	b = be.AppendUint32(b, word2)

	ext := info.extension
	if ext == 0 {
		return b
	}
	if ext&extDETH != 0 {
		b = be.AppendUint32(b, h.QKey)
		b = be.AppendUint32(b, h.SourceQPN&mask24)
	}
	if ext&extFETH != 0 {
		b = be.AppendUint32(b, uint32(h.FlushSelectivity&3)<<4|uint32(h.FlushPlacement&0xF))
	}
	if ext&(extRETH|extAtomicETH) != 0 {
		b = be.AppendUint64(b, h.VA)
		b = be.AppendUint32(b, h.RKey)
	}
	if ext&extRETH != 0 {
		b = be.AppendUint32(b, h.DMALength)
	}
	if ext&extAtomicETH != 0 {
		b = be.AppendUint64(b, h.SwapAdd)
		b = be.AppendUint64(b, h.Compare)
	}
	if ext&extAETH != 0 {
		b = be.AppendUint32(b, uint32(h.Syndrome)<<24|h.MSN&mask24)
	}
	if ext&extAtomicAckETH != 0 {
		b = be.AppendUint64(b, h.Original)
	}
	if ext&extImmDt != 0 {
		b = be.AppendUint32(b, h.Immediate)
	}
	if ext&extIETH != 0 {
		b = be.AppendUint32(b, h.InvalidateKey)
	}
	if ext&extReserved != 0 {
		b = append(b, make([]byte, reservedLen)...)
	}
	return b
}

// Decode takes apart a UDP payload, BTH to ICRC, of which it looks at the
// length of the ICRC only (see Verifier). It overwrites all of h. The payload
// that it returns is part of b, without the padding. Reserved bits and the
// contents of the padding are ignored. On an error h is undefined.
//
// The errors are ErrTruncated, ErrOpcode, ErrVersion and ErrLength.
func Decode(b []byte, h *Header) (payload []byte, err error) {
	if len(b) < bthLen+icrcLen {
		return nil, ErrTruncated
	}
	info := &opcodes[b[0]]
	if info.length == 0 {
		return nil, ErrOpcode
	}
	if b[1]&0x0F != 0 {
		return nil, ErrVersion
	}
	headerLen := int(info.length)
	if len(b) < headerLen+icrcLen {
		return nil, ErrTruncated
	}
	// Padding makes every packet a multiple of 4 bytes long, so this check
	// is also the one that PadCnt fits the payload.
	end := len(b) - icrcLen - int(b[1]>>4&3)
	if len(b)&3 != 0 || end < headerLen {
		return nil, ErrLength
	}

	be := binary.BigEndian
	word2 := be.Uint32(b[8:])
	*h = Header{
		Opcode:    Opcode(b[0]),
		Solicited: b[1]&0x80 != 0,
		MigReq:    b[1]&0x40 != 0,
		PKey:      be.Uint16(b[2:]),
		FECN:      b[4]&0x80 != 0,
		BECN:      b[4]&0x40 != 0,
		DestQPN:   be.Uint32(b[4:]) & mask24,
		AckReq:    word2&(1<<31) != 0,
		PSN:       word2 & mask24,
	}
	payload = b[headerLen:end:end]

	ext, x := info.extension, b[bthLen:headerLen]
	if ext == 0 {
		return payload, nil
	}
	if ext&extDETH != 0 {
		h.QKey = be.Uint32(x)
		h.SourceQPN = be.Uint32(x[4:]) & mask24
		x = x[8:]
	}
	if ext&extFETH != 0 {
		h.FlushPlacement, h.FlushSelectivity = x[3]&0xF, x[3]>>4&3
		x = x[4:]
	}
	if ext&(extRETH|extAtomicETH) != 0 {
		h.VA = be.Uint64(x)
		h.RKey = be.Uint32(x[8:])
		x = x[12:]
	}
	if ext&extRETH != 0 {
		h.DMALength = be.Uint32(x)
		x = x[4:]
	}
	if ext&extAtomicETH != 0 {
		h.SwapAdd = be.Uint64(x)
		h.Compare = be.Uint64(x[8:])
		x = x[16:]
	}
	if ext&extAETH != 0 {
		word := be.Uint32(x)
		h.Syndrome, h.MSN = Syndrome(word>>24), word&mask24
		x = x[4:]
	}
	if ext&extAtomicAckETH != 0 {
		h.Original = be.Uint64(x)
		x = x[8:]
	}
	if ext&extImmDt != 0 {
		h.Immediate = be.Uint32(x)
		x = x[4:]
	}
	if ext&extIETH != 0 {
		h.InvalidateKey = be.Uint32(x)
	}
	return payload, nil
}
