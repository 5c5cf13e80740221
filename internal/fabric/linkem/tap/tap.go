// Package tap is the stream in which a link engine tells, packet by packet, what
// becomes of the packets of a link: also of those that never arrive, which no
// packet socket at the far end sees. Package linkem writes it (Engine.Tap), and
// whoever shows captures reads it.
//
// The engine never waits for the reader: packets for which there is no room are
// left out, and counted in the next one that is not.
//
// Start reading at Packet.
package tap

import (
	"bufio"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
)

// A Packet is a wire packet that entered a link, and what was decided on it. A
// stream begins with one of Size 0, which is none: it says that the tap is on.
// Another one may come at any time; it has nothing to say but Missed.
type Packet struct {
	Direction int    // 0 if the link's first endpoint sent it, else 1
	Stamp     int64  // when the kernel received it at the near end, ns of the wall clock since 1970
	Departs   int64  // when it is to leave at the far end, likewise; 0 if it does not arrive
	Missed    uint32 // packets left out of the stream since the one before
	Comment   string // what was done to it, such as "dropped: loss" or "duplicated, corrupted"; empty: nothing but delay. At most 255 bytes.
	Size      int    // its length from the Ethernet header on, bytes
	Frame     []byte // as it entered, complete with checksums; no more than the snapshot length that was asked for
}

// A packet in the stream: all integers little-endian.
const (
	offLength    = 0  // uint32: of all of it, bytes
	offMissed    = 4  // uint32
	offStamp     = 8  // int64
	offDeparts   = 16 // int64
	offSize      = 24 // uint32
	offDirection = 28 // uint8
	offComment   = 29 // uint8: length of the comment
	headerLen    = 30 // then the comment, then the frame
)

// maxLen bounds a packet in the stream, bytes: a header, a comment and the
// longest frame there is.
const maxLen = headerLen + 255 + 1<<17

// Append appends a packet to dst as it is in the stream.
func Append(dst []byte, p *Packet) []byte {
	var header [headerLen]byte
	comment := p.Comment[:min(len(p.Comment), 255)]
	binary.LittleEndian.PutUint32(header[offLength:], uint32(headerLen+len(comment)+len(p.Frame)))
	binary.LittleEndian.PutUint32(header[offMissed:], p.Missed)
	binary.LittleEndian.PutUint64(header[offStamp:], uint64(p.Stamp))
	binary.LittleEndian.PutUint64(header[offDeparts:], uint64(p.Departs))
	binary.LittleEndian.PutUint32(header[offSize:], uint32(p.Size))
	header[offDirection] = byte(p.Direction)
	header[offComment] = byte(len(comment))
	dst = append(dst, header[:]...)
	dst = append(dst, comment...)
	return append(dst, p.Frame...)
}

// Len returns the number of bytes that Append appends.
func Len(p *Packet) int { return headerLen + min(len(p.Comment), 255) + len(p.Frame) }

// ErrFormat is a stream that is none of a tap's.
var ErrFormat = errors.New("not the stream of a tap")

// A Reader reads a stream.
type Reader struct {
	r    *bufio.Reader
	body []byte // of the last packet
}

// NewReader makes a Reader.
func NewReader(r io.Reader) *Reader { return &Reader{r: bufio.NewReaderSize(r, 1<<16)} }

// Next reads the next packet. Its Frame is valid until the next call. The error
// at the end of the stream is io.EOF; if the stream was cut off within a packet,
// it is io.ErrUnexpectedEOF.
func (r *Reader) Next() (Packet, error) {
	var header [headerLen]byte
	if _, err := io.ReadFull(r.r, header[:]); err != nil {
		return Packet{}, err
	}
	length := binary.LittleEndian.Uint32(header[offLength:])
	comment := int(header[offComment])
	if length < uint32(headerLen+comment) || length > maxLen {
		return Packet{}, fmt.Errorf("%w: a packet of %d bytes", ErrFormat, length)
	}
	r.body = append(r.body[:0], make([]byte, length-headerLen)...)
	if _, err := io.ReadFull(r.r, r.body); err != nil {
		if err == io.EOF {
			err = io.ErrUnexpectedEOF
		}
		return Packet{}, err
	}
	return Packet{
		Direction: int(header[offDirection]),
		Stamp:     int64(binary.LittleEndian.Uint64(header[offStamp:])),
		Departs:   int64(binary.LittleEndian.Uint64(header[offDeparts:])),
		Missed:    binary.LittleEndian.Uint32(header[offMissed:]),
		Comment:   string(r.body[:comment]),
		Size:      int(binary.LittleEndian.Uint32(header[offSize:])),
		Frame:     r.body[comment:],
	}, nil
}

// Pending reports whether more of the stream has been read already, so that
// Next is likely not to wait: a good time to flush what was made of the packets
// so far is when it is false.
func (r *Reader) Pending() bool { return r.r.Buffered() > 0 }
