package linkem

import (
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"golang.org/x/sys/unix"
)

// receive takes some frames off a port and has its line decide on them. It
// reports whether there may be more.
func (l *loop) receive(p *port) bool {
	before := l.now()
	n, err := l.receiver.Receive(p.fd)
	if err != nil {
		if err == unix.EINVAL { // a super-packet of a kind that a virtio header cannot describe
			p.line.gauge.Counts.Packets++
			p.line.gauge.Counts.LostOverrun++
			return true
		}
		// EAGAIN: there is nothing. ENETDOWN: the interface went down; it may come back.
		p.empty = before
		return false
	}
	clock := time.Now()
	now := clock.Sub(l.epoch)
	l.offset = clock.UnixNano() - int64(now)
	offset := l.offset
	if p.other != nil && p.line.link.state != started { // the kernel may forward what has just arrived
		stamp, _ := l.receiver.Stamp(n - 1)
		last := min(time.Duration(stamp-offset), now)
		for l.now() < last+settling {
		}
		p.other.update()
	}
	for i := range n {
		raw := l.receiver.Frame(i)
		if p.other.saw(raw) {
			continue
		}
		// If the wall clock was set in the meantime the stamp is off; but it cannot
		// be older than the last time there was nothing, nor in the future.
		stamp, _ := l.receiver.Stamp(i)
		arrived := min(max(time.Duration(stamp-offset), p.empty), now)
		p.empty = arrived
		l.stream.bytes += len(raw)
		l.enter(p.line, i, raw, arrived)
	}
	if n < receiveBatch {
		p.empty = max(p.empty, before) // some may have come since
		return false
	}
	return true
}

// enter puts a frame that arrived, and is in staging buffer i, into its line.
func (l *loop) enter(n *line, i int, raw []byte, arrived time.Duration) {
	f, err := frame.Parse(raw)
	if err != nil || l.receiver.Cut(i) {
		n.gauge.Counts.Packets++
		n.gauge.Counts.LostOverrun++
		return
	}
	l.verdicts = l.verdicts[:0]
	runs := l.judge(n, &f, arrived)
	var whole *held
	needed := slices.ContainsFunc(runs, func(r run) bool { return r.held == nil })
	if needed {
		whole = l.hold(n, f, i, arrived)
	}
	for i := range l.verdicts {
		n.tell(&f, i, &l.verdicts[i], needed && whole == nil, arrived, l.offset)
	}
	if len(runs) > 0 {
		l.queue(n, runs, whole)
	}
}

// queue puts runs into a line: of a whole frame, or lost if there is no memory
// for it, and of frames of their own.
func (l *loop) queue(n *line, runs []run, whole *held) {
	first, release := n.queue.empty(), n.release
	for _, r := range runs {
		if r.held == nil {
			if whole == nil {
				n.gauge.Counts.LostOverrun += uint64(r.count)
				continue
			}
			r.held = whole
			if r.mark && whole.frame.Segments() == 1 {
				frame.Mark(whole.frame.Packet())
				r.mark = false
			}
		}
		r.held.runs++
		l.pool.left -= runCost
		n.queue.push(r)
		release = min(release, r.departs)
	}
	if n.queue.empty() {
		return
	}
	if first || release < n.release {
		n.schedule()
		l.departures.fix(n)
	}
}

// judge lets the model decide on every packet of a frame that arrived, and
// returns those that pass: without held if they can leave as parts of this frame.
func (l *loop) judge(n *line, f *frame.Frame, arrived time.Duration) []run {
	at := f.Layers()
	p := &l.packet
	p.Payload, p.ECT, p.RoCE = at.Payload, at.ECT, nil
	identify := at.RoCE && (l.recorder != nil || n.model.Identifies())
	var records *batch[impair.Record]
	if l.recorder != nil {
		records = l.recorder.spool.open()
		defer l.recorder.spool.close(records)
	}
	runs := l.runs[:0]
	for i := range f.Segments() {
		p.Frame = f.Size(i)
		n.gauge.Entered(p.Frame)
		if identify {
			var known bool
			p.RoCE = nil
			if l.identity, known = impair.Identify(f.Message(i, at)); known {
				p.RoCE = &l.identity
			}
		}
		v := n.model.Packet(p, arrived)
		n.gauge.Decided(n.model, &v)
		if records != nil {
			n.record(records, p, arrived, &v)
		}
		if harmed(&v) {
			l.lose(n, f, at, i, arrived, &v)
		}
		if len(n.link.taps) > 0 {
			l.verdicts = append(l.verdicts, v)
		}
		if v.Fate != impair.Passes {
			continue
		}
		r := run{departs: v.Departs, queued: v.Queued, first: int32(i), count: 1, mark: v.Mark}
		if v.Flip.Any() {
			if r.held = l.corrupt(n, f, i, at, &v, arrived); r.held == nil {
				n.gauge.Counts.LostOverrun++
				continue
			}
			r.first, r.mark = 0, false
		}
		if k := len(runs) - 1; k >= 0 && r.held == nil && r.departs == runs[k].departs && r.follows(&runs[k]) {
			runs[k].count++
			runs[k].queued += r.queued
		} else {
			runs = append(runs, r)
		}
		if v.Twice {
			n.gauge.Counts.Duplicated++
			runs = append(runs, r)
		}
	}
	l.runs = runs[:0]
	return runs
}

// record adds a decision to the records, if they have room.
func (n *line) record(b *batch[impair.Record], p *impair.Packet, arrived time.Duration, v *impair.Verdict) {
	if len(b.items) == cap(b.items) {
		b.missed++
		return
	}
	r := n.model.Record(p, arrived, v)
	r.Link, r.Direction = n.link.name, n.direction
	b.items = append(b.items, r)
}

// hold keeps a frame from staging buffer i beyond the next receive. It is nil
// when there is no memory left.
func (l *loop) hold(n *line, f frame.Frame, i int, arrived time.Duration) *held {
	var b *buffer
	if size := len(f.Bytes()); size > shareLimit {
		fresh := l.pool.get()
		if fresh == nil {
			return nil
		}
		b, l.staging[i] = l.staging[i], fresh
		l.receiver.Replace(i, fresh.bytes)
	} else {
		var room []byte
		if b, room = l.room(n, size); b == nil {
			return nil
		}
		f.Move(room)
	}
	return l.holdIn(b, f, arrived)
}

// corrupt makes wire packet i of a frame, with bits flipped, a frame of its own.
// Its checksums are those of the packet before the change, but for RoCEv2 (see
// frame.Reseal). It is nil when there is no memory left.
func (l *loop) corrupt(n *line, f *frame.Frame, i int, at frame.Layers, v *impair.Verdict, arrived time.Duration) *held {
	b, room := l.room(n, frame.HeaderLen+f.Size(i))
	if b == nil {
		return nil
	}
	one := f.Extract(room, i)
	if v.Mark {
		frame.Mark(one.Packet())
	}
	v.Flip.Apply(one.Packet())
	f.Reseal(one.Packet(), at)
	return l.holdIn(b, one, arrived)
}

// room is memory for a frame of a line: in the buffer that its short frames
// share, or in one of its own. The buffer is nil when there is none left.
func (l *loop) room(n *line, size int) (*buffer, []byte) {
	if size > shareLimit {
		b := l.pool.get()
		if b == nil {
			return nil, nil
		}
		return b, b.bytes[:size]
	}
	if l.pool.left < heldCost {
		return nil, nil
	}
	if n.shared != nil && bufferLen-n.shared.used < size {
		n.shared = nil // the frames in it will give it back
	}
	if n.shared == nil {
		if n.shared = l.pool.get(); n.shared == nil {
			return nil, nil
		}
	}
	b := n.shared
	room := b.bytes[b.used : b.used+size]
	b.used += (size + 7) &^ 7
	return b, room
}

// holdIn holds a frame that arrived at an instant and whose bytes are in a buffer.
func (l *loop) holdIn(b *buffer, f frame.Frame, arrived time.Duration) *held {
	b.frames++
	l.pool.left -= heldCost
	var h *held
	if k := len(l.spare) - 1; k >= 0 {
		h, l.spare = l.spare[k], l.spare[:k]
	} else {
		h = new(held)
	}
	h.frame, h.buffer, h.arrived = f, b, arrived
	return h
}

// drop ends the holding of a frame that has left line n.
func (l *loop) drop(n *line, h *held) {
	if h.buffer.frames--; h.buffer.frames == 0 {
		if n.shared == h.buffer {
			n.shared = nil
		}
		l.pool.put(h.buffer)
	}
	h.buffer = nil
	l.pool.left += heldCost
	l.spare = append(l.spare, h)
}
