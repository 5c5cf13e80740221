package workload

import "encoding/binary"

// This file has what the two ends of a flow of Storage have agreed on. It is the pattern of
// SMB Direct: all RDMA is the server's. A client that wants to write lends the server the
// memory that the data is in, and the server READs it; one that wants to read lends the
// memory that the data is to go to, and the server WRITEs to it. Memory is lent for one
// request, and taken back by the answer or after it.
//
// Requests come in eight kinds, in turn, so that each way to lend memory is used with each
// direction.

// A kind is that of a request: the low bits of its number.
type kind uint64

const (
	reads   kind = 1 << iota // the client reads; else it writes
	windows                  // the memory is lent by a window; else by a fast registration
	keeps                    // the client invalidates the token itself; else the server's answer does
)

// A loanRequest holds what a client sends. It has loanRequestLen bytes, big-endian.
type loanRequest struct {
	number  uint64
	address uint64 // of what is lent
	size    uint32 // bytes; 0: nothing is lent
	token   uint32
	loan    uint32 // the client's name for it
	kind    kind
}

const loanRequestLen = 32

func (r *loanRequest) encode(b []byte) {
	binary.BigEndian.PutUint64(b, r.number)
	binary.BigEndian.PutUint64(b[8:], r.address)
	binary.BigEndian.PutUint32(b[16:], r.size)
	binary.BigEndian.PutUint32(b[20:], r.token)
	binary.BigEndian.PutUint32(b[24:], r.loan)
	binary.BigEndian.PutUint32(b[28:], uint32(r.kind))
}

func decodeLoanRequest(b []byte) loanRequest {
	return loanRequest{
		number: binary.BigEndian.Uint64(b), address: binary.BigEndian.Uint64(b[8:]),
		size: binary.BigEndian.Uint32(b[16:]), token: binary.BigEndian.Uint32(b[20:]),
		loan: binary.BigEndian.Uint32(b[24:]), kind: kind(binary.BigEndian.Uint32(b[28:])),
	}
}

// A loanAnswer holds what the server sends when it is done with a request. It has
// loanAnswerLen bytes, big-endian.
type loanAnswer struct {
	loan    uint32
	credits uint32 // requests that the client may make beside those that it might before
	wrong   bool   // what was written is not what it should be
}

const loanAnswerLen = 12

func (a *loanAnswer) encode(b []byte) {
	binary.BigEndian.PutUint32(b, a.loan)
	binary.BigEndian.PutUint32(b[4:], a.credits)
	wrong := uint32(0)
	if a.wrong {
		wrong = 1
	}
	binary.BigEndian.PutUint32(b[8:], wrong)
}

func decodeLoanAnswer(b []byte) loanAnswer {
	return loanAnswer{loan: binary.BigEndian.Uint32(b), credits: binary.BigEndian.Uint32(b[4:]), wrong: binary.BigEndian.Uint32(b[8:]) != 0}
}

// sizeOf returns the size of a message, by its number.
func (s *Spec) sizeOf(number uint64) uint64 {
	if s.Mixed {
		return s.drawn(number)
	}
	return s.Size
}

// channelNumberLen is the length of what a client's request for a connection tells: which of
// its channels it is for, big-endian.
const channelNumberLen = 4

// creditsLen is the length of what the server's acceptance tells: how many requests the
// client may make, big-endian.
const creditsLen = 4
