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
// Start reading at Host.
package workload

import (
	"encoding/binary"
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A Spec is what both ends of one flow of a workload need to know. Where it is like
// topology.Workload, it means the same.
type Spec struct {
	Name      string
	Flow      int // index in topology.Workload's Flows
	Operation topology.Operation
	Measure   topology.Measure // "" is Bandwidth
	Size      uint64           // bytes per message, the largest of Sizes
	Sizes     []uint64         // of a sweep, one after the other, or of a mix; nil: Size alone
	Mixed     bool             // each message has a size drawn from Sizes
	Depth     int              // messages in flight on a QP
	QPs       int              // connections; 0 is 1
	Inline    bool
	SRQ       bool
	Polling   bool
	Rate      uint64        // bits of payload per second at most; 0: no limit
	Count     uint64        // messages; 0: until Duration has passed
	Duration  time.Duration // from when all connections are made
	WarmUp    time.Duration // before that, not measured
	Verify    bool
	Reconnect bool
	Seed      uint64
	// Rank is the place of the flow's client in the ring of an AllReduce, from 0, and Ranks
	// how many there are. Each rank serves for the one before it and runs to the one after it.
	Rank, Ranks int
}

// NewSpec is the spec of a flow, by index, of a workload whose patterns and draws are to
// come from a seed.
func NewSpec(w *topology.Workload, flow int, seed uint64) Spec {
	s := Spec{
		Name: w.Name, Flow: flow, Operation: w.Operation, Measure: w.Measure,
		Size: w.Size, Sizes: w.Sizes, Mixed: w.Mixed, Depth: w.Depth, QPs: w.QPs,
		Inline: w.Inline, SRQ: w.SRQ, Polling: w.Polling, Rate: w.Rate,
		Count: w.Count, Duration: w.Duration, WarmUp: w.WarmUp,
		Verify: w.Verify, Reconnect: w.Reconnect, Seed: seed,
	}
	if w.Operation == topology.AllReduce {
		s.Rank, s.Ranks = flow, len(w.Flows)
	}
	return s
}

// Result is what a client measured. Of a workload with WarmUp, all but Errors and Error
// are of the time after that.
type Result struct {
	Messages uint64 // completed with success
	Bytes    uint64 // payload of those
	Errors   uint64 // messages that failed, or arrived wrong at the client
	Error    string // the first failure, in words
	Seconds  float64

	Connections uint64 // made
	Reconnects  uint64 // of those, in place of failed ones
	Retried     uint64 // messages posted again after those
	// Recovered is the longest time, in seconds, in which nothing completed while there was
	// something to do.
	Recovered float64

	Latency

	// Series is the course of the workload, in pieces of 100 ms that follow each other from
	// when it was started. Of one that takes longer than 2,048 of them the pieces are twice
	// as long, and so on.
	Series []Sample
	Steps  []Step // of a sweep: its sizes, as far as they were done
}

// A Sample is what a client did in a piece of time. Messages of the warm-up count.
type Sample struct {
	At       float64 // seconds since the client was started, where the piece begins
	Seconds  float64 // of its length; the last one is shorter
	Messages uint64
	Bytes    uint64
	Errors   uint64
	P50, P99 float64 // of the latency, in microseconds; 0 if nothing completed
}

// A Step is what a client measured of one size of a sweep.
type Step struct {
	Size     uint64 // bytes per message
	Messages uint64
	Errors   uint64
	Seconds  float64
	Latency
}

// Latency is how long messages took from post to completion; if Measure is Latency, half
// of a round trip. Latencies adds up those of several clients and gives percentiles.
type Latency struct {
	LatencyMin, LatencyMax time.Duration
	Histogram              []byte // HDR histogram of nanoseconds, as the library encodes it; nil: no messages
}

// ServerResult is what a server found.
type ServerResult struct {
	Verified   uint64 // messages compared and right
	Mismatches uint64 // messages compared and wrong
	Error      string // the first failure, in words
}

// An instance is the adapter instance of one end of a workload.
type instance struct {
	*provider.Adapter
	unsubscribe func()
}

// disabled is why a workload ends when its adapter is disabled.
const disabled = "the adapter was disabled"

// open opens an instance of the device, and has disable called when the device
// asks for it to be closed. The error says which of the device's limits are too
// narrow for the workload.
func (s *Spec) open(m *provider.Miniport, disable func()) (*instance, error) {
	// Before the instance is open, so that no event about it is missed.
	unsubscribe := m.Subscribe(func(e provider.NetEvent) {
		select {
		case <-e.Done: // by enabling, or a disabling that was over when the instance was opened
		default:
			disable()
		}
	})
	a, status := m.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		unsubscribe()
		return nil, fmt.Errorf("open adapter: %w", status)
	}
	i := &instance{a, unsubscribe}
	if err := s.fits(a.Info()); err != nil {
		i.close(func() {})
		return nil, err
	}
	return i, nil
}

// close closes the instance and calls done when everything made on it is closed.
func (i *instance) close(done func()) {
	i.unsubscribe()
	i.BeginClose(done)
}

// fits says which of an adapter's limits is too narrow for the workload.
func (s *Spec) fits(info provider.AdapterInfo) error {
	slots := uint64(s.slots())
	for _, l := range []struct {
		name        string
		needed, has uint64
	}{
		{"MaxInitiatorQueueDepth", 2 * slots, uint64(info.MaxInitiatorQueueDepth)},
		{"MaxReceiveQueueDepth", slots, uint64(info.MaxReceiveQueueDepth)},
		{"MaxCqDepth", 4 * slots, uint64(info.MaxCqDepth)},
		{"MaxTransferLength", s.Size, uint64(info.MaxTransferLength)},
		{"MaxRegistrationSize", max(slots*s.Size, patternLen(s)), info.MaxRegistrationSize},
		{"MaxInlineDataSize", noticeLen, uint64(info.MaxInlineDataSize)},
		{"MaxCalleeData", grantLen, uint64(info.MaxCalleeData)},
	} {
		if l.needed > l.has {
			return fmt.Errorf("it needs a %s of %d, the adapter has %d", l.name, l.needed, l.has)
		}
	}
	return nil
}

// reads is how many READs a connection may have in progress in either
// direction: what perftest asks for, or as many as the adapter can.
func (i *instance) reads() (inbound, outbound uint32) {
	const asked = 16
	info := i.Info()
	return min(asked, info.MaxInboundReadLimit), min(asked, info.MaxOutboundReadLimit)
}

// slots is how many messages the server has room for. It is more than are in
// flight, so that a slot can be verified and given back while others are used.
func (s *Spec) slots() int { return 2 * s.Depth }

// pattern is the bytes that messages are made of.
type pattern struct {
	bytes []byte
	size  uint64
	span  uint64 // patternSpan
}

// The range of the offsets at which messages begin, in bytes: the most, which is that
// of workloads of many messages, and the least.
const (
	mostSpan  = 1 << 20
	leastSpan = 1 << 14
)

// patternSpan is that range for a workload. It is a power of two, so that offsets
// repeat only after as many messages. Where all messages together are short, so is the
// range, of twice their length at least: patterns that thousands of nodes have at once
// take time and memory.
func patternSpan(s *Spec) uint64 {
	span := uint64(mostSpan)
	for s.Count != 0 && span > leastSpan && span/4 >= s.Count*max(s.Size, 1) && s.Count < span {
		span /= 2
	}
	return span
}

// patternLen is the length of a workload's pattern in bytes: whole words.
func patternLen(s *Spec) uint64 { return (patternSpan(s) + s.Size + 7) &^ 7 }

func newPattern(s *Spec) *pattern {
	random := rand.New(rand.NewPCG(s.Seed, 0x6E646B6C6162)) // "ndklab"
	b := make([]byte, patternLen(s))
	for i := 0; i < len(b); i += 8 {
		binary.LittleEndian.PutUint64(b[i:], random.Uint64())
	}
	return &pattern{bytes: b, size: s.Size, span: patternSpan(s)}
}

// offset is where message i begins in the pattern. The factor is odd, hence no
// two of span messages in a row share an offset.
func (p *pattern) offset(i uint64) uint64 { return i * 0x9E3779B97F4A7C15 % p.span }

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

// closeAll closes objects and then their instance, and runs done when all is
// closed. An object's antecedents may stand before it: their close pends.
// Without an instance there are no objects.
func closeAll(objects []closer, i *instance, done func()) {
	if i == nil {
		done()
		return
	}
	for _, o := range objects {
		o.Close(func(any) {}, nil)
	}
	i.close(done) // which pends until they are closed
}
