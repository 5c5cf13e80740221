package provider

import (
	"errors"
	"sync"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/rc"
	"github.com/ndklab/ndklab/provider/roce"
)

// batchSize is how many packets are gathered before they are handed to the
// carrier: four super-packets of 15 full-sized packets each (design: 64 KiB is
// the most that one system call's segments may add up to).
const batchSize = 60

// A QP is a queue pair.
type QP struct {
	object
	Dispatch    QPDispatch // as Adapter.Dispatch
	pd          *PD
	receiveCQ   *CQ
	initiatorCQ *CQ
	context     any
	number      uint32
	maxSend     int // pieces per request
	maxReceive  int
	maxInline   int

	mu       sync.Mutex // guards what follows
	rc       *rc.QP
	receives *rc.ReceiveQueue
	flow     roce.Flow
	// connected says that the consumer has been told so: only then may it post
	// initiator requests (ndkpi.md T57). The connection itself may carry
	// packets earlier.
	connected bool
	// listening says that the peer's first request is to be reported to the
	// connector: it stands in for a lost RTU (roce.md 11).
	listening   bool
	busy        bool       // counted in Miniport.busy
	failed      bool       // the connector knows of the error, or need not
	connector   *Connector // the connector this QP is used with, nil if none
	timer       clock.Timer
	timerAt     time.Duration // when the timer will run; 0: it is not pending
	batch       [batchSize]roce.Packet
	completions []rc.Completion // scratch of progress
	sgl         []rc.SGE        // scratch of posts
	inline      []byte          // scratch of posts
}

// CreateQP makes a queue pair. Each number is at most the adapter's limit of
// the like name; receives complete on receiveCQ, all else on initiatorCQ, and
// both may be one queue.
func (pd *PD) CreateQP(receiveCQ, initiatorCQ *CQ, qpContext any, receiveQueueDepth, initiatorQueueDepth,
	maxReceiveRequestSge, maxInitiatorRequestSge, inlineDataSize uint32,
	completion CreateCompletion, context any) (*QP, Status) {
	m := pd.adapter.miniport
	info := &m.info
	if receiveCQ == nil || initiatorCQ == nil ||
		receiveQueueDepth > info.MaxReceiveQueueDepth || initiatorQueueDepth > info.MaxInitiatorQueueDepth ||
		maxReceiveRequestSge > info.MaxReceiveRequestSge || maxInitiatorRequestSge > info.MaxInitiatorRequestSge ||
		inlineDataSize > info.MaxInlineDataSize {
		return nil, StatusInvalidParameter
	}
	qp := &QP{
		pd: pd, receiveCQ: receiveCQ, initiatorCQ: initiatorCQ, context: qpContext,
		maxSend: int(maxInitiatorRequestSge), maxReceive: int(maxReceiveRequestSge), maxInline: int(inlineDataSize),
		receives: rc.NewReceiveQueue(int(receiveQueueDepth), int(maxReceiveRequestSge)),
	}
	qp.rc = rc.NewQP(rc.Config{
		SendDepth: int(initiatorQueueDepth), MaxSGE: qp.maxSend, MaxInline: qp.maxInline,
		Receives: qp.receives, Memory: pd,
	})
	if !qp.reserve(m, qpResource, m.capabilities.MaxQpCount) {
		return nil, StatusInsufficientResources
	}
	qp.Dispatch = qp
	qp.init(pd.clock, ObjectTypeQP, &pd.object, &receiveCQ.object, &initiatorCQ.object)
	// Last: packets may come in as soon as it is in the table.
	if !m.qps.add(qp) {
		qp.discard()
		return nil, StatusInsufficientResources
	}
	// In the table, where a CQ that fails from now on finds it.
	if !receiveCQ.usable() || !initiatorCQ.usable() {
		m.qps.remove(qp)
		qp.discard()
		return nil, StatusInvalidDeviceState
	}
	return created(m, qp, &qp.object, completion, context)
}

// Close flushes what is pending and closes the queue pair.
func (qp *QP) Close(completion CloseCompletion, context any) Status {
	return qp.close(qp.Flush, func() {
		qp.mu.Lock()
		if qp.timer != nil {
			qp.timer.Stop()
		}
		counted := qp.rc.Counters() // the last: in Error it counts nothing
		qp.mu.Unlock()
		qp.pd.adapter.miniport.retire(qp, counted)
	}, completion, context)
}

// Number is the queue pair's number on the wire.
func (qp *QP) Number() uint32 { return qp.number }

// Flush cancels every pending request of both queues; they complete with
// StatusCancelled. On a queue pair that was connected it is the beginning of
// the end: it carries nothing any more (ndkpi.md T48).
func (qp *QP) Flush() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.flush()
}

// flush is Flush with qp.mu held.
func (qp *QP) flush() {
	if qp.rc.State() == rc.Init {
		var r rc.Receive
		for qp.receives.Take(&r) {
			qp.complete(&rc.Completion{Op: rc.OpReceive, Status: rc.Flushed, Context: r.Context, Solicited: true})
		}
		return
	}
	qp.failed = true // nobody needs to be told
	qp.rc.Flush()
	qp.progress(qp.clock.Now())
}

// fail ends the queue pair because a CQ of its own has failed (NDK-CQ-24).
func (qp *QP) fail() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.rc.Flush()
	qp.progress(qp.clock.Now())
}

// Send sends a message into the peer's next receive.
func (qp *QP) Send(context any, sgl []SGE, flags OpFlags) Status {
	return qp.post(&rc.Request{Op: rc.OpSend, Context: context}, sgl, qp.maxSend, flags, opFlagsOfSend)
}

// SendAndInvalidate is Send that also ends the peer's token remoteToken before
// the peer's receive completes.
func (qp *QP) SendAndInvalidate(context any, sgl []SGE, flags OpFlags, remoteToken uint32) Status {
	return qp.post(&rc.Request{Op: rc.OpSendInvalidate, Context: context, Token: remoteToken},
		sgl, qp.maxSend, flags, opFlagsOfSend)
}

// Write writes to the peer's memory at remoteAddress (host order, in the
// region's own addresses) under remoteToken.
func (qp *QP) Write(context any, sgl []SGE, remoteAddress uint64, remoteToken uint32, flags OpFlags) Status {
	return qp.post(&rc.Request{Op: rc.OpWrite, Context: context, VA: remoteAddress, Token: remoteToken},
		sgl, qp.maxSend, flags, opFlagsOfWrite)
}

// Read reads the peer's memory at remoteAddress under remoteToken into sgl.
// OpReadLocalInvalidate is ignored, as on every adapter without that flag
// (NDK-INV-08).
func (qp *QP) Read(context any, sgl []SGE, remoteAddress uint64, remoteToken uint32, flags OpFlags) Status {
	limit := min(qp.maxSend, int(qp.pd.adapter.miniport.info.MaxReadRequestSge)) // ndkpi.md T58
	return qp.post(&rc.Request{Op: rc.OpRead, Context: context, VA: remoteAddress, Token: remoteToken},
		sgl, limit, flags, opFlagsOfRead)
}

// post queues an initiator request and, unless it is deferred, starts what is
// queued. A request that is refused starts what was deferred before it all the
// same (NDK-DEFER-03).
func (qp *QP) post(r *rc.Request, sgl []SGE, maxSGE int, flags, allowed OpFlags) Status {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	now := qp.clock.Now()
	status := qp.queue(r, sgl, maxSGE, flags, allowed)
	if status != StatusSuccess || flags&OpDefer == 0 {
		qp.progress(now)
	}
	return status
}

func (qp *QP) queue(r *rc.Request, sgl []SGE, maxSGE int, flags, allowed OpFlags) Status {
	if flags&^allowed != 0 {
		return StatusInvalidParameter
	}
	if !qp.connected {
		return StatusConnectionInvalid
	}
	total := uint64(0)
	for i := range sgl {
		total += uint64(sgl[i].Length)
	}
	if flags&OpInline != 0 {
		if total > uint64(qp.maxInline) {
			return StatusInvalidParameter
		}
		qp.inline = qp.inline[:0]
		for i := range sgl {
			if uint64(len(sgl[i].Inline)) != uint64(sgl[i].Length) {
				return StatusInvalidParameter
			}
			qp.inline = append(qp.inline, sgl[i].Inline...)
		}
		r.Inline = qp.inline
	} else {
		if len(sgl) > maxSGE {
			return StatusDataOverrun
		}
		if total > uint64(qp.pd.adapter.miniport.info.MaxTransferLength) {
			return StatusBufferOverflow
		}
		r.SGL = qp.pieces(sgl)
	}
	r.Silent = flags&OpSilentSuccess != 0
	r.Fence = flags&OpReadFence != 0
	r.Solicited = flags&OpSendAndSolicitEvent != 0
	return postStatus(qp.rc.Post(r))
}

// pieces is sgl as package rc has it, in scratch memory.
func (qp *QP) pieces(sgl []SGE) []rc.SGE {
	qp.sgl = qp.sgl[:0]
	for i := range sgl {
		qp.sgl = append(qp.sgl, rc.SGE{
			Address: sgl[i].VirtualAddress, Length: sgl[i].Length, Token: sgl[i].MemoryRegionToken,
		})
	}
	return qp.sgl
}

func postStatus(err error) Status {
	switch {
	case err == nil:
		return StatusSuccess
	case errors.Is(err, rc.ErrFull):
		return StatusNoMoreEntries
	case errors.Is(err, rc.ErrNoReads):
		return StatusInvalidDeviceState // NDK-RL-13
	case errors.Is(err, rc.ErrState):
		return StatusConnectionInvalid
	default:
		return StatusInvalidParameter
	}
}

// Receive posts a buffer for one of the peer's sends. It may be called before
// the queue pair is connected.
func (qp *QP) Receive(context any, sgl []SGE) Status {
	if len(sgl) > qp.maxReceive {
		return StatusDataOverrun
	}
	total := uint64(0)
	for i := range sgl {
		total += uint64(sgl[i].Length)
	}
	if total > uint64(qp.pd.adapter.miniport.info.MaxTransferLength) {
		return StatusBufferOverflow
	}
	qp.mu.Lock()
	defer qp.mu.Unlock()
	if err := qp.receives.Post(&rc.Receive{Context: context, SGL: qp.pieces(sgl)}); err != nil {
		return postStatus(err)
	}
	if qp.rc.State() == rc.Error {
		qp.flush()
	}
	return StatusSuccess
}

// established lets the consumer post.
func (qp *QP) established() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.listening = false
	qp.connected = qp.rc.State() == rc.Ready
}

// receive handles packets that arrived together for this queue pair.
func (qp *QP) receive(packets []roce.Received) {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	now := qp.clock.Now()
	counters := &qp.pd.adapter.miniport.counters
	frames, octets := 0, 0
	requested := false
	for i := range packets {
		p := &packets[i]
		// roce.md 7.1 (1): what is not from the peer is nobody's.
		if p.Flow.Remote != qp.flow.Remote || p.Flow.Local != qp.flow.Local || p.Header.PKey|0x8000 != 0xFFFF {
			counters.misdirected.Add(1)
			continue
		}
		frames++
		octets += frameOctets(&p.Flow, p.Header.Opcode, len(p.Payload))
		requested = requested || p.Header.Opcode.IsRequest()
		qp.rc.Handle(now, &p.Header, p.Payload)
	}
	counters.inOctets.Add(uint64(octets))
	counters.inFrames.Add(uint64(frames))
	if qp.listening && requested {
		qp.listening = false
		qp.clock.Go(qp.connector.noteTraffic)
	}
	qp.progress(now)
}

// progress moves what the state machine has to say: packets to the carrier,
// completions to the CQs, its deadline to the timer, its failure to the
// connector. qp.mu is held.
func (qp *QP) progress(now time.Duration) {
	qp.rc.SetCredit(qp.pd.adapter.miniport.credit(qp.busy))
	for {
		n, octets := 0, 0
		for n < len(qp.batch) && qp.rc.Next(now, &qp.batch[n]) {
			octets += frameOctets(&qp.flow, qp.batch[n].Header.Opcode, qp.batch[n].PayloadLen())
			n++
		}
		if n == 0 {
			break
		}
		qp.pd.adapter.miniport.counters.outOctets.Add(uint64(octets))
		qp.pd.adapter.miniport.counters.outFrames.Add(uint64(n))
		if err := qp.pd.adapter.miniport.carrier.Send(qp.flow, qp.batch[:n]); err != nil {
			qp.rc.Flush() // the carrier is closed: nothing will ever be answered
		}
	}
	qp.completions = qp.rc.Completions(qp.completions[:0])
	for i := range qp.completions {
		qp.complete(&qp.completions[i])
	}
	clear(qp.completions) // lets go of the consumer's contexts
	if qp.rc.State() == rc.Error {
		if !qp.failed && qp.connector != nil {
			qp.clock.Go(qp.connector.lost)
		}
		qp.failed = true
	}
	if busy := qp.rc.Busy(); busy != qp.busy {
		qp.busy = busy
		if busy {
			qp.pd.adapter.miniport.busy.Add(1)
		} else {
			qp.pd.adapter.miniport.busy.Add(-1)
		}
	}
	qp.setTimer(now)
}

// setTimer has the timer run at the state machine's deadline or earlier. An
// earlier one that is pending stays: moving it with each packet would cost more
// than one idle run now and then.
func (qp *QP) setTimer(now time.Duration) {
	deadline, ok := qp.rc.Deadline()
	if !ok || qp.timerAt != 0 && qp.timerAt <= deadline {
		return
	}
	qp.timerAt = max(deadline, 1)
	if qp.timer == nil {
		qp.timer = qp.clock.AfterFunc(deadline-now, qp.timeout)
	} else {
		qp.timer.Reset(deadline - now)
	}
}

func (qp *QP) timeout() {
	qp.mu.Lock()
	defer qp.mu.Unlock()
	qp.timerAt = 0
	now := qp.clock.Now()
	if deadline, ok := qp.rc.Deadline(); ok && deadline <= now {
		qp.rc.HandleTimeout(now)
		qp.progress(now)
		return
	}
	qp.setTimer(now)
}

// complete moves a completion to its CQ.
func (qp *QP) complete(c *rc.Completion) {
	result := ResultEx{
		Result: Result{Status: completionStatus(c), QPContext: qp.context, RequestContext: c.Context},
	}
	cq := qp.initiatorCQ
	switch c.Op {
	case rc.OpReceive, rc.OpReceiveInvalidate:
		cq = qp.receiveCQ
		result.Type = OperationTypeReceive
		result.BytesTransferred = c.Bytes
		if c.Op == rc.OpReceiveInvalidate {
			result.Type = OperationTypeReceiveAndInvalidate
			result.TypeSpecificCompletionOutput = uint64(c.Token)
		}
	case rc.OpSend, rc.OpSendInvalidate:
		result.Type = OperationTypeSend
	case rc.OpRead:
		result.Type = OperationTypeRead
	case rc.OpWrite:
		result.Type = OperationTypeWrite
	}
	if c.Status != rc.Success {
		result.ProviderErrorCode = uint32(c.Status)
	}
	cq.push(&result, c.Solicited)
}

// completionStatus is the NTSTATUS of a completion (ndkpi.md 2.9).
func completionStatus(c *rc.Completion) Status {
	switch c.Status {
	case rc.Success:
		return StatusSuccess
	case rc.Flushed:
		return StatusCancelled
	case rc.LocalLength:
		if c.Op == rc.OpReceive || c.Op == rc.OpReceiveInvalidate {
			return StatusBufferOverflow
		}
		return StatusDataOverrun
	case rc.LocalProtection:
		return StatusAccessViolation
	case rc.BadResponse:
		return StatusDataError
	case rc.RemoteInvalidRequest, rc.RemoteAccess, rc.RemoteOperation:
		return StatusRemoteResources
	case rc.RetryExceeded, rc.RNRRetryExceeded:
		return StatusIOTimeout
	default:
		return StatusInternalError
	}
}
