// Package rc is the reliable connection: the state machine of one queue pair,
// requester and responder, as roce.md sections 5 to 8 define it.
//
// It is pure: packets, posted requests and the present time go in; packets,
// completions and the next deadline come out. It starts no goroutine, takes no
// lock, reads no clock and draws no random number; whoever drives it (package
// provider) serialises the calls on one QP and moves the packets. It knows
// nothing of NDK objects: memory is behind the Memory interface, statuses are
// those of roce.md section 8.
//
// The send queue carries two kinds of requests: those that make packets, and
// local operations on memory (a window to be bound, a region to be registered
// or invalidated), which make none and are done when their turn comes.
//
// Start reading at QP; requester.go and responder.go are its two halves. The requester
// has a sendQueue (which requests there are, and how far they have got), a window
// (how much may be in flight), timers with an estimate of the round trip, a probe
// (what happens when the timer runs out) and, while something is missing, a
// scoreboard, from which rack.go tells what is lost. localop.go says how local
// operations fit in between packets, and early.go how two of our own adapters keep
// what arrives early. pacing.go has what congestion control and a busy line hold back.
//
// With a peer of another make either half goes back N. Its responder could keep
// early packets too without the peer noticing (roce.md 14.5), but would gain
// little: the NAK that a gap calls for has the peer send everything from there
// on again, whether it was lost or only late.
package rc

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/congestion"
)

// An Op is the kind of a request or completion.
type Op uint8

// The operations.
const (
	OpSend Op = iota + 1
	OpSendInvalidate
	OpSendImmediate
	OpWrite
	OpWriteImmediate
	OpRead
	OpFetchAdd // this and the next two are atomic
	OpCompareSwap
	OpAtomicWrite
	OpBind         // of a memory window; this and the next two are local
	OpFastRegister // of a memory region
	OpInvalidate   // of a local token
	OpReceive      // with an error, of whatever the peer sent
	OpReceiveInvalidate
	OpReceiveImmediate
	OpReceiveWrite // a receive that a WRITE with immediate data has taken, and left as it was
)

// A Status says how a request ended.
type Status uint8

// The statuses (roce.md section 8).
const (
	Success Status = iota
	LocalLength
	LocalProtection
	BadOperation // a local operation that cannot be carried out
	Flushed
	BadResponse
	RemoteInvalidRequest
	RemoteAccess
	RemoteOperation
	RetryExceeded
	RNRRetryExceeded
)

// An SGE is a piece of local memory, by token.
type SGE struct {
	Address uint64
	Length  uint32
	Token   uint32
}

// Access says how memory is to be accessed, and from which end.
type Access uint8

// The accesses.
const (
	LocalRead Access = iota
	LocalWrite
	ReadSink // local write by the response to a read
	RemoteRead
	RemoteWrite
	RemoteAtomic
	RemoteAtomicWrite // of what may be written
)

// Rights bound what the peer may do with this QP to the memory that it has tokens for. Of what
// it may not, memory is not asked.
type Rights uint8

// The rights.
const (
	AllowRead Rights = 1 << iota
	AllowWrite
	AllowAtomic
	AllowAtomicWrite // of memory that may be written, without AllowAtomic too, as Linux's rxe has it
)

// Memory is the protection domain as a QP sees it. Local and Remote append the
// byte ranges, in order, to dst and return it; ok is false if any check fails,
// and then nothing may be touched. The ranges are used at once and not kept.
type Memory interface {
	// Local resolves a piece of local memory.
	Local(dst [][]byte, sge SGE, access Access) (_ [][]byte, ok bool)
	// Remote resolves what the peer names: length bytes at va under token.
	Remote(dst [][]byte, token uint32, va uint64, length uint32, access Access) (_ [][]byte, ok bool)
	// Atomic carries out one of the atomic operations on the 8 bytes that Remote has just
	// resolved for RemoteAtomic, or RemoteAtomicWrite, in host order, and returns what they were: OpFetchAdd adds
	// operand, OpCompareSwap stores it if they equal compare, OpAtomicWrite stores it. va is a
	// multiple of 8.
	Atomic(op Op, token uint32, va uint64, operand, compare uint64) (original uint64)
	// Invalidate ends a token on the peer's behalf (SEND with invalidate).
	Invalidate(token uint32) bool
	// InvalidateLocal ends a token of the consumer's own, into which a READ has
	// been completed (READ with local invalidate).
	InvalidateLocal(token uint32) bool
}

// A LocalOperation carries out an OpBind, OpFastRegister or OpInvalidate.
type LocalOperation interface {
	// Perform carries it out, at most once, from within Next. It must not call
	// the QP. Success means that it has taken effect; any other status but
	// Flushed ends the connection as a failed request does.
	Perform() Status
}

// A Request is one posted initiator request. The QP keeps a copy, also of SGL.
// Local operations use Op, Context, Local, Silent and Fence only.
type Request struct {
	Op        Op
	Context   any
	SGL       []SGE
	Inline    []byte // the payload itself instead of SGL; copied by the post
	VA        uint64 // remote, of what writes, reads or is atomic
	Token     uint32 // remote, of those and of OpSendInvalidate
	Immediate uint32 // of OpSendImmediate and OpWriteImmediate
	Silent    bool   // success makes no completion
	Fence     bool   // start only when all earlier reads and atomics are complete
	Solicited bool

	// Operand is the number that OpFetchAdd adds, OpAtomicWrite stores, and OpCompareSwap stores where it
	// finds Compare. The number that was there before goes into the first 8 bytes of the SGL, in
	// host order; OpAtomicWrite does not tell it.
	Operand, Compare uint64

	Local LocalOperation // of OpBind, OpFastRegister and OpInvalidate

	// InvalidateLocal has an OpRead end the token of its first piece, if it has
	// any, when all data is in place and before it completes.
	InvalidateLocal bool
}

// A Receive is one posted receive.
type Receive struct {
	Context any
	SGL     []SGE
}

// Receives is the queue that the responder takes receives from: the QP's own or
// one shared with others.
type Receives interface {
	// Take moves the oldest receive to r, its SGL into the space that r.SGL
	// has, so that it is the taker's; false if there is none. It is called from
	// within Handle and Flush.
	Take(r *Receive) bool
}

// A Completion is the end of a request.
type Completion struct {
	Op        Op
	Status    Status
	Context   any
	Bytes     uint32 // of a receive: the message's length
	Token     uint32 // of OpReceiveInvalidate: what was invalidated
	Immediate uint32 // of OpReceiveImmediate and OpReceiveWrite
	Solicited bool   // satisfies a wait for solicited events: asked for by the sender, or an error
}

// A Config is fixed when a QP is made.
type Config struct {
	SendDepth int // requests outstanding at once
	MaxSGE    int // pieces per request
	MaxInline int // bytes of inline data per request
	Receives  Receives
	// SharedReceives says that other QPs take from Receives too, so that what
	// is left in it survives this QP's end.
	SharedReceives bool
	unplaced       bool // settle found memory missing, which Scatter has not told yet
	Memory         Memory
	// Place copies data to ranges that Memory has resolved, as Scatter does, where that may fail: false
	// has the QP do as if they had not been resolved. nil: Scatter.
	Place func(ranges [][]byte, data []byte) (ok bool)
	// Placed is called before anybody is told of what Place has copied, or its data is gone. Place may put off copying
	// until then; false says that some could not be copied. nil: Place puts off nothing.
	Placed func() (ok bool)
	Early  EarlyMemory // nil: only earlyBytes bounds it
}

// A Connection has the parameters that the two ends agree on (roce.md sections 10
// and 11).
type Connection struct {
	RemoteQPN   uint32
	SendPSN     uint32 // of our first request
	ReceivePSN  uint32 // of the peer's first request
	MinRNRTimer uint8  // code we send in RNR NAKs (roce.md 2.3)
	Rights      Rights // of the peer
	// ReceiveOnly says that the QP receives and answers, and takes no requests before ConnectToSend, which
	// brings what Sending has (RTR; roce.md 8).
	ReceiveOnly bool
	// Selective says that both ends keep packets that arrive early and send again
	// only what is missing (early.go): the peer is one of ours and agreed to it.
	// Otherwise either end goes back to the packet that is missing.
	Selective          bool
	MTU                int // payload bytes per packet: 256, 512, 1024, 2048 or 4096
	InitiatorDepth     int // READs and atomics we may have outstanding
	ResponderResources int // and the peer
	// AckTimeout and RetryCount are those that a NIC would retry by: with nothing
	// acknowledged for RetryCount+1 AckTimeouts, the QP gives up. Resending is
	// sooner (see roundTrip). An AckTimeout of 0 is for ever.
	AckTimeout    time.Duration
	RetryCount    int
	RNRRetryCount int // 7 is for ever
	// AckDelay is the longest time that the peer says it may take to acknowledge.
	// Resending is not sooner, unless the peer has been much quicker so far. Peers
	// of our kind announce none, as they are always quicker.
	AckDelay time.Duration
	// Credit bounds the bytes in flight beyond what the path itself holds: it is
	// the receive buffer that was really granted at the end where it is smaller,
	// since the responses to READs fill our own. A packet counts as its payload
	// and PacketOverhead bytes.
	Credit int
	// Pacer says when packets may be sent that have data or ask for it, and how many may be in flight; nil: at any time, and
	// as Credit says. If it is Unbounded, Credit bounds nothing.
	Pacer *congestion.Pacer
}

// PacketOverhead counts for a packet in flight beside its payload, in bytes:
// headers, and what the kernel charges a receive buffer for holding it.
const PacketOverhead = 512

// A State is a QP's (roce.md section 8; RTR and RTS are one here, since NDK
// connects both directions at once).
type State uint8

// The states.
const (
	Init  State = iota // receives may be posted
	Ready              // connected
	Error              // every request is flushed
)

// Counters count what a QP did since it was made, in packets unless named
// otherwise.
type Counters struct {
	Sent, Received           uint64
	Retransmitted            uint64 // request packets sent again
	Spurious                 uint64 // of those, that the peer turned out to have
	Duplicates               uint64 // requests received again
	OutOfSequence            uint64 // requests or responses ahead of what was expected
	NAKsSent, NAKsReceived   uint64 // sequence errors
	RNRsSent, RNRsReceived   uint64
	Timeouts                 uint64 // times the local timer ran out
	AcknowledgementsSent     uint64 // selective ones too
	AcknowledgementsReceived uint64
	// EarlyDropped counts those that came too far ahead to be kept, or for which there was
	// no EarlyMemory. BadLengths were longer or shorter than the opcode and the path MTU
	// demand: they are dropped, and end the connection when they come in their turn.
	EarlyDropped, BadLengths uint64
}
