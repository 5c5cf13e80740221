package rc

import "github.com/ndklab/ndklab/internal/provider/roce"

// Unreadable says that the payload of a packet cannot be read that Next has made, and that it is not sent: then Memory
// was wrong about it. It is as if Memory had refused, though packets have been made since, which are lost.
func (q *QP) Unreadable(h *roce.Header) {
	switch {
	case h.Opcode.IsRequest() && q.state == Ready:
		q.requester.unreadable(h)
	case h.Opcode.IsReadResponse():
		q.responder.unreadable(h)
	}
}

// unreadable has the request fail that the packet is of, when it is the oldest.
func (r *requester) unreadable(h *roce.Header) {
	at := extend(h.PSN, r.una)
	if at < r.una || at >= r.posted {
		return // it has arrived after all, when it was sent before
	}
	r.slot(r.indexOf(at)).status = LocalProtection
	r.checkOldest()
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
