package provider

import (
	"sync"

	"github.com/ndklab/ndklab/internal/provider/sharing"
	"github.com/ndklab/ndklab/internal/provider/transport"
)

// A CQ is a completion queue. Results and Arm are serialised by the consumer
// (ndkpi.md 1.5).
type CQ struct {
	object
	Dispatch     CQDispatch // as Adapter.Dispatch
	adapter      *Adapter
	notification CQNotification
	context      any
	callbacks    callbacks
	succeed      func() // calls notification with StatusSuccess

	mu    sync.Mutex // guards what follows
	ring  []ResultEx // with room for as many as there have been at once, up to depth
	depth int
	first int // index of the oldest entry
	count int
	// Entries are numbered from 1 in the order they arrive: newest is the last
	// one, newestSolicited the last that satisfies a solicited arm, and told
	// the last one that was there when a notification last began. An arm is
	// satisfied at once by a matching entry that is newer than told and still
	// in the queue (NDK-CQ-05).
	newest, newestSolicited, told uint64

	delivery    *transport.Delivery // that the completions are part of which are being pushed; nil for none
	idle        int                 // times in a row that nothing was found while nobody would be told of the next
	armed       bool
	arm         NotifyType
	moderation  moderation
	failure     Status // not StatusSuccess: the CQ and its QPs are unusable
	failureTold bool   // once is enough; a consumer that re-arms would spin
}

// CreateCQ makes a completion queue for depth entries. notification is called
// with context when what the CQ was armed for happens; it may be nil for a
// consumer that only polls.
func (a *Adapter) CreateCQ(depth uint32, notification CQNotification, notificationContext any,
	_ *GroupAffinity, completion CreateCompletion, context any) (*CQ, Status) {
	if !a.open() {
		return nil, StatusInvalidDeviceState
	}
	m := a.miniport
	if depth == 0 || depth > m.info.MaxCqDepth {
		return nil, StatusInvalidParameter
	}
	cq := &CQ{adapter: a, notification: notification, context: notificationContext,
		callbacks: callbacks{clock: a.clock}, depth: int(depth)}
	cq.succeed = func() { cq.call(StatusSuccess) }
	if !cq.reserve(m, sharing.CQs, m.capabilities.MaxCqCount) {
		return nil, StatusInsufficientResources
	}
	cq.Dispatch = cq
	cq.init(a.clock, ObjectTypeCQ, &a.object)
	// In the set, where a device that fails from now on finds it.
	a.cqs.add(cq)
	if m.Failed() {
		a.cqs.remove(cq)
		cq.discard()
		return nil, StatusDeviceNotReady
	}
	return completeCreate(m, cq, &cq.object, completion, context)
}

// has reports whether a CQ is there, open and the instance's.
func (a *Adapter) has(cq *CQ) bool { return cq != nil && cq.adapter == a && cq.open() }

// Close closes the queue (ndkpi.md 4.2).
func (cq *CQ) Close(completion CloseCompletion, context any) Status {
	return cq.close(cq.endPolling, func() {
		cq.adapter.cqs.remove(cq)
		cq.stopModeration()
	}, completion, context)
}

// Arm asks for one notification. An arm that is stronger than an outstanding
// one replaces it (NDK-CQ-10 to 15). The queue's failure is told once.
func (cq *CQ) Arm(t NotifyType) {
	cq.mu.Lock()
	cq.doArm(t)
	cq.mu.Unlock()
	cq.endPolling()
}

// endPolling leaves what arrives to the carrier again, if the consumer polled.
func (cq *CQ) endPolling() {
	cq.mu.Lock()
	polled := cq.idle > 1
	cq.idle = 0
	cq.mu.Unlock()
	if polled {
		cq.adapter.miniport.StopPolling()
	}
}

// doArm is Arm with cq.mu held.
func (cq *CQ) doArm(t NotifyType) {
	if !cq.armed || notifyStrength(t) > notifyStrength(cq.arm) {
		cq.arm = t
	}
	cq.armed = true
	switch {
	case cq.failure != StatusSuccess:
		if !cq.failureTold {
			cq.notify(cq.failure)
		}
	case cq.count == 0:
	case cq.arm == NotifyAny && cq.newest > cq.told,
		cq.arm == NotifySolicited && cq.newestSolicited > max(cq.told, cq.newest-uint64(cq.count)):
		cq.notifyOrModerate()
	}
}

// notifyStrength orders the arms: errors, solicited, any.
func notifyStrength(t NotifyType) int {
	switch t {
	case NotifyAny:
		return 2
	case NotifySolicited:
		return 1
	default:
		return 0
	}
}

// notify disarms and has the callback run. cq.mu is held.
func (cq *CQ) notify(status Status) {
	cq.armed = false
	cq.moderation.delayed = false
	cq.failureTold = status != StatusSuccess
	if cq.notification == nil || !cq.holdOpen() {
		return
	}
	call := cq.succeed
	if status != StatusSuccess {
		call = func() { cq.call(status) }
	}
	cq.callbacks.add(call, cq.delivery)
}

// call calls the consumer.
func (cq *CQ) call(status Status) {
	cq.mu.Lock()
	cq.told = cq.newest
	cq.mu.Unlock()
	cq.notification(cq.context, status)
	cq.release()
}

// Results removes up to len(results) completions and says how many. A consumer that
// calls it again and again while there is nothing, and has not armed the queue for
// NotifyAny, receives what arrives for the adapter itself, within the call (Poller).
func (cq *CQ) Results(results []Result) int {
	n, idle := cq.results(results)
	if idle && cq.adapter.miniport.pollAlone() {
		n, _ = cq.results(results)
	}
	return n
}

// results is Results of what is queued, and reports whether the consumer polls in vain.
func (cq *CQ) results(results []Result) (n int, idle bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	for ; n < len(results) && cq.count > 0; n++ {
		results[n] = cq.pop().Result
	}
	return n, cq.polledIdle(n)
}

// ResultsEx is Results with the kind of each completion.
func (cq *CQ) ResultsEx(results []ResultEx) int {
	n, idle := cq.resultsEx(results)
	if idle && cq.adapter.miniport.pollAlone() {
		n, _ = cq.resultsEx(results)
	}
	return n
}

func (cq *CQ) resultsEx(results []ResultEx) (n int, idle bool) {
	cq.mu.Lock()
	defer cq.mu.Unlock()
	for ; n < len(results) && cq.count > 0; n++ {
		results[n] = cq.pop()
	}
	return n, cq.polledIdle(n)
}

// polledIdle takes note that the consumer found n completions, and reports whether it
// polls and there is nothing. One look in vain is what a consumer needs that is told, to see
// that it has everything. And one that will be told of the next completion may look
// whenever it likes, as after a disconnect event: it does not poll, and may never look
// again. cq.mu is held.
func (cq *CQ) polledIdle(n int) bool {
	if n > 0 || cq.armed && cq.arm == NotifyAny {
		return false
	}
	cq.idle++
	return cq.idle > 1
}

// pop removes the oldest entry. cq.mu is held.
func (cq *CQ) pop() ResultEx {
	result := cq.ring[cq.first]
	cq.ring[cq.first] = ResultEx{} // lets go of the consumer's contexts
	cq.first++
	if cq.first == len(cq.ring) {
		cq.first = 0
	}
	cq.count--
	return result
}

// leastRing is the length of a CQ's first ring, in entries, unless its depth is less.
const leastRing = 4

// move moves the entries to a ring of another length, which has room for them. cq.mu is
// held.
func (cq *CQ) move(length int) {
	ring := make([]ResultEx, length)
	last := min(cq.first+cq.count, len(cq.ring))
	n := copy(ring, cq.ring[cq.first:last])
	copy(ring[n:], cq.ring[:cq.count-n])
	cq.ring, cq.first = ring, 0
}

// push queues a completion. One more entry than the queue holds makes it and
// its queue pairs unusable for good (NDK-CQ-23, 24).
// The notification that it may cause runs when cq.delivery is done, unless that is nil. cq.mu is held.
func (cq *CQ) push(result ResultEx, solicited bool) {
	if cq.failure != StatusSuccess {
		return
	}
	if cq.count == cq.depth {
		cq.failWith(StatusBufferOverflow)
		return
	}
	if cq.count == len(cq.ring) {
		cq.move(min(cq.depth, max(leastRing, 2*len(cq.ring))))
	}
	at := cq.first + cq.count
	if at >= len(cq.ring) {
		at -= len(cq.ring)
	}
	cq.ring[at] = result
	cq.count++
	cq.newest++
	if solicited {
		cq.newestSolicited = cq.newest
	}
	if cq.armed && (cq.arm == NotifyAny || cq.arm == NotifySolicited && solicited || cq.moderation.delayed) {
		cq.notifyOrModerate()
	}
}
