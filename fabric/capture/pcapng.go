package capture

import (
	"encoding/binary"
	"io"
)

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
	optionUnit        = 9  // if_tsresol
	optionFilter      = 11 // if_filter, whose first byte 0 says that it is tcpdump's
	optionStart       = 2  // of statistics: isb_starttime
	optionStop        = 3  // isb_endtime
	optionReceived    = 4  // isb_ifrecv
	optionDropped     = 5  // isb_ifdrop
)

// A writer makes a pcapng section. What it has made is written in whole blocks,
// so that a file can be read whenever its writer died.
//
// gopacket has such a writer, which draws in gopacket/layers: milliseconds and
// megabytes for every process of a lab, which are all the same binary.
type writer struct {
	w       io.Writer
	snaplen int
	blocks  []byte // not yet written
	start   int    // of the block being made
}

// flushAt is how many bytes of blocks are written without being asked.
const flushAt = 256 << 10

// section begins a section, with its interfaces.
func (n *writer) section(interfaces []string, filter string) {
	n.begin(blockSection)
	n.uint32(byteOrderMagic)
	n.uint16(1) // version 1.0
	n.uint16(0)
	n.uint64(1<<64 - 1) // length of the section: not known
	n.option(optionApplication, "ndklab")
	n.option(optionEnd, "")
	n.end()
	for _, name := range interfaces {
		n.begin(blockInterface)
		n.uint16(linkEthernet)
		n.uint16(0)
		n.uint32(uint32(n.snaplen))
		n.option(optionName, name)
		if filter != "" {
			n.option(optionFilter, "\x00"+filter)
		}
		n.option(optionUnit, string([]byte{nanoseconds}))
		n.option(optionEnd, "")
		n.end()
	}
}

// packet adds a packet of an interface with its time, in ns since 1970, and its
// length; data is what was captured of it.
func (n *writer) packet(iface int, stamp int64, length int, data []byte, comment string) error {
	n.begin(blockPacket)
	n.uint32(uint32(iface))
	n.time(stamp)
	n.uint32(uint32(len(data)))
	n.uint32(uint32(length))
	n.blocks = append(n.blocks, data...)
	n.pad()
	if comment != "" {
		n.option(optionComment, comment)
		n.option(optionEnd, "")
	}
	n.end()
	if len(n.blocks) < flushAt {
		return nil
	}
	return n.flush()
}

// statistics adds what was counted of an interface between two instants.
func (n *writer) statistics(iface int, started, now int64, counts Counts) {
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
	}{{optionReceived, counts.Packets + counts.Dropped}, {optionDropped, counts.Dropped}} {
		n.uint16(c.code)
		n.uint16(8)
		n.uint64(c.count)
	}
	n.option(optionEnd, "")
	n.end()
}

// flush writes what has been made.
func (n *writer) flush() error {
	if len(n.blocks) == 0 {
		return nil
	}
	_, err := n.w.Write(n.blocks)
	n.blocks = n.blocks[:0]
	return err
}

func (n *writer) option(code uint16, value string) {
	n.uint16(code)
	n.uint16(uint16(len(value)))
	n.blocks = append(n.blocks, value...)
	n.pad()
}

// begin starts a block; its length, before and after its body, follows at the end.
func (n *writer) begin(kind uint32) {
	n.start = len(n.blocks)
	n.uint32(kind)
	n.uint32(0)
}

func (n *writer) end() {
	length := uint32(len(n.blocks) - n.start + 4)
	n.uint32(length)
	binary.LittleEndian.PutUint32(n.blocks[n.start+4:], length)
}

// pad fills the block up to a multiple of four bytes.
func (n *writer) pad() {
	for (len(n.blocks)-n.start)%4 != 0 {
		n.blocks = append(n.blocks, 0)
	}
}

// time is a time in its two halves, the upper one first.
func (n *writer) time(t int64) {
	n.uint32(uint32(t >> 32))
	n.uint32(uint32(t))
}

func (n *writer) uint16(v uint16) { n.blocks = binary.LittleEndian.AppendUint16(n.blocks, v) }
func (n *writer) uint32(v uint32) { n.blocks = binary.LittleEndian.AppendUint32(n.blocks, v) }
func (n *writer) uint64(v uint64) { n.blocks = binary.LittleEndian.AppendUint64(n.blocks, v) }
