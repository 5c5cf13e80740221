package workload

import "encoding/binary"

// This file has what the ends of a flow of sends, writes or reads tell each other when they
// connect.

// hello tells the server, when a client connects, which of its channels it is for,
// with which message it begins, and the memory that answers are to be written to. It
// travels as private data, big-endian, after a word that tells it from what others send.
type hello struct {
	channel uint32
	token   uint32
	next    uint64
	address uint64
}

const (
	helloLen  = 28
	helloWord = 0x6E646B6C // "ndkl"
)

func (h hello) encode() []byte {
	b := binary.BigEndian.AppendUint32(make([]byte, 0, helloLen), helloWord)
	b = binary.BigEndian.AppendUint32(b, h.channel)
	b = binary.BigEndian.AppendUint32(b, h.token)
	b = binary.BigEndian.AppendUint64(b, h.next)
	return binary.BigEndian.AppendUint64(b, h.address)
}

// decodeHello is false if b is no hello.
func decodeHello(b []byte) (hello, bool) {
	if len(b) < helloLen || binary.BigEndian.Uint32(b) != helloWord {
		return hello{}, false
	}
	return hello{
		channel: binary.BigEndian.Uint32(b[4:]), token: binary.BigEndian.Uint32(b[8:]),
		next: binary.BigEndian.Uint64(b[12:]), address: binary.BigEndian.Uint64(b[20:]),
	}, true
}

// grant holds what the server tells the client when it accepts: the memory to write
// to or to read from. It travels as private data, big-endian.
type grant struct {
	address uint64
	token   uint32
}

const grantLen = 12

func (g grant) encode() []byte {
	b := binary.BigEndian.AppendUint64(make([]byte, 0, grantLen), g.address)
	return binary.BigEndian.AppendUint32(b, g.token)
}

// decodeGrant decodes grantLen bytes.
func decodeGrant(b []byte) grant {
	return grant{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}
}
