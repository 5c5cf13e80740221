// Package mad is the management datagram as connection management uses it: the
// 256 bytes that travel in a UD packet to QP 1, and the messages in them,
// encoded and decoded (roce.md section 10), with what rdma_cm puts into the
// service ID and the private data (roce.md section 12). Two more are those of
// package pace.
//
// It does no I/O and keeps no state; what the messages mean is package cm's
// business. Every message is a struct with Append, which adds one whole datagram
// to a slice, and Decode, which reads one; neither allocates (Append, if the slice
// has room). Reserved bytes are written as zero and ignored when read.
//
// Start reading at DecodeHeader, which tells what a datagram holds, and REQ.
package mad

import (
	"encoding/binary"
	"errors"
	"fmt"
)

// Size is the size of every datagram, in bytes.
const Size = 256

// QPN and QKey address connection management at every adapter.
const (
	QPN  = 1
	QKey = 0x80010000
)

const (
	headerSize = 24
	bodySize   = Size - headerSize
)

// The header's constant bytes: base version 1, class 7 (communication
// management), class version 2, method 3 (Send).
const baseClassVersionMethod = 0x01070203

// An Attribute says which message a datagram holds.
type Attribute uint16

// The messages of connection management (roce.md 10.1).
const (
	AttributeREQ     Attribute = 0x0010 + iota // request for communication
	AttributeMRA                               // message receipt acknowledgement
	AttributeREJ                               // reject
	AttributeREP                               // reply to request
	AttributeRTU                               // ready to use
	AttributeDREQ                              // disconnection request
	AttributeDREP                              // reply to it
	AttributeSIDRREQ                           // service ID resolution request
	AttributeSIDRREP                           // response to it
	AttributeLAP                               // load alternate path
	AttributeAPR                               // alternate path response
)

var attributeNames = [...]string{"REQ", "MRA", "REJ", "REP", "RTU", "DREQ", "DREP", "SIDR_REQ", "SIDR_REP", "LAP", "APR"}

// String returns the message's usual name.
func (a Attribute) String() string {
	if i := int(a) - int(AttributeREQ); i >= 0 && i < len(attributeNames) {
		return attributeNames[i]
	}
	return fmt.Sprintf("attribute 0x%04x", uint16(a))
}

// ErrMalformed says that a datagram is not what was to be decoded: of another
// size, of another management class, version or method, or another message.
var ErrMalformed = errors.New("mad: malformed datagram")

// A Header has the fields that vary in the header of a connection management datagram.
type Header struct {
	// TransactionID is chosen by who sends a REQ or DREQ and repeated in the
	// answers. Messages are matched by communication IDs, not by this.
	TransactionID uint64
	Attribute     Attribute
}

// DecodeHeader reads the header of a datagram of Size bytes. The status is not
// looked at, nor is the attribute modifier, which is part of an ECE.
func DecodeHeader(b []byte) (Header, error) {
	if len(b) != Size || binary.BigEndian.Uint32(b) != baseClassVersionMethod {
		return Header{}, ErrMalformed
	}
	return Header{
		TransactionID: binary.BigEndian.Uint64(b[8:]),
		Attribute:     Attribute(binary.BigEndian.Uint16(b[16:])),
	}, nil
}

var zeros [Size]byte

// appendDatagram adds a datagram with an empty body and returns the body too.
func appendDatagram(b []byte, transactionID uint64, a Attribute) (whole, body []byte) {
	n := len(b)
	b = append(b, zeros[:]...)
	d := b[n:]
	binary.BigEndian.PutUint32(d, baseClassVersionMethod)
	binary.BigEndian.PutUint64(d[8:], transactionID)
	binary.BigEndian.PutUint16(d[16:], uint16(a))
	return b, d[headerSize:]
}

// openDatagram checks that b holds the message a, and returns its body.
func openDatagram(b []byte, a Attribute) (transactionID uint64, body []byte, err error) {
	h, err := DecodeHeader(b)
	if err != nil {
		return 0, nil, err
	}
	if h.Attribute != a {
		return 0, nil, ErrMalformed
	}
	return h.TransactionID, b[headerSize:Size:Size], nil
}

// putModifier sets the attribute modifier of the datagram that b ends with.
func putModifier(b []byte, v uint32) { binary.BigEndian.PutUint32(b[len(b)-Size+20:], v) }

// modifier returns the attribute modifier of a datagram.
func modifier(b []byte) uint32 { return binary.BigEndian.Uint32(b[20:]) }

func put24(b []byte, v uint32) {
	b[0], b[1], b[2] = byte(v>>16), byte(v>>8), byte(v)
}

func get24(b []byte) uint32 {
	return uint32(b[0])<<16 | uint32(b[1])<<8 | uint32(b[2])
}

func bit(v bool, shift uint) byte {
	if v {
		return 1 << shift
	}
	return 0
}
