// Package workload holds the consumers that a node's agent runs: RDMA traffic
// between two nodes, measured and verified.
//
// A workload has a server, which listens on one node, and a client, which
// connects from another and posts: writes into the server's memory, reads from
// it, or sends. Both drive the adapter through its callbacks and take their time
// from a clock, so that they run unchanged in a simulation. They know nothing of
// namespaces and links.
//
// Both ends derive the same pattern from the workload's seed; message i is the
// pattern from an offset that depends on i, so that a byte lost, stale or out of
// place shows. With Verify set every payload is compared, byte for byte, where it
// arrives: at the server for sends and writes, at the client for reads.
//
// Start reading at Serve and Run.
package workload

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"sync/atomic"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A Spec is what both ends of a workload need to know.
type Spec struct {
	Name      string
	Operation topology.Operation
	Size      uint64 // bytes per message
	Depth     int    // messages in flight
	Count     uint64 // messages; 0: until Duration has passed
	Duration  time.Duration
	Verify    bool
	Seed      uint64
}

// Result is what a client measured.
type Result struct {
	Messages uint64 // completed with success
	Bytes    uint64 // payload of those
	Errors   uint64 // messages that failed, or arrived wrong at the client
	Error    string // the first failure, in words
	Seconds  float64
	// Post to completion, in microseconds.
	LatencyMin, LatencyP50, LatencyP99, LatencyMax float64
}

// ServerResult is what a server found.
type ServerResult struct {
	Verified   uint64 // messages compared and right
	Mismatches uint64 // messages compared and wrong
	Error      string // the first failure, in words
}

// slots is how many messages the server has room for. It is more than are in
// flight, so that a slot can be verified and given back while others are used.
func (s *Spec) slots() int { return 2 * s.Depth }

// pattern is the bytes that messages are made of.
type pattern struct {
	bytes []byte
	size  uint64
}

// patternSpan is the range of the offsets at which messages begin, in bytes. It
// is a power of two, so that offsets repeat only after as many messages.
const patternSpan = 1 << 20

func newPattern(s *Spec) *pattern {
	random := rand.New(rand.NewPCG(s.Seed, 0x6E646B6C6162)) // "ndklab"
	b := make([]byte, (patternSpan+s.Size+7)&^7)
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], random.Uint64())
	}
	return &pattern{bytes: b, size: s.Size}
}

// offset is where message i begins in the pattern. The factor is odd, hence no
// two of patternSpan messages in a row share an offset.
func (p *pattern) offset(i uint64) uint64 { return i * 0x9E3779B97F4A7C15 % patternSpan }

// message is what message i consists of.
func (p *pattern) message(i uint64) []byte {
	offset := p.offset(i)
	return p.bytes[offset : offset+p.size]
}

// difference describes where got is not message i.
func (p *pattern) difference(i uint64, got []byte) string {
	for at, want := range p.message(i) {
		if got[at] != want {
			return fmt.Sprintf("message %d: byte %d is %#02x, sent was %#02x", i, at, got[at], want)
		}
	}
	return ""
}

// memory is registered memory, addressed from zero.
type memory struct {
	bytes []byte
	mr    *provider.MR
}

func register(pd *provider.PD, bytes []byte, flags provider.MRFlags) (*memory, error) {
	if len(bytes) == 0 {
		bytes = make([]byte, 1) // a region cannot be empty; messages of no bytes need some all the same
	}
	mr, status := pd.CreateMR(false, nil, nil)
	if status != provider.StatusSuccess {
		return nil, fmt.Errorf("create memory region: %w", status)
	}
	mdl := &provider.MDL{Bytes: bytes}
	if status := mr.Register(mdl, uint64(len(bytes)), flags, nil, nil); status != provider.StatusSuccess {
		mr.Close(func(any) {}, nil)
		return nil, fmt.Errorf("register %d bytes: %w", len(bytes), status)
	}
	return &memory{bytes: bytes, mr: mr}, nil
}

// sge is the piece of length bytes at offset.
func (m *memory) sge(offset, length uint64) provider.SGE {
	return provider.SGE{VirtualAddress: offset, Length: uint32(length), MemoryRegionToken: m.mr.LocalToken()}
}

// closers is the memory's region, if there is one.
func (m *memory) closers() []closer {
	if m == nil {
		return nil
	}
	return []closer{m.mr}
}

// grant is what the server tells the client when it accepts: the memory to write
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

func decodeGrant(b []byte) (grant, error) {
	if len(b) < grantLen {
		return grant{}, fmt.Errorf("the server's private data has %d bytes, not %d", len(b), grantLen)
	}
	return grant{binary.BigEndian.Uint64(b), binary.BigEndian.Uint32(b[8:])}, nil
}

// A closer is an NDK object.
type closer interface {
	Close(completion provider.CloseCompletion, context any) provider.Status
}

// closeAll closes objects and runs done when all are closed. An object's
// antecedents may stand before it: their close pends.
func closeAll(objects []closer, done func()) {
	var left atomic.Int64
	left.Store(int64(len(objects)) + 1)
	closed := func(any) {
		if left.Add(-1) == 0 {
			done()
		}
	}
	for _, o := range objects {
		if o.Close(closed, nil) != provider.StatusPending {
			closed(nil)
		}
	}
	closed(nil)
}
