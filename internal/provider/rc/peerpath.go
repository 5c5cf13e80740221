package rc

import "time"

// A Path has what all connections with one address of a peer know together.
type Path struct {
	// Slow is the PathEstimate of another connection. On a path that is slow the first
	// answer is waited for as long as later ones.
	Slow time.Duration
	// Heard is the time at which anything last came from the address.
	Heard time.Duration
	// Answered is the latest of the PathEstimates of all connections.
	Answered time.Duration
}

// A peerPath is a Path as a requester sees it whose peer says nothing.
//
// The question how far the peer has got may wait behind what others of us send, and the
// answer behind what others of the peer's send: seconds where the path has become a
// thousand times slower. As long as packets come from the peer's address they may be
// those before the answer, and the peer is not given up.
//
// A path keeps the order of packets. So when another connection has had an answer to what it
// sent after the question, the peer's host is there and its queue pair gone. One that
// has nothing to send is made to ask for that (Probe). The wait ends after longestSilence,
// whatever is known of the path.
type peerPath struct {
	known   Path          // but Answered may be of this connection
	askedAt time.Duration // when the peer was first asked since it last said anything
}

// answerMayBeUnderWay reports whether the answer that is waited for may be on its way.
func (p *peerPath) answerMayBeUnderWay() bool { return p.known.AnswerMayBeUnderWay(p.askedAt) }

// AnswerMayBeUnderWay reports whether the answer to a packet that was sent at a time may be behind
// what comes from the peer's address.
func (p Path) AnswerMayBeUnderWay(sentAt time.Duration) bool {
	return p.Heard > sentAt && p.Answered <= sentAt
}

// noteAnswered takes note that a packet has been answered that was sent then or later.
func (p *peerPath) noteAnswered(sentAt time.Duration) {
	p.known.Answered = max(p.known.Answered, sentAt)
}

// SetPath tells what is known of the path to the peer. It is to be called before
// HandleTimeout, and before PostponeGivingUp.
func (q *QP) SetPath(known Path) {
	p := &q.requester.timers.path
	known.Answered = max(known.Answered, p.known.Answered)
	p.known = known
}

// WantsProbeElsewhere reports whether another connection on the path should Probe: the peer has said
// nothing for half the time after which a NIC gives it up, and its address has.
func (q *QP) WantsProbeElsewhere(now time.Duration) bool {
	t, c := &q.requester.timers, &q.connection
	half := time.Duration(c.RetryCount+1) * c.AckTimeout / 2
	return q.state == Ready && q.requester.queue.isOutstanding() && t.ptoCount > 0 && now-t.lastSign() >= half && t.path.answerMayBeUnderWay()
}

// Probe has the QP ask its peer how far it has got, if it waits for no answer: other
// connections learn from the answer that the path is not what keeps theirs. One that was lost
// is asked for again after longestUnmeasured.
func (q *QP) Probe(now time.Duration) {
	b := &q.requester.probe
	if q.state == Ready && !q.connection.ReceiveOnly && !q.requester.queue.isOutstanding() && (b.unanswered == 0 || now-b.at > longestUnmeasured) {
		b.pending = true
	}
}
