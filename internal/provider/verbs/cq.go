package verbs

import (
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/ring"
)

// A Status is the outcome of a work request, numbered as ibv_wc_status.
type Status uint8

// The statuses.
const (
	Success Status = iota
	LocalLengthError
	LocalQPOperationError
	LocalEEContextError
	LocalProtectionError
	FlushError
	WindowBindError
	BadResponseError
	LocalAccessError
	RemoteInvalidRequestError
	RemoteAccessError
	RemoteOperationError
	RetryExceededError
	RNRRetryExceededError
	GeneralError = Status(21)
)

// statuses are those of package rc.
var statuses = [...]Status{
	rc.Success: Success, rc.LocalLength: LocalLengthError, rc.LocalProtection: LocalProtectionError,
	rc.BadOperation: WindowBindError, rc.Flushed: FlushError, rc.BadResponse: BadResponseError,
	rc.RemoteInvalidRequest: RemoteInvalidRequestError, rc.RemoteAccess: RemoteAccessError,
	rc.RemoteOperation: RemoteOperationError, rc.RetryExceeded: RetryExceededError, rc.RNRRetryExceeded: RNRRetryExceededError,
}

// An Opcode names the operation of a completion, numbered as ibv_wc_opcode.
type Opcode uint8

// The opcodes.
const (
	OpcodeSend Opcode = iota
	OpcodeWrite
	OpcodeRead
	OpcodeCompareSwap
	OpcodeFetchAdd
	OpcodeBindWindow
	OpcodeLocalInvalidate
	OpcodeAtomicWrite  Opcode = 9
	OpcodeReceive      Opcode = 128
	OpcodeReceiveWrite Opcode = 129 // of a WRITE with immediate data
)

// opcodes are those of package rc's operations.
var opcodes = [...]Opcode{
	rc.OpSend: OpcodeSend, rc.OpSendInvalidate: OpcodeSend, rc.OpSendImmediate: OpcodeSend,
	rc.OpWrite: OpcodeWrite, rc.OpWriteImmediate: OpcodeWrite, rc.OpRead: OpcodeRead,
	rc.OpFetchAdd: OpcodeFetchAdd, rc.OpCompareSwap: OpcodeCompareSwap, rc.OpAtomicWrite: OpcodeAtomicWrite,
	rc.OpBind: OpcodeBindWindow, rc.OpInvalidate: OpcodeLocalInvalidate,
	rc.OpReceive: OpcodeReceive, rc.OpReceiveInvalidate: OpcodeReceive, rc.OpReceiveImmediate: OpcodeReceive,
	rc.OpReceiveWrite: OpcodeReceiveWrite,
}

// A CompletionFlag says what else a completion has, as ibv_wc_flags.
type CompletionFlag uint8

// The flags.
const (
	HasGRH         CompletionFlag = 1 << 0
	HasImmediate   CompletionFlag = 1 << 1
	HasInvalidated CompletionFlag = 1 << 3
)

// A Network is by which protocol a datagram has come, or 0 (IBTA Annex A17, 4.5.1). ibv_wc has no place
// for it. Adapters tell it in the service level, which is no other thing's with RoCE; UCX depends on that to
// know where the GRH of a datagram has the destination.
type Network uint8

// The networks, as ConnectX numbers them: 8 stands for UDP.
const (
	NetworkIPv6 Network = 8 | 1
	NetworkIPv4 Network = 8 | 2
)

// A Completion is the end of a work request (ibv_wc).
type Completion struct {
	ID          uint64
	Status      Status
	Opcode      Opcode
	Flags       CompletionFlag
	VendorError uint32
	Bytes       uint32 // of a receive, or of a READ or an atomic
	Immediate   uint32 // host order
	Invalidated uint32 // token
	QPN         uint32
	SourceQPN   uint32        // of a datagram
	Network     Network       // of a datagram
	Solicited   bool          // it satisfies who is armed for what is solicited
	At          time.Duration // the device's clock
}

// A CQ is a completion queue.
type CQ struct {
	context *Context
	notify  func()       // nil: nobody is told
	holds   atomic.Int64 // queue pairs that use it

	mu      sync.Mutex // guards what follows
	entries ring.Ring[Completion]
	depth   int
	arm     arming
	idle    int  // polls in a row that found nothing while nobody would be told of the next entry
	awaited bool // it has been armed since its consumer polled again and again in vain
	looked  bool // it has not been armed since a poll received what arrives
	overrun bool // it is unusable, and so are its queue pairs
}

// arming names what the next entry is to notify of.
type arming uint8

const (
	unarmed arming = iota
	solicitedOnly
	anyEntry
)

// CreateCQ makes a completion queue for depth entries. notify, which may be nil, is called when what the CQ was
// armed for happens, with locks held: it must neither block nor call the context.
func (c *Context) CreateCQ(depth int, notify func()) (*CQ, error) {
	if depth < 1 || uint32(depth) > c.limits.CQEs {
		return nil, syscall.EINVAL
	}
	if err := c.take(&c.inUse.cqs, c.limits.CQs); err != nil {
		return nil, err
	}
	return &CQ{context: c, notify: notify, depth: depth}, nil
}

// Destroy ends the queue: EBUSY while a queue pair uses it.
func (cq *CQ) Destroy() error {
	if cq.holds.Load() > 0 {
		return syscall.EBUSY
	}
	cq.context.give(&cq.context.inUse.cqs)
	return nil
}

// Resize changes the depth: EINVAL if more entries are queued.
func (cq *CQ) Resize(depth int) error {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if depth < 1 || uint32(depth) > cq.context.limits.CQEs || depth < cq.entries.Len() {
		return syscall.EINVAL
	}
	cq.depth = depth
	return nil
}

// Arm asks for one notification, of the next entry, or of the next that was solicited or is an error. It is of
// entries to come: those that are queued already notify nobody (IBTA Vol. 1, 11.4.2.2).
func (cq *CQ) Arm(onlySolicited bool) {
	if cq.ask(onlySolicited) {
		cq.context.device.StopPolling() // which may add entries
	}
}

// ask arms the queue, and reports whether the consumer has received what arrives, and no longer does.
func (cq *CQ) ask(onlySolicited bool) (stops bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	cq.awaited, cq.idle = true, 0
	if onlySolicited {
		cq.arm = max(cq.arm, solicitedOnly)
		return false
	}
	cq.arm = anyEntry
	stops = cq.looked
	cq.looked = false
	return stops
}

// Poll removes up to len(to) entries, the oldest first, and says how many. A consumer that polls again and again in
// vain, and is not to be notified of any entry, receives what arrives for the device itself, within the call.
func (cq *CQ) Poll(to []Completion) int {
	n, idle := cq.take(to)
	cq.context.transport.FlushPosts()
	if idle && cq.context.device.Poll() {
		n, _ = cq.take(to)
	}
	return n
}

// take takes what is queued, and reports whether the consumer polls in vain.
func (cq *CQ) take(to []Completion) (n int, idle bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	for ; n < len(to) && cq.entries.Len() > 0; n++ {
		to[n] = *cq.entries.Oldest()
		cq.entries.Drop()
	}
	if n > 0 || cq.arm == anyEntry {
		cq.idle = 0
		return n, false
	}
	if cq.idle++; cq.idle > 1 {
		cq.awaited = false
	}
	cq.looked = cq.looked || !cq.awaited
	return 0, !cq.awaited
}

// drop removes the entries of a queue pair.
func (cq *CQ) drop(qpn uint32) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	kept := 0
	for i := range cq.entries.Len() {
		if entry := cq.entries.At(i); entry.QPN != qpn {
			*cq.entries.At(kept) = *entry
			kept++
		}
	}
	cq.entries.Keep(kept)
}

// push queues a completion, and notifies of it. awaited says that the consumer waits to be notified, now or as a rule.
// One more than the queue holds overruns it: then ok is false, and it is unusable for good (IBTA Vol. 1, 11.6.3.1).
func (cq *CQ) push(c *Completion, solicited bool) (awaited, ok bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	if cq.overrun {
		return false, true // told already
	}
	if cq.entries.Len() == cq.depth {
		cq.overrun = true
		return false, false
	}
	entry := cq.entries.Add(cq.depth)
	*entry = *c
	entry.Solicited = solicited
	if cq.arm == anyEntry || cq.arm == solicitedOnly && solicited {
		cq.arm = unarmed
		if cq.notify != nil {
			cq.notify()
		}
	}
	return cq.awaited, true
}
