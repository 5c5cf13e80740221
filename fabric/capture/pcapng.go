package capture

import (
	"encoding/binary"
	"io"
)

// Block types and codes of pcapng (draft-ietf-opsawg-pcapng).
const (
	blockSection   = 0x0a0d0d0a
	blockInterface = 1
	blockPacket    = 6 // enhanced packet block
	byteOrderMagic = 0x1a2b3c4d
	linkEthernet   = 1
	optionEnd      = 0
	optionName     = 2 // if_name
	optionUnit     = 9 // if_tsresol
	nanoseconds    = 9 // 10^-9 s
)

// A writer writes a pcapng section with one interface.
type writer struct {
	w       io.Writer
	snaplen int
	block   []byte // scratch
}

// newWriter writes the headers. A snaplen of 0 is no limit.
func newWriter(w io.Writer, iface string, snaplen int) (*writer, error) {
	n := &writer{w: w, snaplen: snaplen}
	n.begin(blockSection)
	n.uint32(byteOrderMagic)
	n.uint16(1) // version 1.0
	n.uint16(0)
	n.uint32(0xffffffff) // length of the section: not known
	n.uint32(0xffffffff)
	if err := n.end(); err != nil {
		return nil, err
	}
	n.begin(blockInterface)
	n.uint16(linkEthernet)
	n.uint16(0)
	n.uint32(uint32(snaplen))
	n.option(optionName, []byte(iface))
	n.option(optionUnit, []byte{nanoseconds})
	n.option(optionEnd, nil)
	return n, n.end()
}

// packet writes a packet with its time in ns since 1970.
func (n *writer) packet(stamp int64, packet []byte) error {
	data := packet
	if n.snaplen > 0 && len(data) > n.snaplen {
		data = data[:n.snaplen]
	}
	n.begin(blockPacket)
	n.uint32(0) // interface
	n.uint32(uint32(stamp >> 32))
	n.uint32(uint32(stamp))
	n.uint32(uint32(len(data)))
	n.uint32(uint32(len(packet)))
	n.padded(data)
	return n.end()
}

func (n *writer) option(code uint16, value []byte) {
	n.uint16(code)
	n.uint16(uint16(len(value)))
	n.padded(value)
}

// begin starts a block; its length, before and after its body, follows at the end.
func (n *writer) begin(kind uint32) {
	n.block = n.block[:0]
	n.uint32(kind)
	n.uint32(0)
}

func (n *writer) end() error {
	length := uint32(len(n.block) + 4)
	n.uint32(length)
	binary.LittleEndian.PutUint32(n.block[4:], length)
	_, err := n.w.Write(n.block)
	return err
}

// padded appends bytes up to a multiple of four.
func (n *writer) padded(b []byte) {
	n.block = append(n.block, b...)
	for len(n.block)%4 != 0 {
		n.block = append(n.block, 0)
	}
}

func (n *writer) uint16(v uint16) { n.block = binary.LittleEndian.AppendUint16(n.block, v) }
func (n *writer) uint32(v uint32) { n.block = binary.LittleEndian.AppendUint32(n.block, v) }
