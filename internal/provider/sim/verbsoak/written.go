package verbsoak

import (
	"slices"

	"github.com/ndklab/ndklab/internal/provider/rc"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// written are the work queues of a queue pair whose consumer writes requests itself. They implement verbs.WorkQueues.
type written struct {
	sends    pipe[verbs.SendRequest]
	receives pipe[verbs.ReceiveRequest]
}

// A pipe is a work queue.
type pipe[T any] struct {
	requests []T
	watched  bool
	room     int // counted down as requests are written
}

func (p *pipe[T]) take() *T {
	if len(p.requests) == 0 {
		return nil
	}
	r := p.requests[0]
	p.requests = p.requests[1:]
	return &r
}

// write writes a request, unless nobody watches or there is no room.
func (p *pipe[T]) write(r T) bool {
	if !p.watched || p.room == 0 {
		return false
	}
	p.room--
	p.requests = append(p.requests, r)
	return true
}

// TakeSend implements verbs.WorkQueues.
func (w *written) TakeSend() *verbs.SendRequest { return w.sends.take() }

// TakeReceive implements verbs.WorkQueues.
func (w *written) TakeReceive() *verbs.ReceiveRequest { return w.receives.take() }

// WatchSends implements verbs.WorkQueues.
func (w *written) WatchSends(watch bool, room int) { w.sends.watched, w.sends.room = watch, room }

// WatchReceives implements verbs.WorkQueues.
func (w *written) WatchReceives(watch bool, room int) {
	w.receives.watched, w.receives.room = watch, room
}

// postSend posts a request, by a call or by writing it.
func (e *end) postSend(p *verbs.SendRequest) error {
	plain := p.Inline == nil && slices.Contains([]rc.Op{rc.OpSend, rc.OpSendImmediate, rc.OpWrite, rc.OpWriteImmediate}, p.Op)
	if e.written != nil && plain && e.written.sends.write(*p) {
		e.run.Coverage.Count("written request")
		return nil
	}
	_, err := e.qp.Post([]verbs.SendRequest{*p})
	return err
}

// postReceive posts a receive likewise.
func (e *end) postReceive(p verbs.ReceiveRequest) error {
	if e.written != nil && e.written.receives.write(p) {
		e.run.Coverage.Count("written receive")
		return nil
	}
	_, err := e.qp.Receive([]verbs.ReceiveRequest{p})
	return err
}
