package workload

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// taken is what completions calls.
func (w *stream) taken() (n int, over bool) {
	w.mu.Lock()
	defer w.mu.Unlock()
	if w.ending {
		return 0, true
	}
	if n = w.drain(); n > 0 {
		w.pump()
	}
	return n, w.ending
}

// drain handles every completion there is. w.mu is held.
func (w *stream) drain() (handled int) {
	now := w.clock.Now()
	var results [atOnce]provider.ResultEx
	for n := len(results); n == len(results) && !w.ending; handled += n {
		n = w.cq.ResultsEx(results[:])
		for i := range results[:n] {
			c := results[i].QPContext.(*connection)
			if c == c.lane.link && !w.ending { // or it is of a connection that was lost
				c.handle(now, &results[i])
			}
		}
	}
	return handled
}

// handle takes a completion.
func (c *connection) handle(now time.Duration, r *provider.ResultEx) {
	w := c.lane.stream
	m, isMessage := r.RequestContext.(*message)
	switch {
	case r.Status == provider.StatusSuccess && isMessage:
		if !w.spec.answered() {
			c.lane.finish(now, m)
		}
	case r.Status == provider.StatusSuccess:
		c.hear(now, uint64(r.BytesTransferred))
	case isMessage:
		w.lose(c, fmt.Sprintf("message %d: %v", m.index, r.Status))
	case r.Status != provider.StatusCancelled:
		w.lose(c, fmt.Sprintf("notice: %v", r.Status))
	}
}

// hear takes what the server has sent: an answer, or its word on which messages it has
// compared.
func (c *connection) hear(now time.Duration, length uint64) {
	l := c.lane
	w := l.stream
	slot := c.arrived % uint64(len(l.messages))
	c.arrived++
	notice := w.notices.bytes[(l.index*len(l.messages)+int(slot))*noticeLen:]
	switch {
	case !w.spec.answered():
		if index, _ := decodeNotice(notice); index >= l.released && index < l.posted {
			l.release(index + 1)
		} else {
			w.lose(c, fmt.Sprintf("the server says that it has compared message %d, in flight are %d to %d", index, l.released, l.posted))
		}
	case w.spec.Operation == topology.Send:
		l.answer(now, length, slot)
	default:
		_, size := decodeNotice(notice)
		l.answer(now, size, l.finished%uint64(len(l.messages)))
	}
	if w.ending {
		return
	}
	if err := l.postReceive(c, slot); err != nil {
		w.lose(c, err.Error())
	}
}

// answer takes the server's answer to the message in flight, which is in a slot of sink.
func (l *lane) answer(now time.Duration, size, slot uint64) {
	w := l.stream
	if l.finished == l.posted {
		w.lose(l.link, fmt.Sprintf("the server has answered message %d, which was not posted", l.finished))
		return
	}
	m := &l.messages[l.finished%uint64(len(l.messages))]
	if size != m.size {
		w.lose(l.link, fmt.Sprintf("message %d has %d bytes, its answer %d", m.index, m.size, size))
		return
	}
	if w.spec.announces() {
		l.release(m.index + 1)
	}
	l.finishIn(now, m, slot)
}

// release takes the server's word that messages below next are compared.
func (l *lane) release(next uint64) {
	l.stream.unreleased -= next - l.released
	l.released = next
	l.stream.ready.push(l)
}

// finish takes the completion of a message.
func (l *lane) finish(now time.Duration, m *message) {
	l.finishIn(now, m, m.index%uint64(len(l.messages)))
}

// finishIn takes the completion of a message, what came back of which is in a slot of
// sink.
func (l *lane) finishIn(now time.Duration, m *message, slot uint64) {
	w := l.stream
	l.finished++
	w.unfinished--
	w.ready.push(l)
	w.quiet.broken(now)
	if m.index < l.counted {
		return // it had completed on the connection before
	}
	l.counted++
	if text := l.compare(m, slot); text != "" {
		w.mistake(now, text)
		return
	}
	took := now - m.posted
	if w.spec.answered() {
		took /= 2
	}
	w.progress.Messages++
	w.progress.Bytes += m.size
	w.series.completed(now, m.size, took)
	if !m.warm {
		w.step.completed(now, m.size, took)
	}
}

// compare holds what came back against the pattern; it returns what is wrong with it.
func (l *lane) compare(m *message, slot uint64) string {
	w := l.stream
	if !w.spec.Verify || w.sink == nil {
		return ""
	}
	number := w.spec.number(l.index, m.index)
	got := w.sink.bytes[w.spec.place(l.index, slot):][:m.size]
	if bytes.Equal(got, w.pattern.message(number)[:m.size]) {
		return ""
	}
	return w.pattern.difference(number, got)
}
