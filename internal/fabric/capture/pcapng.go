package capture

import "encoding/binary"

// Block types and codes of pcapng (draft-ietf-opsawg-pcapng).
const (
	blockSection    = 0x0a0d0d0a
	blockInterface  = 1
	blockStatistics = 5
	blockPacket     = 6 // enhanced packet block

	byteOrderMagic = 0x1a2b3c4d
	linkEthernet   = 1
	nanoseconds    = 9 // 10^-9 s

	optionEnd         = 0
	optionComment     = 1
	optionApplication = 4  // of the section: shb_userappl
	optionName        = 2  // of an interface: if_name
	optionDescription = 3  // if_description
	optionUnit        = 9  // if_tsresol
	optionFilter      = 11 // if_filter, whose first byte 0 says that it is tcpdump's
	optionStart       = 2  // of statistics: isb_starttime
	optionStop        = 3  // isb_endtime
	optionReceived    = 4  // isb_ifrecv
	optionDropped     = 5  // isb_ifdrop
	optionFlags       = 2  // of a packet: epb_flags

	// The lowest bits of the flags of a packet.
	flagReceived = 1
	flagSent     = 2
)

// blocks are the blocks of a pcapng section, made one after the other. They are
// written whole, so that a file can be read whenever its writer died.
//
// gopacket has a writer, which draws in gopacket/layers: milliseconds and
// megabytes for every process of a lab, which are all the same binary.
type blocks struct {
	bytes   []byte
	snaplen int
	start   int // of the block being made
}

// described is an interface with what is to be said of it; "" if nothing is.
type described struct{ name, description string }

// section begins a section, with its interfaces.
func (n *blocks) section(interfaces []described, filter string) {
	n.begin(blockSection)
	n.uint32(byteOrderMagic)
	n.uint16(1) // version 1.0
	n.uint16(0)
	n.uint64(1<<64 - 1) // length of the section: not known
	n.option(optionApplication, "ndklab")
	n.option(optionEnd, "")
	n.end()
	for _, of := range interfaces {
		n.begin(blockInterface)
		n.uint16(linkEthernet)
		n.uint16(0)
		n.uint32(uint32(n.snaplen))
		n.option(optionName, of.name)
		if of.description != "" {
			n.option(optionDescription, of.description)
		}
		if filter != "" {
			n.option(optionFilter, "\x00"+filter)
		}
		n.option(optionUnit, string([]byte{nanoseconds}))
		n.option(optionEnd, "")
		n.end()
	}
}

// packet adds a packet of an interface with its time, in ns since 1970, and its
// length; data is what was captured of it. sent says that it left through the interface.
func (n *blocks) packet(iface int, stamp int64, length int, data []byte, sent bool, comment string) {
	n.begin(blockPacket)
	n.uint32(uint32(iface))
	n.time(stamp)
	n.uint32(uint32(len(data)))
	n.uint32(uint32(length))
	n.bytes = append(n.bytes, data...)
	n.pad()
	n.uint16(optionFlags)
	n.uint16(4)
	if sent {
		n.uint32(flagSent)
	} else {
		n.uint32(flagReceived)
	}
	if comment != "" {
		n.option(optionComment, comment)
	}
	n.option(optionEnd, "")
	n.end()
}

// statistics adds what was counted of an interface between two instants.
func (n *blocks) statistics(iface int, started, now int64, counts Counts, comment string) {
	n.begin(blockStatistics)
	n.uint32(uint32(iface))
	n.time(now)
	for _, t := range []struct {
		code uint16
		at   int64
	}{{optionStart, started}, {optionStop, now}} {
		n.uint16(t.code)
		n.uint16(8)
		n.time(t.at)
	}
	for _, c := range []struct {
		code  uint16
		count uint64
	}{{optionReceived, counts.Packets + counts.Other + counts.Dropped}, {optionDropped, counts.Dropped}} {
		n.uint16(c.code)
		n.uint16(8)
		n.uint64(c.count)
	}
	if comment != "" {
		n.option(optionComment, comment)
	}
	n.option(optionEnd, "")
	n.end()
}

func (n *blocks) option(code uint16, value string) {
	n.uint16(code)
	n.uint16(uint16(len(value)))
	n.bytes = append(n.bytes, value...)
	n.pad()
}

// begin starts a block; its length, before and after its body, follows at the end.
func (n *blocks) begin(kind uint32) {
	n.start = len(n.bytes)
	n.uint32(kind)
	n.uint32(0)
}

func (n *blocks) end() {
	length := uint32(len(n.bytes) - n.start + 4)
	n.uint32(length)
	binary.LittleEndian.PutUint32(n.bytes[n.start+4:], length)
}

// pad fills the block up to a multiple of four bytes.
func (n *blocks) pad() {
	for (len(n.bytes)-n.start)%4 != 0 {
		n.bytes = append(n.bytes, 0)
	}
}

// time is a time in its two halves, the upper one first.
func (n *blocks) time(t int64) {
	n.uint32(uint32(t >> 32))
	n.uint32(uint32(t))
}

func (n *blocks) uint16(v uint16) { n.bytes = binary.LittleEndian.AppendUint16(n.bytes, v) }
func (n *blocks) uint32(v uint32) { n.bytes = binary.LittleEndian.AppendUint32(n.bytes, v) }
func (n *blocks) uint64(v uint64) { n.bytes = binary.LittleEndian.AppendUint64(n.bytes, v) }
