package roce

import (
	"fmt"
	"strings"
)

// An extension is a set of the headers that may follow the BTH. On the wire
// they stand in the order of these bits (roce.md 3.1).
type extension uint16

const (
	extDETH extension = 1 << iota
	extFETH
	extRETH
	extAtomicETH
	extAETH
	extAtomicAckETH
	extImmDt
	extIETH
	extReserved // of the CNP: zeros (roce.md 14.2)
)

// bytes returns the length of the set on the wire (roce.md 2.2).
func (e extension) bytes() int {
	n := 0
	for i, size := range [...]int{8, 4, 16, 28, 4, 8, 4, 4, reservedLen} {
		if e&(1<<i) != 0 {
			n += size
		}
	}
	return n
}

// A kind is a set of an opcode's properties.
type kind uint16

const (
	kindRequest kind = 1 << iota
	kindResponse
	kindSend
	kindWrite
	kindReadResponse
	kindAtomic
	kindStart // first or only packet of a message
	kindEnd   // last or only packet of a message
)

type opcodeInfo struct {
	name      string
	extension extension
	kind      kind
	length    uint8 // BTH and extended headers, bytes; 0 if the opcode is unknown
}

// opcodes describes every opcode that this package knows (roce.md 3).
var opcodes = func() [256]opcodeInfo {
	const (
		send    = kindRequest | kindSend
		write   = kindRequest | kindWrite
		read    = kindResponse | kindReadResponse
		atomic  = kindRequest | kindAtomic
		first   = kindStart
		middle  = 0
		last    = kindEnd
		only    = kindStart | kindEnd
		noExtra = 0
	)
	table := [256]opcodeInfo{
		SendFirst:          {"RC SEND First", noExtra, send | first, 0},
		SendMiddle:         {"RC SEND Middle", noExtra, send | middle, 0},
		SendLast:           {"RC SEND Last", noExtra, send | last, 0},
		SendLastImm:        {"RC SEND Last Immediate", extImmDt, send | last, 0},
		SendOnly:           {"RC SEND Only", noExtra, send | only, 0},
		SendOnlyImm:        {"RC SEND Only Immediate", extImmDt, send | only, 0},
		WriteFirst:         {"RC RDMA WRITE First", extRETH, write | first, 0},
		WriteMiddle:        {"RC RDMA WRITE Middle", noExtra, write | middle, 0},
		WriteLast:          {"RC RDMA WRITE Last", noExtra, write | last, 0},
		WriteLastImm:       {"RC RDMA WRITE Last Immediate", extImmDt, write | last, 0},
		WriteOnly:          {"RC RDMA WRITE Only", extRETH, write | only, 0},
		WriteOnlyImm:       {"RC RDMA WRITE Only Immediate", extRETH | extImmDt, write | only, 0},
		ReadRequest:        {"RC RDMA READ Request", extRETH, kindRequest | only, 0},
		ReadResponseFirst:  {"RC RDMA READ Response First", extAETH, read | first, 0},
		ReadResponseMiddle: {"RC RDMA READ Response Middle", noExtra, read | middle, 0},
		ReadResponseLast:   {"RC RDMA READ Response Last", extAETH, read | last, 0},
		ReadResponseOnly:   {"RC RDMA READ Response Only", extAETH, read | only, 0},
		Acknowledge:        {"RC Acknowledge", extAETH, kindResponse | only, 0},
		AtomicAcknowledge:  {"RC Atomic Acknowledge", extAETH | extAtomicAckETH, kindResponse | only, 0},
		CompareSwap:        {"RC Compare Swap", extAtomicETH, atomic | only, 0},
		FetchAdd:           {"RC Fetch Add", extAtomicETH, atomic | only, 0},
		SendLastInv:        {"RC SEND Last Invalidate", extIETH, send | last, 0},
		SendOnlyInv:        {"RC SEND Only Invalidate", extIETH, send | only, 0},
		Flush:              {"RC FLUSH", extFETH | extRETH, kindRequest | only, 0},
		AtomicWrite:        {"RC ATOMIC WRITE", extRETH, atomic | only, 0},
		UDSendOnly:         {"UD SEND Only", extDETH, kindSend | only, 0},
		UDSendOnlyImm:      {"UD SEND Only Immediate", extDETH | extImmDt, kindSend | only, 0},
		CNP:                {"CNP", extReserved, only, 0},

		SelectiveAcknowledge: {"Selective Acknowledge", extAETH | extAtomicAckETH, kindResponse | only, 0},
	}
	for op := SendFirst; op <= WriteOnlyImm; op++ {
		info := table[op]
		info.name = "UC" + strings.TrimPrefix(info.name, "RC")
		info.kind &^= kindRequest
		table[op|unreliable] = info
	}
	for op := range table {
		if info := &table[op]; info.name != "" {
			info.length = uint8(bthLen + info.extension.bytes())
		}
	}
	return table
}()

// Known reports whether Decode and Append know o.
func (o Opcode) Known() bool { return opcodes[o].length != 0 }

// HeaderLen returns the length in bytes of the BTH and the extended headers of o,
// or 0 if o is unknown.
func (o Opcode) HeaderLen() int { return int(opcodes[o].length) }

// IsRC reports whether o is of the reliable connection class.
func (o Opcode) IsRC() bool { return o>>5 == 0 }

// IsUC reports whether o is of the unreliable connection class.
func (o Opcode) IsUC() bool { return o>>5 == unreliable>>5 }

// Unreliable returns the opcode of an unreliable connection that corresponds to o, a SEND or WRITE
// of a reliable one.
func (o Opcode) Unreliable() Opcode { return o | unreliable }

// IsRequest reports whether o is for the responder of a reliable connection.
func (o Opcode) IsRequest() bool { return opcodes[o].kind&kindRequest != 0 }

// IsResponse reports whether o is for the requester of a reliable connection.
func (o Opcode) IsResponse() bool { return opcodes[o].kind&kindResponse != 0 }

// IsSend reports whether o is part of a SEND, of any class.
func (o Opcode) IsSend() bool { return opcodes[o].kind&kindSend != 0 }

// IsWrite reports whether o is part of an RDMA WRITE.
func (o Opcode) IsWrite() bool { return opcodes[o].kind&kindWrite != 0 }

// IsReadResponse reports whether o is part of the response to an RDMA READ.
func (o Opcode) IsReadResponse() bool { return opcodes[o].kind&kindReadResponse != 0 }

// OnlyAcknowledges reports whether o has no data and asks for none, but tells the requester of a
// reliable connection what has arrived or has not.
func (o Opcode) OnlyAcknowledges() bool { return o == Acknowledge || o == SelectiveAcknowledge }

// IsAtomic reports whether o is an atomic request.
func (o Opcode) IsAtomic() bool { return opcodes[o].kind&kindAtomic != 0 }

// Starts reports whether o is the first or only packet of a message.
func (o Opcode) Starts() bool { return opcodes[o].kind&kindStart != 0 }

// Ends reports whether o is the last or only packet of a message.
func (o Opcode) Ends() bool { return opcodes[o].kind&kindEnd != 0 }

// IsFirst reports whether o is the first of several packets of a message.
func (o Opcode) IsFirst() bool { return o.Starts() && !o.Ends() }

// IsMiddle reports whether o is neither the first nor the last packet of a message.
func (o Opcode) IsMiddle() bool { return o.Known() && !o.Starts() && !o.Ends() }

// IsLast reports whether o is the last of several packets of a message.
func (o Opcode) IsLast() bool { return o.Ends() && !o.Starts() }

// IsOnly reports whether o is a whole message. Requests to read, atomics and
// acknowledgements are that too.
func (o Opcode) IsOnly() bool { return o.Starts() && o.Ends() }

// HasRETH reports whether o carries VA, RKey and DMALength.
func (o Opcode) HasRETH() bool { return opcodes[o].extension&extRETH != 0 }

// HasAETH reports whether o carries Syndrome and MSN.
func (o Opcode) HasAETH() bool { return opcodes[o].extension&extAETH != 0 }

// HasImmediate reports whether o carries Immediate.
func (o Opcode) HasImmediate() bool { return opcodes[o].extension&extImmDt != 0 }

// HasInvalidate reports whether o carries InvalidateKey.
func (o Opcode) HasInvalidate() bool { return opcodes[o].extension&extIETH != 0 }

// String names the opcode, as in "RC RDMA WRITE First".
func (o Opcode) String() string {
	if name := opcodes[o].name; name != "" {
		return name
	}
	return fmt.Sprintf("opcode 0x%02x", uint8(o))
}
