package workload

import (
	"encoding/binary"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// message is a message in flight: the context of its request.
type message struct {
	index  uint64 // on its lane
	size   uint64
	posted time.Duration // for the first time
	warm   bool          // it is of the warm-up
}

// pump posts what may be posted, and goes on when there is nothing left to do. w.mu is
// held.
func (w *stream) pump() {
	for l := w.ready.head(); l != nil && !w.ending; l = w.ready.head() {
		now := w.clock.Now()
		if !l.mayPost(now) {
			w.ready.pop()
			continue
		}
		if wait := w.pace.wait(now); wait > 0 {
			w.wake(wait)
			break
		}
		w.ready.pop()
		if status := l.post(now); status != provider.StatusSuccess {
			w.lose(l.link, fmt.Sprintf("post message %d: %v", l.next, status))
			continue
		}
		w.ready.push(l)
	}
	w.settle()
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
		w.pump()
	})
}

// wants reports whether another message is to be posted.
func (w *stream) wants(now time.Duration) bool {
	switch {
	case w.stopped || w.broken:
		return false
	case now < w.step.from: // warming up
		return true
	case w.spec.Count > 0:
		return w.step.posted < w.spec.Count
	}
	return now-w.step.from < w.spec.Duration
}

// mayPost reports whether the lane may post a message now.
func (l *lane) mayPost(now time.Duration) bool {
	w := l.stream
	switch {
	case l.link == nil || !l.link.up:
		return false
	case l.next < l.posted: // it was posted before, and had its place then
		return true
	case l.posted-l.finished >= uint64(w.spec.depth()):
		return false
	case w.spec.announces() && l.posted-l.released >= uint64(len(l.messages)):
		return false // every slot at the server is waiting to be compared
	}
	return w.wants(now)
}

// post posts the lane's next message. w.mu is held.
func (l *lane) post(now time.Duration) provider.Status {
	w := l.stream
	m := &l.messages[l.next%uint64(len(l.messages))]
	first := l.next == l.posted
	if first {
		*m = message{index: l.next, size: w.size(l), posted: now, warm: now < w.step.from}
	}
	if status := l.request(m); status != provider.StatusSuccess {
		return status
	}
	w.attend()
	w.pace.spend(now, m.size)
	l.next++
	if !first {
		w.result.Retried++
		return provider.StatusSuccess
	}
	l.posted++
	if !m.warm {
		w.step.posted++
	}
	w.unfinished++
	if w.spec.announces() {
		w.unreleased++
	}
	return provider.StatusSuccess
}

// attend has the silence begin no earlier than there was something to do. With nothing in
// flight that is since the next message is due. It is called before there is.
func (w *stream) attend() {
	if w.unfinished == 0 {
		w.quiet.since = max(w.quiet.since, w.pace.due)
	}
}

// size is that of the lane's next message.
func (w *stream) size(l *lane) uint64 {
	if w.spec.Mixed {
		return w.spec.drawn(w.spec.number(l.index, l.next))
	}
	return w.step.size
}

// request makes the requests of a message.
func (l *lane) request(m *message) provider.Status {
	w, c := l.stream, l.link
	slot := m.index % uint64(len(l.messages))
	number := w.spec.number(l.index, m.index)
	flags := w.spec.flags()
	switch w.spec.Operation {
	case topology.Read:
		sink := [1]provider.SGE{w.sink.sge(w.spec.place(l.index, slot), m.size)}
		return c.qp.Read(m, sink[:], c.grant.address+w.pattern.offset(number), c.grant.token, 0)
	case topology.Write:
		source := [1]provider.SGE{w.spec.payload(w.source, w.pattern, number, m.size)}
		status := c.qp.Write(m, source[:], c.grant.address+w.spec.place(l.index, slot), c.grant.token, flags)
		if status == provider.StatusSuccess && w.spec.announces() {
			status = notify(c.qp, m.index, m.size)
		}
		return status
	default:
		source := [1]provider.SGE{w.spec.payload(w.source, w.pattern, number, m.size)}
		return c.qp.Send(m, source[:], flags)
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
