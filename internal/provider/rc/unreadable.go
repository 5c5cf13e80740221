package rc

import "github.com/ndklab/ndklab/internal/provider/roce"

// Unreadable takes back a packet that Next has made, since its payload cannot be read and it is not sent. The request, or
// the peer's READ, fails as if Memory had refused. Packets that have been made since are lost.
func (q *QP) Unreadable(h *roce.Header) {
	switch {
	case h.Opcode.IsRequest() && q.state == Ready:
		q.requester.queue.setUnreadable(h)
		q.requester.checkOldest()
	case h.Opcode.IsReadResponse():
		q.responder.unreadable(h)
	}
}

// unreadable has the READ end with a NAK that the packet answers.
func (r *responder) unreadable(h *roce.Header) {
	at := extend(h.PSN, r.expected)
	answers := func(d *read) bool { return d.atomic == 0 && d.from <= at && at < d.next }
	for i := range r.replies.repeats {
		if d := &r.replies.repeats[i]; answers(d) {
			r.failRead(d)
			return
		}
	}
	for i := range r.replies.reads {
		if d := &r.replies.reads[i]; answers(d) {
			r.failRead(d)
			return
		}
	}
}
