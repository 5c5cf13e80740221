package verbs

import "github.com/ndklab/ndklab/internal/provider/rc"

// WorkQueues are the memory of a queue pair's work queues, as adapters have it. The consumer writes requests there, and
// calls QP.Ring where the queue pair does not watch: a call for each request costs more than all that is done for a short
// message. It writes nothing to a queue while it calls Post, or Receive, which take from the same room. Calls are made with
// the queue pair's lock held. Their results are valid until the next one.
type WorkQueues interface {
	// TakeSend and TakeReceive take the oldest request that has been written, nil if there is none.
	TakeSend() *SendRequest
	TakeReceive() *ReceiveRequest
	// WatchSends and WatchReceives say whether the queue pair looks for more without being told, and for how many more
	// there is room. It takes what was written before watching ends, or the consumer calls Ring for that.
	WatchSends(watch bool, room int)
	WatchReceives(watch bool, room int)
}

// written has the work queues of a queue pair whose consumer writes requests itself. The queue pair's lock guards it.
type written struct {
	qp           *QP
	queues       WorkQueues // nil before UseQueues, and in the end
	watchesSends bool
}

// UseQueues gives work queues, for as long as it is there, to a queue pair that has receives of its own.
func (qp *QP) UseQueues(queues WorkQueues) {
	qp.lock.Lock()
	defer qp.lock.Unlock()
	qp.written.queues = queues
	qp.written.watchReceives()
}

// Ring posts what the consumer has written to the work queues.
func (qp *QP) Ring() {
	qp.lock.Lock()
	defer qp.lock.Unlock()
	qp.written.takeSends()
	qp.written.watchReceives()
	if qp.config.Type == RC {
		qp.channel.ProgressSoon()
	}
}

// takeSends posts what the consumer has written. The consumer knows what may be posted, and for how many there is room: if
// it writes anything else, the queue pair goes to error. The lock is held.
func (w *written) takeSends() {
	if w.queues == nil {
		return
	}
	qp := w.qp
	for r := w.queues.TakeSend(); r != nil; r = w.queues.TakeSend() {
		if qp.post(r) != nil {
			qp.complete(&rc.Completion{Op: r.Op, Status: rc.LocalLength, Context: qp.tags.take(r.ID), Solicited: true}, 0, 0)
			qp.channel.QP.Flush()
		}
	}
}

// watchSends posts what the consumer has written, and has the queue pair look for more or not. It reports whether
// it does. The lock is held.
func (w *written) watchSends(watch bool) (watches bool) {
	if w.queues == nil {
		return false
	}
	if watches = watch && w.qp.state == ReadyToSend; !watches {
		w.queues.WatchSends(false, 0)
	}
	w.takeSends()
	w.watchesSends = watches
	w.renewRoom()
	return watches
}

// renewRoom tells the consumer the room that is left. It follows each call that posts sends, during which the consumer
// writes none. The lock is held.
func (w *written) renewRoom() {
	if w.watchesSends {
		w.queues.WatchSends(true, w.qp.channel.QP.SendQueue().Room)
	}
}

// takeReceives posts the receives that the consumer has written, and reports whether there were any. The lock is held.
func (w *written) takeReceives() (some bool) {
	if w.queues == nil {
		return false
	}
	for r := w.queues.TakeReceive(); r != nil; r = w.queues.TakeReceive() {
		some = w.qp.postReceive(r) == nil || some
	}
	return some
}

// watchReceives posts the receives that the consumer has written. From now on the queue pair looks for more when it has
// none left, as long as it may receive. The lock is held.
func (w *written) watchReceives() {
	if w.queues == nil || w.qp.receives == nil {
		return
	}
	watches := w.qp.state != Reset && w.qp.state != Error
	if !watches {
		w.queues.WatchReceives(false, 0)
	}
	w.takeReceives()
	if watches {
		w.queues.WatchReceives(true, w.qp.config.Capacity.ReceiveDepth-w.qp.receives.Len())
	}
}

// flush flushes what the consumer has written for a queue pair that is in error. The lock is held.
func (w *written) flush() {
	if w.queues == nil {
		return
	}
	w.watchSends(false)
	w.watchReceives()
	if w.qp.receives != nil {
		w.qp.flushReceives()
	}
}

// ownReceives are the receives of a queue pair that has some of its own. They implement rc.Receives.
type ownReceives struct{ qp *QP }

// Take implements rc.Receives.
func (q ownReceives) Take(r *rc.Receive) bool {
	qp := q.qp
	if qp.receives.Take(r) {
		return true
	}
	if qp.written.queues == nil {
		return false
	}
	qp.written.watchReceives()
	return qp.receives.Take(r)
}
