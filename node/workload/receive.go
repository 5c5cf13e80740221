package workload

import (
	"bytes"
	"fmt"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// postReceive posts a receive, on c's QP or on the SRQ. s.mu is held, or s not shared yet.
func (s *target) postReceive(c *served, r *receive) error {
	var sge [1]provider.SGE
	if s.spec.Operation == topology.Send {
		sge[0] = s.memory.sge(s.placeOf(r), s.spec.Size)
	} else {
		sge[0] = s.notices.sge(r.slot*noticeLen, noticeLen)
	}
	var status provider.Status
	if s.srq != nil {
		status = s.srq.Receive(r, sge[:])
	} else {
		status = c.qp.Receive(r, sge[:])
	}
	if status != provider.StatusSuccess {
		return fmt.Errorf("post receive: %w", status)
	}
	return nil
}

// placeOf is where the memory of a receive begins.
func (s *target) placeOf(r *receive) uint64 {
	slots := uint64(s.spec.slots())
	return s.spec.place(int(r.slot/slots), r.slot%slots)
}

// taken is what completions calls.
func (s *target) taken() (n int, over bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.stopped {
		return 0, true
	}
	return s.drain(), false
}

// drain handles every completion there is: each is a message, or the notice of
// one, and they come in the order in which the client posted. s.mu is held.
func (s *target) drain() (handled int) {
	var results [atOnce]provider.ResultEx
	for n := len(results); n == len(results); handled += n {
		n = s.cq.ResultsEx(results[:])
		for i := range results[:n] {
			c := results[i].QPContext.(*served)
			s.handle(c, &results[i])
		}
	}
	for _, c := range s.dirty {
		c.dirty = false
		if !s.stopped && c == c.lane.link {
			s.acknowledge(c)
		}
	}
	clear(s.dirty)
	s.dirty = s.dirty[:0]
	return handled
}

// handle takes a completion. s.mu is held.
func (s *target) handle(c *served, result *provider.ResultEx) {
	r, isReceive := result.RequestContext.(*receive)
	current := c == c.lane.link // or it is of a connection that is given up
	arrived := isReceive && current && result.Status == provider.StatusSuccess
	var m letter
	switch {
	case arrived:
		m = s.take(c, r, uint64(result.BytesTransferred))
	case current && result.Status != provider.StatusSuccess && result.Status != provider.StatusCancelled:
		s.trouble(fmt.Sprintf("receive: %v", result.Status))
	}
	if s.stopped {
		return
	}
	if arrived || isReceive && s.srq != nil { // what all QPs share goes on, whatever became of this one
		if err := s.postReceive(c, r); err != nil {
			s.fail(err.Error())
		}
	}
	if arrived {
		s.reply(c, m)
	}
}

// a letter is a message that has arrived.
type letter struct {
	index, number, size uint64
}

// take handles the next message of a lane, or the notice of one. s.mu is held.
func (s *target) take(c *served, r *receive, length uint64) letter {
	lane := c.lane
	m := letter{index: lane.received, number: s.spec.number(lane.index, lane.received), size: length}
	lane.received++
	place := uint64(0)
	if s.spec.Operation == topology.Write {
		var told uint64
		if told, m.size = decodeNotice(s.notices.bytes[r.slot*noticeLen:]); told != m.index {
			s.fail(fmt.Sprintf("message %d was announced as %d", m.index, told))
		}
		place = s.spec.place(lane.index, m.index%uint64(s.spec.slots()))
	} else {
		place = s.placeOf(r)
	}
	if text := s.spec.wrongSize(m.number, m.size); text != "" {
		s.fail(fmt.Sprintf("message %d has %d bytes, %s", m.number, m.size, text))
		m.size = min(m.size, s.spec.Size)
	}
	if s.spec.Verify {
		s.verify(lane, m, s.memory.bytes[place:][:m.size])
	}
	return m
}

// verify compares a message. One that had arrived before, over a connection that was lost,
// does not count again. s.mu is held.
func (s *target) verify(lane *arrival, m letter, got []byte) {
	switch {
	case !bytes.Equal(got, s.pattern.message(m.number)[:m.size]):
		s.result.Mismatches++
		s.fail(s.pattern.difference(m.number, got))
	case m.index >= lane.seen:
		s.result.Verified++
	}
	lane.seen = max(lane.seen, m.index+1)
}

// reply tells the client that a message has arrived, at once or, if it is no answer that
// the client measures, together with others. s.mu is held.
func (s *target) reply(c *served, m letter) {
	switch {
	case s.spec.answered():
		s.answer(c, m)
	case s.spec.Operation == topology.Write && !c.dirty:
		c.dirty = true
		s.dirty = append(s.dirty, c)
	}
}

// answer sends a message back in kind. s.mu is held.
func (s *target) answer(c *served, m letter) {
	payload := [1]provider.SGE{s.spec.payload(s.source, s.pattern, m.number, m.size)}
	var status provider.Status
	if s.spec.Operation == topology.Send {
		status = c.qp.Send(nil, payload[:], s.spec.flags())
	} else {
		place := c.hello.address + m.index%s.spec.laneSlots()*s.spec.Size
		if status = c.qp.Write(nil, payload[:], place, c.hello.token, s.spec.flags()); status == provider.StatusSuccess {
			status = notify(c.qp, m.index, m.size)
		}
	}
	s.sent("answer", status)
}

// acknowledge tells the client that every slot up to the last message's is compared.
// s.mu is held.
func (s *target) acknowledge(c *served) {
	s.sent("acknowledgement", notify(c.qp, c.lane.received-1, 0))
}

// sent takes the status of a post. s.mu is held.
func (s *target) sent(what string, status provider.Status) {
	if status != provider.StatusSuccess && status != provider.StatusConnectionInvalid { // the client may be gone already
		s.trouble(fmt.Sprintf("post %s: %v", what, status))
	}
}
