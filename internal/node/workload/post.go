package workload

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// A message is in flight, and the context of its request.
type message struct {
	index  uint64        // in its pipeline
	posted time.Duration // for the first time
	size   uint32        // bytes, which MaxTransferLength bounds
	warm   bool          // it is of the warm-up
}

// proceed implements work: it posts what may be posted.
func (w *stream) proceed() {
	for p := w.ready.head(); p != nil && !w.broken; p = w.ready.head() {
		now := w.clock.Now()
		if !p.mayPost(now) {
			w.ready.pop()
			continue
		}
		if wait := w.pace.wait(now); wait > 0 {
			w.wake(wait)
			return
		}
		w.ready.pop()
		if status := p.post(now); status != provider.StatusSuccess {
			p.channel.conn.fail(fmt.Sprintf("post message %d: %v", p.next, status))
			continue
		}
		w.ready.push(p)
	}
}

// wake has more be posted later.
func (w *stream) wake(d time.Duration) {
	if w.alarm != nil {
		w.alarm.Reset(d)
		return
	}
	w.alarm = w.clock.AfterFunc(d, func() {
		w.mu.Lock()
		defer w.mu.Unlock()
		w.advance()
	})
}

// mayPost reports whether the pipeline may post a message now.
func (p *pipeline) mayPost(now time.Duration) bool {
	w := p.stream
	switch {
	case !p.channel.up():
		return false
	case p.next < p.posted: // it was posted before, and had its place then
		return true
	case p.posted-p.finished >= uint64(w.spec.depth()):
		return false
	case w.spec.announces() && p.posted-p.released >= uint64(len(p.messages)):
		return false // every slot at the server is waiting to be compared
	}
	return w.wanted(now) > 0
}

// post posts the pipeline's next message.
func (p *pipeline) post(now time.Duration) provider.Status {
	w := p.stream
	m := &p.messages[p.next%uint64(len(p.messages))]
	first := p.next == p.posted
	if first {
		*m = message{index: p.next, size: uint32(w.nextSize(p)), posted: now, warm: w.warm(now)}
	}
	if status := p.send(m); status != provider.StatusSuccess {
		return status
	}
	due := w.pace.due
	w.pace.spend(now, uint64(m.size))
	p.next++
	if !first {
		w.result.Retried++
		return provider.StatusSuccess
	}
	p.posted++
	w.begun(now, due)
	if w.spec.announces() {
		w.unreleased++
	}
	return provider.StatusSuccess
}

// nextSize returns the size of the pipeline's next message.
func (w *stream) nextSize(p *pipeline) uint64 {
	if w.spec.Mixed {
		return w.spec.drawn(w.spec.number(p.channel.index, p.next))
	}
	return w.step.size
}

// send posts the requests of a message.
func (p *pipeline) send(m *message) provider.Status {
	w, qp, index := p.stream, p.channel.conn.qp, p.channel.index
	slot := m.index % uint64(len(p.messages))
	number := w.spec.number(index, m.index)
	flags := w.spec.flags()
	switch w.spec.Operation {
	case topology.Read:
		sink := [1]provider.SGE{w.sink.sge(w.spec.place(index, slot), uint64(m.size))}
		return qp.Read(m, sink[:], p.grant.address+w.pattern.offset(number), p.grant.token, 0)
	case topology.Write:
		source := [1]provider.SGE{w.spec.payload(w.source, w.pattern, number, uint64(m.size))}
		status := qp.Write(m, source[:], p.grant.address+w.spec.place(index, slot), p.grant.token, flags)
		if status == provider.StatusSuccess && w.spec.announces() {
			status = notify(qp, m.index, uint64(m.size))
		}
		return status
	default:
		source := [1]provider.SGE{w.spec.payload(w.source, w.pattern, number, uint64(m.size))}
		return qp.Send(m, source[:], flags)
	}
}

// noticeLen is the length of the messages by which the ends of a workload of writes keep
// each other informed: the index and the size of a message, big-endian. One end says that
// it has written it, or the server that all up to it are compared and their slots free.
const noticeLen = 16

// notify sends a notice.
func notify(qp *provider.QP, index, size uint64) provider.Status {
	var notice [noticeLen]byte
	binary.BigEndian.PutUint64(notice[:], index)
	binary.BigEndian.PutUint64(notice[8:], size)
	sge := [1]provider.SGE{{Length: noticeLen, Inline: notice[:]}}
	return qp.Send(nil, sge[:], provider.OpInline|provider.OpSilentSuccess)
}

func decodeNotice(b []byte) (index, size uint64) {
	return binary.BigEndian.Uint64(b), binary.BigEndian.Uint64(b[8:])
}
