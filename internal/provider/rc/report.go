package rc

import (
	"slices"

	"github.com/ndklab/ndklab/internal/provider/roce"
)

// reports has the reports of early packets that the requester is to be sent.
type reports struct{ pending []report }

// maxReports bounds the reports that wait: they cover what arrives at one go. More
// are dropped, as if lost.
const maxReports = 64

// A report is about the newest packet and those before it, as far as mapBits
// reach. It was asked for by the packets from oldest on.
type report struct{ oldest, newest int64 }

// add notes that the packet with sequence number at, and what arrived shortly
// before, is to be told of. Reports that are asked for by close neighbours become
// one.
func (r *reports) add(at int64) {
	for i := range r.pending {
		p := &r.pending[i]
		if from, to := min(p.oldest, at), max(p.newest, at); to-from < ackReqInterval {
			p.oldest, p.newest = from, to
			return
		}
	}
	if len(r.pending) < maxReports {
		r.pending = append(r.pending, report{at, at})
	}
}

const mapBits = 64

// makeReport makes the oldest report that waits; false if there is none.
//
// All that wait go out in a row, an RNR NAK last, since they are in no order that
// the requester could draw conclusions from; the solicited bit says that there is
// more to come.
func (r *responder) makeReport(p *roce.Packet) bool {
	q := &r.replies.reports
	if len(q.pending) == 0 {
		return false
	}
	q.pending = slices.DeleteFunc(q.pending, func(p report) bool { return p.newest < r.expected }) // an acknowledgement tells
	if len(q.pending) == 0 {
		return false
	}
	newest := q.pending[0].newest
	q.pending = slices.Delete(q.pending, 0, 1)
	r.replies.ackWanted = false
	p.Header = roce.Header{
		Opcode:    roce.SelectiveAcknowledge,
		PSN:       psn(r.expected),
		Solicited: r.replies.acknowledgementPending(),
		Syndrome:  roce.SyndromePSNSequence,
		MSN:       psn(newest),
	}
	for i := range int64(mapBits) {
		if at := newest - 1 - i; at < r.expected || r.early.at(at) != nil {
			p.Header.Original |= 1 << i
		}
	}
	r.q.counters.AcknowledgementsSent++
	return true
}
