package workload

import (
	"bytes"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// handle implements session.
func (p *pipeline) handle(now time.Duration, r provider.ResultEx) {
	w := p.stream
	if w.broken || w.leaving {
		return
	}
	m, isMessage := r.RequestContext.(*message)
	switch {
	case r.Status == provider.StatusSuccess && isMessage:
		if !w.spec.answered() {
			p.finish(now, m, m.index%uint64(len(p.messages)))
		}
	case r.Status == provider.StatusSuccess:
		p.received(now, uint64(r.BytesTransferred))
	case isMessage:
		p.channel.conn.fail(fmt.Sprintf("message %d: %v", m.index, r.Status))
	default:
		p.channel.conn.fail(fmt.Sprintf("notice: %v", r.Status))
	}
}

// received takes what the server has sent: an answer, or its word on which messages it has
// compared.
func (p *pipeline) received(now time.Duration, length uint64) {
	w, c := p.stream, p.channel.conn
	slot := p.arrived % uint64(len(p.messages))
	p.arrived++
	notice := w.notices.bytes[(p.channel.index*len(p.messages)+int(slot))*noticeLen:]
	switch {
	case !w.spec.answered():
		if index, _ := decodeNotice(notice); index >= p.released && index < p.posted {
			p.release(index + 1)
		} else {
			c.fail(fmt.Sprintf("the server says that it has compared message %d, in flight are %d to %d", index, p.released, p.posted))
		}
	case w.spec.Operation == topology.Send:
		p.answered(now, length, slot)
	default:
		_, size := decodeNotice(notice)
		p.answered(now, size, p.finished%uint64(len(p.messages)))
	}
	if c.stage != up {
		return
	}
	if err := p.postReceive(c, slot); err != nil {
		c.fail(err.Error())
	}
}

// answered takes the server's answer to the message in flight, which is in a slot of sink.
func (p *pipeline) answered(now time.Duration, size, slot uint64) {
	w, c := p.stream, p.channel.conn
	if p.finished == p.posted {
		c.fail(fmt.Sprintf("the server has answered message %d, which was not posted", p.finished))
		return
	}
	m := &p.messages[p.finished%uint64(len(p.messages))]
	if size != uint64(m.size) {
		c.fail(fmt.Sprintf("message %d has %d bytes, its answer %d", m.index, m.size, size))
		return
	}
	if w.spec.announces() {
		p.release(m.index + 1)
	}
	p.finish(now, m, slot)
}

// release takes the server's word that messages below next are compared.
func (p *pipeline) release(next uint64) {
	p.stream.unreleased -= next - p.released
	p.released = next
	p.stream.ready.push(p)
}

// finish takes the completion of a message, what came back of which is in a slot of sink.
func (p *pipeline) finish(now time.Duration, m *message, slot uint64) {
	w := p.stream
	p.finished++
	w.ready.push(p)
	w.ended(now)
	if m.index < p.counted {
		return // it had completed on the connection before
	}
	p.counted++
	if text := p.compare(m, slot); text != "" {
		w.failed(now, text)
		return
	}
	took := now - m.posted
	if w.spec.answered() {
		took /= 2
	}
	w.completed(now, uint64(m.size), took, m.warm)
}

// compare compares what came back with the pattern, and says what is wrong with it; "" if
// nothing is.
func (p *pipeline) compare(m *message, slot uint64) string {
	w := p.stream
	if !w.spec.Verify || w.sink == nil {
		return ""
	}
	number := w.spec.number(p.channel.index, m.index)
	got := w.sink.bytes[w.spec.place(p.channel.index, slot):][:m.size]
	if bytes.Equal(got, w.pattern.message(number)[:m.size]) {
		return ""
	}
	return w.pattern.difference(number, got)
}
