package rc

import (
	"cmp"
	"slices"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// replies hold all that a responder has to send, in the order of the requests
// (roce.md 7.2): first the responses to READs, then at most one
// acknowledgement or NAK. One is enough, since each covers everything before
// it, and so do the responses to a READ.
type replies struct {
	// reads is a ring of the READs and atomics last accepted. Those in [answeredTo, newest)
	// may have responses to send. Older ones are kept to be repeated
	// (roce.md 7.3): read i is in slot i modulo the length.
	reads              []read
	answeredTo, newest int64

	selective  bool
	even       bool          // all packets of a response are equally long
	ackWanted  bool          // what has been executed is to be acknowledged
	nak        roce.Syndrome // goes out in place of an acknowledgement; 0: none
	duplicates int32         // to be answered
	executed   int64         // what there was to acknowledge when the last duplicate came
	nakAt      int64         // of nak

	// Of selective replies: reports wait, and what is asked for again is queued
	// apart, since there may be several such requests for one READ.
	reports reports
	repeats []read
}

// maxRepeats bounds the requests to repeat part of a READ that wait. More are
// dropped, as if lost.
const maxRepeats = 256

// maxDuplicates bounds how many are answered one by one.
const maxDuplicates = 1 << 16

// A read is a READ request accepted, or an atomic carried out, and what is to be sent of its
// response.
type read struct {
	first, end int64       // sequence numbers of the response
	atomic     roce.Opcode // of the request; 0, which is no atomic's, for a READ
	original   uint64      // what the atomic found
	va         uint64
	token      uint32
	length     int64
	msn        uint32

	// The part that was last asked for: all of it, or in a retry the rest of it.
	from, next, to int64
	stop           int64 // bytes of the whole READ before to
	again          bool
	behind         int64 // of repeats: how many READs are answered before
}

// acknowledgementPending reports whether an acknowledgement, a NAK or a report waits.
func (r *replies) acknowledgementPending() bool {
	return r.ackWanted || r.nak != 0 || r.duplicates > 0 || len(r.reports.pending) > 0
}

// acknowledge notes that everything executed so far is to be acknowledged. A
// NAK that waits says as much.
func (r *replies) acknowledge() { r.ackWanted = true }

// answerDuplicate notes that a duplicate is to be answered. Each has an
// acknowledgement of its own, as from rxe. The requester tells by it what it has sent
// for nothing, and an answer to a probe from what else is acknowledged.
//
// The answer says how far requests had come then, whatever has arrived since.
func (r *replies) answerDuplicate(executed int64) {
	r.executed = executed
	r.duplicates = min(r.duplicates+1, maxDuplicates)
}

// noteAcknowledged notes that an acknowledgement or NAK is sent.
func (r *replies) noteAcknowledged() {
	if r.nak == 0 && !r.ackWanted {
		r.duplicates--
	}
	r.ackWanted, r.nak = false, 0
}

// setNAK notes a NAK for sequence number at.
func (r *replies) setNAK(s roce.Syndrome, at int64) { r.nak, r.nakAt = s, at }

// report notes that the requester is to be told of the early packets around at.
func (r *replies) report(at int64) { r.reports.add(at) }

// clearNAK drops a NAK that waits, not an acknowledgement.
func (r *replies) clearNAK() { r.nak = 0 }

// clear drops the acknowledgement or NAK that waits.
func (r *replies) clear() { r.ackWanted, r.nak = false, 0 }

// hasResource reports whether the peer may have another READ outstanding, of so many at
// most. Most peers never send any; the first makes the ring.
func (r *replies) hasResource(limit int) bool {
	if r.reads == nil {
		r.reads = make([]read, limit)
	}
	if limit == 0 {
		return false
	}
	if r.newest < int64(limit) {
		return true
	}
	oldest := r.slot(r.newest - int64(limit)) // the ring may be longer
	return oldest.again || oldest.next == oldest.to
}

// resize has the ring be as long as the peer may have READs outstanding, or longer as long as more are to be answered.
func (r *replies) resize(limit int) {
	if r.reads == nil || limit == len(r.reads) {
		return
	}
	ring := make([]read, max(1, int64(limit), r.newest-r.answeredTo))
	for i := max(0, r.newest-int64(min(len(ring), len(r.reads)))); i < r.newest; i++ {
		ring[i%int64(len(ring))] = *r.slot(i)
	}
	r.reads = ring
}

func (r *replies) slot(index int64) *read { return &r.reads[index%int64(len(r.reads))] }

// addRead notes a READ request that is to be answered. There is room for it.
func (r *replies) addRead(h *roce.Header, first, end int64, msn uint32) {
	*r.slot(r.newest) = read{
		first: first, end: end, va: h.VA, token: h.RKey, length: int64(h.DMALength), msn: msn,
		from: first, next: first, to: end, stop: int64(h.DMALength),
	}
	r.enqueue()
}

// addAtomic notes the answer to an atomic that has been carried out. There is room for it.
func (r *replies) addAtomic(op roce.Opcode, at int64, msn uint32, original uint64) {
	*r.slot(r.newest) = read{
		first: at, end: at + 1, atomic: op, original: original, msn: msn, from: at, next: at, to: at + 1,
	}
	r.enqueue()
}

// enqueue has what is in the newest slot be answered.
func (r *replies) enqueue() {
	r.newest++
	r.answeredTo = max(r.answeredTo, r.newest-int64(len(r.reads)))
	r.clear() // the responses acknowledge everything before
}

// repeatRead answers a READ request, or the rest of one, or an atomic, that was answered
// before (roce.md 7.4). The request that it repeats, if still known, goes back to
// where it starts: the peer has what is before, and wants nothing after it
// until it has this. READs accepted later keep their place; if the peer wants
// them again too, it says so.
func (r *replies) repeatRead(h *roce.Header, at int64, mtu int) {
	for i := r.newest - 1; i >= max(0, r.newest-int64(len(r.reads))); i-- {
		d := r.slot(i)
		if at < d.first || at >= d.end {
			continue
		}
		before := (at - d.first) * int64(mtu)
		length := int64(h.DMALength)
		if d.atomic != 0 {
			length = 0
		}
		asked := h.Opcode
		if asked == roce.ReadRequest {
			asked = 0
		}
		if asked != d.atomic || d.length > 0 && (h.RKey != d.token || h.VA != d.va+uint64(before)) || length > d.length-before {
			return
		}
		if r.selective {
			if len(r.repeats) == maxRepeats {
				return
			}
			r.repeats = append(r.repeats, *d)
			d = &r.repeats[len(r.repeats)-1]
			d.behind = r.newest
		} else {
			r.answeredTo = min(r.answeredTo, i)
		}
		d.from, d.next, d.to, d.stop = at, at, at+packets(length, mtu), before+length
		d.again = true
		return
	}
}

// nextRead returns the READ to answer next, nil if there is none. They are answered in
// the order in which they were asked for, or asked for again: the requester tells
// by it what is lost (rack.go).
func (r *replies) nextRead() *read {
	if len(r.repeats) > 0 {
		return r.nextReadOrRepeat()
	}
	return r.nextUnanswered(r.newest)
}

// nextUnanswered returns the first of the READs before end that is to be answered, nil if
// there is none.
func (r *replies) nextUnanswered(end int64) *read {
	for ; r.answeredTo < end; r.answeredTo++ {
		if d := r.slot(r.answeredTo); d.next < d.to {
			return d
		}
	}
	return nil
}

func (r *replies) nextReadOrRepeat() *read {
	for len(r.repeats) > 0 {
		repeat := &r.repeats[0]
		if d := r.nextUnanswered(repeat.behind); d != nil {
			return d
		}
		if repeat.next < repeat.to {
			return repeat
		}
		r.repeats = slices.Delete(r.repeats, 0, 1)
	}
	return r.nextUnanswered(r.newest)
}

// acknowledgementIsNext reports whether an acknowledgement or NAK waits and no
// response must go before it.
func (r *responder) acknowledgementIsNext() bool {
	return r.replies.acknowledgementPending() && r.replies.nextRead() == nil
}

// onlyAcknowledges reports whether what waits is a mere acknowledgement.
func (r *responder) onlyAcknowledges() bool {
	return r.replies.nak == 0 && len(r.replies.reports.pending) == 0
}

// nextPacket makes the next reply; false if there is none.
func (r *responder) nextPacket(p *roce.Packet) bool {
	p.Payload = p.Payload[:0]
	for d := r.replies.nextRead(); d != nil; d = r.replies.nextRead() {
		if r.q.state == Ready && r.q.holdsBack() {
			return false
		}
		if r.makeResponse(d, p) {
			return true
		}
	}
	if r.makeReport(p) {
		return true
	}
	if !r.replies.acknowledgementPending() {
		return false
	}
	r.told = false
	p.Header = roce.Header{
		Opcode:   roce.Acknowledge,
		PSN:      psn(r.replies.nakAt),
		Syndrome: cmp.Or(r.replies.nak, roce.SyndromeACK),
		MSN:      r.msn & roce.PSNMask,
	}
	counters := &r.q.counters
	switch s := p.Header.Syndrome; {
	case s.IsACK():
		end := r.acknowledgedEnd()
		if !r.replies.ackWanted {
			end = min(end, r.replies.executed)
		}
		p.Header.PSN = psn(end - 1)
		counters.AcknowledgementsSent++
	case s.IsRNR():
		counters.RNRsSent++
	case s == roce.SyndromePSNSequence:
		counters.NAKsSent++
	}
	r.replies.noteAcknowledged()
	return true
}

// acknowledgedEnd returns the end of what an acknowledgement is for: of all that was
// executed, as far as no READ is last. Of a READ the responses tell. rxe takes an
// acknowledgement with the PSN of one for the response, and completes the READ
// without its data (check_ack in drivers/infiniband/sw/rxe/rxe_comp.c); it would
// come if a SEND was repeated that a READ follows. Requesters that agreed to
// selective replies know better, and are told how far requests have come.
func (r *responder) acknowledgedEnd() int64 {
	end, q := r.expected, &r.replies
	if q.selective {
		return end
	}
	for i := q.newest - 1; i >= max(0, q.newest-int64(len(q.reads))); i-- {
		d := q.slot(i)
		if d.end != end {
			break
		}
		end = d.first
	}
	return end
}

// makeResponse makes the next packet of a READ's response. The token is checked
// for each (roce.md 7.3); if it is no longer good, the READ ends with a NAK
// instead. That is fatal, unless the READ had been answered before: then the
// request may be an old packet that the network repeated. An atomic's answer is at hand.
func (r *responder) makeResponse(d *read, p *roce.Packet) bool {
	if d.atomic != 0 {
		p.Header = roce.Header{
			Opcode: roce.AtomicAcknowledge, PSN: psn(d.next), Syndrome: roce.SyndromeACK, MSN: d.msn & roce.PSNMask, Original: d.original,
		}
		if d.atomic == roce.AtomicWrite {
			p.Header.Opcode = roce.ReadResponseOnly // roce.md 3.1
		}
		d.next++
		return true
	}
	mtu := int64(r.q.connection.MTU)
	offset := (d.next - d.first) * mtu
	n := min(mtu, d.stop-offset)
	if n > 0 {
		var ok bool
		p.Payload, ok = r.q.config.Memory.Remote(p.Payload[:0], d.token, d.va+uint64(offset), uint32(n), RemoteRead)
		if !ok {
			p.Payload = p.Payload[:0]
			r.failRead(d)
			return false
		}
	}
	middle := roce.ReadResponseMiddle
	if r.replies.even {
		middle = roce.ReadResponseFirst
	}
	p.Header = roce.Header{
		Opcode: byPlace(d.next == d.from, d.next+1 == d.to, roce.ReadResponseFirst, middle, roce.ReadResponseLast, roce.ReadResponseOnly),
		PSN:    psn(d.next),
	}
	if p.Header.Opcode.HasAETH() {
		p.Header.Syndrome, p.Header.MSN = roce.SyndromeACK, d.msn&roce.PSNMask
	}
	d.next++
	return true
}

// byPlace picks an opcode by a packet's place in its message.
func byPlace(starts, ends bool, first, middle, last, only roce.Opcode) roce.Opcode {
	switch {
	case starts && ends:
		return only
	case starts:
		return first
	case ends:
		return last
	}
	return middle
}

func (r *responder) failRead(d *read) {
	r.replies.setNAK(roce.SyndromeRemoteAccess, d.from)
	if d.again {
		d.next = d.to
		return
	}
	r.replies.answeredTo = r.replies.newest
	if r.q.state == Ready {
		r.q.refusal = RemoteAccess
		r.q.enterError()
	}
}
