package workload

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// postReceive posts a receive, on a connection or on the SRQ.
func (s *target) postReceive(c *connection, r *receive) error {
	var sge provider.SGE
	if s.spec.Operation == topology.Send {
		sge = s.memory.sge(s.placeOf(r), s.spec.Size)
	} else {
		sge = s.notices.sge(r.slot*noticeLen, noticeLen)
	}
	if s.srq == nil {
		return c.postReceive(sge, r)
	}
	sgl := [1]provider.SGE{sge}
	if status := s.srq.Receive(r, sgl[:]); status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// placeOf returns where the memory of a receive begins.
func (s *target) placeOf(r *receive) uint64 {
	slots := uint64(s.spec.slots())
	return s.spec.place(int(r.slot/slots), r.slot%slots)
}

// handle implements session: each completion is of a message, of the notice of one, or of
// what was sent, and they come in the order in which the client posted.
func (a *arrival) handle(_ time.Duration, result provider.ResultEx) {
	s := a.target
	r, isReceive := result.RequestContext.(*receive)
	arrived := isReceive && result.Status == provider.StatusSuccess
	var m arrivedMessage
	switch {
	case arrived:
		m = a.receive(r, uint64(result.BytesTransferred))
	case result.Status != provider.StatusSuccess:
		s.trouble(fmt.Sprintf("receive: %v", result.Status))
	}
	if s.stopping {
		return
	}
	if arrived || isReceive && s.srq != nil { // what all QPs share goes on, whatever became of this one
		if err := s.postReceive(a.conn, r); err != nil {
			s.note(err.Error())
		}
	}
	if arrived {
		a.reply(m)
	}
}

// reclaim implements reclaimer: it posts a receive of the SRQ again that the connection has
// taken.
func (a *arrival) reclaim(result provider.ResultEx) {
	s := a.target
	r, isReceive := result.RequestContext.(*receive)
	if !isReceive || s.srq == nil || s.stopping {
		return
	}
	if err := s.postReceive(nil, r); err != nil {
		s.note(err.Error())
	}
}

// An arrivedMessage is a message that has arrived: its index on its channel, its number among
// all of the flow's, and its length.
type arrivedMessage struct {
	index, number, size uint64
}

// receive takes the next message, or the notice of one.
func (a *arrival) receive(r *receive, length uint64) arrivedMessage {
	s := a.target
	m := arrivedMessage{index: a.next, number: s.spec.number(a.index, a.next), size: length}
	a.next++
	place := uint64(0)
	if s.spec.Operation == topology.Write {
		var told uint64
		if told, m.size = decodeNotice(s.notices.bytes[r.slot*noticeLen:]); told != m.index {
			s.note(fmt.Sprintf("message %d was announced as %d", m.index, told))
		}
		place = s.spec.place(a.index, m.index%uint64(s.spec.slots()))
	} else {
		place = s.placeOf(r)
	}
	if text := s.spec.wrongSize(m.number, m.size); text != "" {
		s.note(fmt.Sprintf("message %d has %d bytes, %s", m.number, m.size, text))
		m.size = min(m.size, s.spec.Size)
	}
	if s.spec.Verify {
		a.verify(m, s.memory.bytes[place:][:m.size])
	}
	return m
}

// verify compares a message. One that had arrived before, over a connection that was lost,
// does not count again.
func (a *arrival) verify(m arrivedMessage, got []byte) {
	s := a.target
	switch {
	case !bytes.Equal(got, s.pattern.message(m.number)[:m.size]):
		s.result.Mismatches++
		s.note(s.pattern.difference(m.number, got))
	case m.index >= a.seen:
		s.result.Verified++
	}
	a.seen = max(a.seen, m.index+1)
}

// reply tells the client that a message has arrived: at once or, if the client does not
// measure the answer, together with others.
func (a *arrival) reply(m arrivedMessage) {
	s := a.target
	switch {
	case s.spec.answered():
		a.answer(m)
	case s.spec.Operation == topology.Write && !a.behind:
		a.behind = true
		s.behind = append(s.behind, a)
	}
}

// answer sends a message back in kind.
func (a *arrival) answer(m arrivedMessage) {
	s, qp := a.target, a.conn.qp
	payload := [1]provider.SGE{s.spec.payload(s.source, s.pattern, m.number, m.size)}
	var status provider.Status
	if s.spec.Operation == topology.Send {
		status = qp.Send(nil, payload[:], s.spec.flags())
	} else {
		place := a.hello.address + m.index%s.spec.channelSlots()*s.spec.Size
		if status = qp.Write(nil, payload[:], place, a.hello.token, s.spec.flags()); status == provider.StatusSuccess {
			status = notify(qp, m.index, m.size)
		}
	}
	s.sent("answer", status)
}

// acknowledgeAll tells each client whose messages have arrived that every slot up to the
// last message's is compared.
func (s *target) acknowledgeAll() {
	for _, a := range s.behind {
		a.behind = false
		if !s.stopping && a.conn != nil && a.conn.stage == up {
			s.sent("acknowledgement", notify(a.conn.qp, a.next-1, 0))
		}
	}
	clear(s.behind)
	s.behind = s.behind[:0]
}

// sent takes the status of a post.
func (s *target) sent(what string, status provider.Status) {
	if status != provider.StatusSuccess && status != provider.StatusConnectionInvalid { // the client may be gone already
		s.trouble(fmt.Sprintf("post %s: %v", what, status))
	}
}
