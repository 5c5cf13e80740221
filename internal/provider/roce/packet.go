// Package roce is the RoCEv2 packet: its headers, its sizes and its invariant
// CRC, encoded and decoded.
//
// It does no I/O: bytes in, fields out, and the reverse. It
// knows what a packet looks like, not what it means; that is packages rc and cm.
// References such as "roce.md 2.1" are to docs/spec/roce.md.
//
// Start reading at Header; Decode and Header.Append convert it, Sealer and Verifier
// do the ICRC.
package roce

import "net/netip"

// Port is the UDP destination port of every RoCEv2 packet.
const Port = 4791

// An Opcode is the first byte of the BTH: transport class and operation.
type Opcode uint8

// The opcodes of reliable connections (roce.md 3.1), those that other classes
// share with connection management and congestion (3.2).
const (
	SendFirst          Opcode = 0x00
	SendMiddle         Opcode = 0x01
	SendLast           Opcode = 0x02
	SendLastImm        Opcode = 0x03
	SendOnly           Opcode = 0x04
	SendOnlyImm        Opcode = 0x05
	WriteFirst         Opcode = 0x06
	WriteMiddle        Opcode = 0x07
	WriteLast          Opcode = 0x08
	WriteLastImm       Opcode = 0x09
	WriteOnly          Opcode = 0x0A
	WriteOnlyImm       Opcode = 0x0B
	ReadRequest        Opcode = 0x0C
	ReadResponseFirst  Opcode = 0x0D
	ReadResponseMiddle Opcode = 0x0E
	ReadResponseLast   Opcode = 0x0F
	ReadResponseOnly   Opcode = 0x10
	Acknowledge        Opcode = 0x11
	AtomicAcknowledge  Opcode = 0x12
	CompareSwap        Opcode = 0x13
	FetchAdd           Opcode = 0x14
	SendLastInv        Opcode = 0x16
	SendOnlyInv        Opcode = 0x17
	Flush              Opcode = 0x1C
	AtomicWrite        Opcode = 0x1D
	UDSendOnly         Opcode = 0x64
	UDSendOnlyImm      Opcode = 0x65
	CNP                Opcode = 0x81

	// unreliable makes the opcodes of an unreliable connection of those of a reliable one, from
	// SendFirst to WriteOnlyImm (roce.md 3.2).
	unreliable Opcode = 0x20

	// SelectiveAcknowledge is ours, from the range that the IBTA leaves to
	// manufacturers (0xC0 to 0xFF): a NAK that also tells what has arrived behind
	// the packet that is missing. It is sent only to a peer that has agreed to it
	// (package rc, early.go). In it PSN is that of the missing packet, MSN the PSN
	// of the newest packet reported, and Original the map of the 64 before that.
	SelectiveAcknowledge Opcode = 0xD1
)

// A Header is everything between the UDP header and the payload: the BTH and
// the extended headers that the opcode calls for. Fields of headers that it does
// not call for are ignored when encoding and zero after decoding.
type Header struct {
	Opcode    Opcode
	Solicited bool
	MigReq    bool
	PKey      uint16 // 0xFFFF is the default partition
	FECN      bool
	BECN      bool
	DestQPN   uint32 // 24 bits
	AckReq    bool
	PSN       uint32 // 24 bits

	// DETH, of UD packets.
	QKey      uint32
	SourceQPN uint32 // 24 bits

	// FETH: to where data is to be flushed, and which (roce.md 2.2).
	FlushPlacement   uint8 // 4 bits
	FlushSelectivity uint8 // 2 bits

	// RETH and AtomicETH.
	VA        uint64
	RKey      uint32
	DMALength uint32 // RETH: bytes of the whole message or what remains of it

	// AtomicETH.
	SwapAdd uint64
	Compare uint64

	// AETH.
	Syndrome Syndrome
	MSN      uint32 // 24 bits

	Original      uint64 // AtomicAckETH
	Immediate     uint32 // ImmDt, opaque
	InvalidateKey uint32 // IETH
}

// InDefaultPartition reports whether the packet is of the default partition. We are
// full members of it, so that limited members' packets are for us, too (roce.md
// 2.1).
func (h *Header) InDefaultPartition() bool { return h.PKey|0x8000 == DefaultPKey }

// A Syndrome is the AETH's first byte (roce.md 2.3).
type Syndrome uint8

// The syndromes. An RNR NAK is SyndromeRNR plus the timer code.
const (
	SyndromeACK              Syndrome = 0x1F // no credit information
	SyndromeRNR              Syndrome = 0x20
	SyndromePSNSequence      Syndrome = 0x60
	SyndromeInvalidRequest   Syndrome = 0x61
	SyndromeRemoteAccess     Syndrome = 0x62
	SyndromeRemoteOperation  Syndrome = 0x63
	SyndromeInvalidRDRequest Syndrome = 0x64
)

// A Packet is a packet to send: its header, and its payload by reference, in
// pieces, so that a carrier can gather it from the consumer's own memory. The
// pieces stay the sender's and are read only until the carrier's Send returns.
type Packet struct {
	Header  Header
	Payload [][]byte
	Class   uint8 // the traffic class
}

// PayloadLen returns the number of payload bytes, without padding.
func (p *Packet) PayloadLen() int {
	n := 0
	for _, piece := range p.Payload {
		n += len(piece)
	}
	return n
}

// A Flow has the fields outside the BTH that the packets of one QP have in common.
// Both addresses are of one family; IPv4 ones are not IPv4-mapped.
type Flow struct {
	Local, Remote netip.Addr
	SourcePort    uint16 // UDP, 0xC000 to 0xFFFF: entropy for ECMP, nothing more
}

// A Received packet, decoded, its ICRC verified. Payload is lent: it is valid
// only until the call that hands it over returns.
type Received struct {
	Flow    Flow // Local is the receiver's address, Remote the sender's
	Header  Header
	Payload []byte
	Class   uint8 // the traffic class, as the network left it
}
