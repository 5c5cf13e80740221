package provider

import (
	"sync"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/sharing"
)

// An SRQ is a shared receive queue: receives that several queue pairs take from.
// One that a queue pair has taken completes on that queue pair's receive CQ; a
// queue pair that finds none has its peer try again until there is one
// (NDK-SRQ-13).
type SRQ struct {
	object
	Dispatch     SRQDispatch // as Adapter.Dispatch
	pd           *PD
	notification SRQNotification
	context      any
	callbacks    callbacks
	succeed      func() // calls notification with StatusSuccess
	maxReceive   int    // pieces per receive

	mu       sync.Mutex // guards what follows; taken inside QP.mu
	receives *rc.ReceiveQueue
	sgl      []rc.SGE // scratch of posts
	// armed says that the consumer is to be told, once, when fewer than
	// threshold receives are queued.
	armed     bool
	threshold uint32
	failure   Status // not StatusSuccess: the SRQ and its QPs are unusable
}

// CreateSRQ makes a queue for depth receives of up to maxReceiveRequestSge
// pieces each. notification, which may be nil, is called with notificationContext
// when the queue fails, and once when the number of queued receives falls from
// notifyThreshold to below it: not while the queue has yet to be filled that far
// (NDK-SRQ-15). A notifyThreshold of 0 asks for nothing. Only Modify arms again.
func (pd *PD) CreateSRQ(depth, maxReceiveRequestSge, notifyThreshold uint32, notification SRQNotification,
	notificationContext any, _ *GroupAffinity, completion CreateCompletion, context any) (*SRQ, Status) {
	if !pd.open() {
		return nil, StatusInvalidDeviceState
	}
	m := pd.adapter.miniport
	if depth == 0 || depth > m.info.MaxSrqDepth || maxReceiveRequestSge > m.info.MaxReceiveRequestSge {
		return nil, StatusInvalidParameter
	}
	srq := &SRQ{
		pd: pd, notification: notification, context: notificationContext, callbacks: callbacks{clock: pd.clock},
		maxReceive: int(maxReceiveRequestSge),
		receives:   rc.NewReceiveQueue(int(depth), int(maxReceiveRequestSge)),
		armed:      notifyThreshold > 0, threshold: notifyThreshold,
	}
	srq.succeed = func() { srq.call(StatusSuccess) }
	if !srq.reserve(m, sharing.SRQs, m.capabilities.MaxSrqCount) {
		return nil, StatusInsufficientResources
	}
	srq.Dispatch = srq
	srq.init(pd.clock, ObjectTypeSRQ, &pd.object)
	// In the set, where a device that fails from now on finds it.
	pd.adapter.srqs.add(srq)
	if m.Failed() {
		pd.adapter.srqs.remove(srq)
		srq.discard()
		return nil, StatusDeviceNotReady
	}
	return completeCreate(m, srq, &srq.object, completion, context)
}

// Close closes the queue once its queue pairs are closed. Receives that are
// still queued are dropped: they have no CQ to complete on (ndkpi.md T63).
func (srq *SRQ) Close(completion CloseCompletion, context any) Status {
	return srq.close(nil, func() { srq.pd.adapter.srqs.remove(srq) }, completion, context)
}

// Modify changes the depth, unless depth is 0, and then, unless notifyThreshold
// is 0, has the notification called once when fewer than notifyThreshold receives
// are queued: at once if that is so already. It fails with StatusBufferOverflow,
// and changes nothing, if more receives are queued than depth (NDK-SRQ-14).
func (srq *SRQ) Modify(depth, notifyThreshold uint32, completion RequestCompletion, context any) Status {
	m := srq.pd.adapter.miniport
	if depth > m.info.MaxSrqDepth {
		return StatusInvalidParameter
	}
	if status := srq.modify(depth, notifyThreshold); status != StatusSuccess {
		return status
	}
	return m.completeRequest(&srq.object, completion, context)
}

func (srq *SRQ) modify(depth, notifyThreshold uint32) Status {
	var resized *rc.ReceiveQueue
	if depth > 0 { // made before the lock is taken, for which packets may be waiting
		resized = rc.NewReceiveQueue(int(depth), srq.maxReceive)
	}
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if srq.failure != StatusSuccess {
		return StatusInvalidDeviceState
	}
	if resized != nil {
		if err := srq.receives.CopyTo(resized); err != nil {
			return StatusBufferOverflow
		}
		srq.receives = resized
	}
	if notifyThreshold > 0 {
		srq.armed, srq.threshold = true, notifyThreshold
		if srq.receives.Len() < int(notifyThreshold) {
			srq.notify(srq.succeed)
		}
	}
	return StatusSuccess
}

// Receive posts a buffer for a send to any of the queue's queue pairs
// (NdkSrqReceive).
func (srq *SRQ) Receive(context any, sgl []SGE) Status {
	if status := srq.pd.adapter.miniport.info.checkReceive(sgl, srq.maxReceive); status != StatusSuccess {
		return status
	}
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if srq.failure != StatusSuccess {
		return StatusInvalidDeviceState
	}
	srq.sgl = appendPieces(srq.sgl[:0], sgl)
	return postStatus(srq.receives.Post(&rc.Receive{Context: context, SGL: srq.sgl}))
}

// A srqReceives is an SRQ as its queue pairs have it.
type srqReceives struct{ srq *SRQ }

// Take implements rc.Receives. The QP.mu of the queue pair that asks is held.
func (t srqReceives) Take(r *rc.Receive) bool {
	srq := t.srq
	srq.mu.Lock()
	defer srq.mu.Unlock()
	if srq.failure != StatusSuccess || !srq.receives.Take(r) {
		return false
	}
	// Just below: a queue that was never filled so far does not count
	// (NDK-SRQ-15), and one that a Modify found below has been told then.
	if srq.armed && srq.receives.Len() == int(srq.threshold)-1 {
		srq.notify(srq.succeed)
	}
	return true
}

// notify disarms and has the callback run. srq.mu is held.
func (srq *SRQ) notify(call func()) {
	srq.armed = false
	if srq.notification != nil && srq.holdOpen() {
		srq.callbacks.add(call, nil)
	}
}

// call calls the consumer.
func (srq *SRQ) call(status Status) {
	srq.notification(srq.context, status)
	srq.release()
}
