package verbs

import "github.com/ndklab/ndklab/internal/provider/rc"

// WorkQueues are the memory of a queue pair's work queues, as adapters have it: the consumer writes requests there, and
// rings (QP.Ring) where nobody watches. A call of the consumer's per request costs more than all that is done for a short
// message. It writes nothing to a queue while it calls Post, or Receive, which take from the same room. Calls are made with
// the queue pair's lock held; what is returned is valid until the next one.
type WorkQueues interface {
	// TakeSend and TakeReceive take the oldest request that has been written, nil if there is none.
	TakeSend() *SendRequest
	TakeReceive() *ReceiveRequest
	// WatchSends and WatchReceives say whether the queue pair looks for more without being told, and for how many more
	// there is room. What was written before an end of watching shows afterwards, or is rung for.
	WatchSends(watch bool, room int)
	WatchReceives(watch bool, room int)
}

// UseQueues gives a queue pair that has receives of its own work queues, for as long as it is there.
func (qp *QP) UseQueues(queues WorkQueues) {
	qp.lock.Lock()
	defer qp.lock.Unlock()
	qp.queues = queues
	qp.watchReceives()
}

// Ring posts what the consumer has written to the work queues.
func (qp *QP) Ring() {
	qp.lock.Lock()
	defer qp.lock.Unlock()
	qp.takeSends()
	qp.watchReceives()
	if qp.config.Type == RC {
		qp.channel.ProgressSoon()
	}
}

// takeSends posts what the consumer has written. It knows what may be posted, and for how many there is room; who writes
// anything else has a queue pair in error. The lock is held.
func (qp *QP) takeSends() {
	if qp.queues == nil {
		return
	}
	for r := qp.queues.TakeSend(); r != nil; r = qp.queues.TakeSend() {
		if qp.post(r) != nil {
			qp.complete(&rc.Completion{Op: r.Op, Status: rc.LocalLength, Context: qp.tags.take(r.ID), Solicited: true}, 0, 0)
			qp.channel.QP.Flush()
		}
	}
}

// watchSends posts what the consumer has written, and has the queue pair look for more or not. It reports whether
// it does. The lock is held.
func (qp *QP) watchSends(watch bool) (watches bool) {
	if qp.queues == nil {
		return false
	}
	if watches = watch && qp.state == ReadyToSend; !watches {
		qp.queues.WatchSends(false, 0)
	}
	qp.takeSends()
	qp.watches = watches
	qp.renewRoom()
	return watches
}

// renewRoom follows each call that posts sends, and so takes room that the consumer may have been told of. Meanwhile it
// writes none. The lock is held.
func (qp *QP) renewRoom() {
	if qp.watches {
		qp.queues.WatchSends(true, qp.channel.QP.Room())
	}
}

// takeReceives posts the receives that the consumer has written, and reports whether there were any. The lock is held.
func (qp *QP) takeReceives() (some bool) {
	if qp.queues == nil {
		return false
	}
	for r := qp.queues.TakeReceive(); r != nil; r = qp.queues.TakeReceive() {
		some = qp.postReceive(r) == nil || some
	}
	return some
}

// watchReceives posts the receives that the consumer has written. From now on the queue pair looks for more when it has
// none left, as long as it may receive. The lock is held.
func (qp *QP) watchReceives() {
	if qp.queues == nil || qp.receives == nil {
		return
	}
	watches := qp.state != Reset && qp.state != Error
	if !watches {
		qp.queues.WatchReceives(false, 0)
	}
	qp.takeReceives()
	if watches {
		qp.queues.WatchReceives(true, qp.config.Capacity.ReceiveDepth-qp.receives.Len())
	}
}

// flushQueues flushes what the consumer has written for a queue pair that is in error. The lock is held.
func (qp *QP) flushQueues() {
	if qp.queues == nil {
		return
	}
	qp.watchSends(false)
	qp.watchReceives()
	if qp.receives != nil {
		qp.flushReceives()
	}
}

// A queued is the receives of a queue pair that has some of its own. It implements rc.Receives.
type queued struct{ qp *QP }

// Take implements rc.Receives.
func (q queued) Take(r *rc.Receive) bool {
	qp := q.qp
	if qp.receives.Take(r) {
		return true
	}
	if qp.queues == nil {
		return false
	}
	qp.watchReceives()
	return qp.receives.Take(r)
}
