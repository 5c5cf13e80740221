package provider

import (
	"errors"

	"github.com/ndklab/ndklab/internal/provider/rc"
)

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
// OpReadLocalInvalidate ends the token of the first SGE, an FRMR's, when the
// data is there; it is ignored on an adapter without that flag (NDK-INV-08). A
// FastRegister of that FRMR may be posted behind the read, with OpReadFence.
func (qp *QP) Read(context any, sgl []SGE, remoteAddress uint64, remoteToken uint32, flags OpFlags) Status {
	info := &qp.pd.adapter.miniport.info
	limit := min(qp.maxSend, int(info.MaxReadRequestSge)) // ndkpi.md T58
	if info.AdapterFlags&AdapterReadLocalInvalidate == 0 {
		flags &^= OpReadLocalInvalidate
	}
	return qp.post(&rc.Request{Op: rc.OpRead, Context: context, VA: remoteAddress, Token: remoteToken},
		sgl, limit, flags, opFlagsOfRead)
}

// post queues an initiator request and, unless it is deferred, starts what is
// queued. A request that is refused starts what was deferred before it all the
// same (NDK-DEFER-03).
func (qp *QP) post(r *rc.Request, sgl []SGE, maxSGE int, flags, allowed OpFlags) Status {
	qp.channel.Lock()
	defer qp.channel.Unlock()
	status := qp.queue(r, sgl, maxSGE, flags, allowed)
	if status == StatusSuccess && r.InvalidateLocal {
		qp.memory.addPendingRead(sgl[0].MemoryRegionToken)
	}
	if status != StatusSuccess || flags&OpDefer == 0 {
		qp.channel.ProgressAfterPost()
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
		qp.sgl = appendPieces(qp.sgl[:0], sgl)
		r.SGL = qp.sgl
	}
	r.Silent = flags&OpSilentSuccess != 0
	r.Fence = flags&OpReadFence != 0
	r.Solicited = flags&OpSendAndSolicitEvent != 0
	if flags&OpReadLocalInvalidate != 0 && len(sgl) > 0 {
		if qp.memory.isPermanent(sgl[0].MemoryRegionToken) {
			return StatusInvalidParameter
		}
		r.InvalidateLocal = true
	}
	return postStatus(qp.channel.QP.Post(r))
}

// appendPieces appends sgl, as package rc has it, to dst.
func appendPieces(dst []rc.SGE, sgl []SGE) []rc.SGE {
	for i := range sgl {
		dst = append(dst, rc.SGE{
			Address: sgl[i].VirtualAddress, Length: sgl[i].Length, Token: sgl[i].MemoryRegionToken,
		})
	}
	return dst
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
// the queue pair is connected. A queue pair with an SRQ has no queue for it:
// StatusInvalidDeviceRequest.
func (qp *QP) Receive(context any, sgl []SGE) Status {
	if qp.srq != nil {
		return StatusInvalidDeviceRequest
	}
	if status := qp.pd.adapter.miniport.info.checkReceive(sgl, qp.maxReceive); status != StatusSuccess {
		return status
	}
	qp.channel.Lock()
	defer qp.channel.Unlock()
	qp.sgl = appendPieces(qp.sgl[:0], sgl)
	if err := qp.receives.Post(&rc.Receive{Context: context, SGL: qp.sgl}); err != nil {
		return postStatus(err)
	}
	if qp.channel.QP.State() == rc.Error {
		qp.flush()
	}
	return StatusSuccess
}

// checkReceive says what is wrong with a receive for a queue of up to maxSGE
// pieces per receive.
func (i *AdapterInfo) checkReceive(sgl []SGE, maxSGE int) Status {
	if len(sgl) > maxSGE {
		return StatusDataOverrun
	}
	total := uint64(0)
	for i := range sgl {
		total += uint64(sgl[i].Length)
	}
	if total > uint64(i.MaxTransferLength) {
		return StatusBufferOverflow
	}
	return StatusSuccess
}
