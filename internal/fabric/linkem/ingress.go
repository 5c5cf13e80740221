package linkem

import (
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"golang.org/x/sys/unix"
)

// receiveBatch bounds the frames received at once: few enough to stay in the
// processor's cache between receiving and sending.
const receiveBatch = 8

// An ingress is the receive side: it takes frames off ports, has the models decide on their
// packets, and enqueues those that pass. It belongs to the loop's thread.
type ingress struct {
	*epoch
	memory *pool
	egress *egress

	receiver *frame.Receiver
	staging  [receiveBatch]*buffer // where the receiver puts frames
	stream   stream                // what has arrived lately
	offset   int64                 // ns from the epoch to that of the wall clock, when frames were last received

	runs     []run            // of the frame at hand
	verdicts []impair.Verdict // on its packets, if somebody taps its link
	packet   impair.Packet    // the one at hand
	identity impair.Identity  // of packet, if it is RoCEv2

	trunks   *trunks
	recorder *recorder // nil: no decisions are recorded
	losses   losses    // the last ones
}

func newIngress(began *epoch, memory *pool, to *egress) ingress {
	in := ingress{epoch: began, memory: memory, egress: to}
	buffers := make([][]byte, receiveBatch)
	for i := range in.staging {
		in.staging[i] = memory.get()
		buffers[i] = in.staging[i].bytes
	}
	in.receiver = frame.NewReceiver(buffers)
	return in
}

// receive takes some frames off a port and has its line decide on them. It
// reports whether there may be more.
func (in *ingress) receive(p *port) bool {
	before := in.now()
	n, err := in.receiver.Receive(p.fd)
	if err != nil {
		if err == unix.EINVAL { // a super-packet of a kind that a virtio header cannot describe
			p.line.stats.Counts.Packets++
			p.line.stats.Counts.LostOverrun++
			return true
		}
		// EAGAIN: there is nothing. ENETDOWN: the interface went down; it may come back.
		p.empty = before
		return false
	}
	clock := time.Now()
	now := clock.Sub(in.Time)
	in.offset = clock.UnixNano() - int64(now)
	offset := in.offset
	if p.first == 0 {
		if p.first = 1; p.other != nil {
			if at, stamped := in.receiver.Stamp(0); stamped {
				p.first = at
			}
		}
	}
	if p.other != nil {
		if p.line.link.state != started { // the kernel may forward what has just arrived
			stamp, _ := in.receiver.Stamp(n - 1)
			last := min(time.Duration(stamp-offset), now)
			for in.now() < last+forwardTime {
			}
		}
		p.other.update(p.first)
	}
	for i := range n {
		raw := in.receiver.Frame(i)
		if p.other.saw(raw) {
			continue
		}
		// If the wall clock was set in the meantime the stamp is off; but it cannot
		// be older than the last time there was nothing, nor in the future.
		stamp, _ := in.receiver.Stamp(i)
		arrived := min(max(time.Duration(stamp-offset), p.empty), now)
		p.empty = arrived
		in.stream.bytes += len(raw)
		in.handle(p.line, i, raw, arrived)
	}
	in.trunks.flush(p.line.link.peer)
	if n < receiveBatch {
		p.empty = max(p.empty, before) // some may have come since
		return false
	}
	return true
}

// handle decides on a frame that arrived, and is in staging buffer i, and enqueues what
// passes.
func (in *ingress) handle(n *line, i int, raw []byte, arrived time.Duration) {
	f, err := frame.Parse(raw)
	if err != nil || in.receiver.Cut(i) {
		n.stats.Counts.Packets++
		n.stats.Counts.LostOverrun++
		return
	}
	if n.wire != nil {
		n.fabric.take(n, &f, i, arrived)
		return
	}
	in.verdicts = in.verdicts[:0]
	runs := in.decide(n, &f, arrived)
	if n.far {
		for i := range in.verdicts {
			in.copyToTaps(n, &f, i, nil, &in.verdicts[i], false, arrived)
		}
		n.link.peer.ship(n, &f, runs, arrived, in.memory)
		return
	}
	var whole *heldFrame
	needed := slices.ContainsFunc(runs, func(r run) bool { return r.held == nil })
	if needed {
		whole = in.hold(n, f, i, arrived)
	}
	for i := range in.verdicts {
		in.copyToTaps(n, &f, i, nil, &in.verdicts[i], needed && whole == nil, arrived)
	}
	if len(runs) > 0 {
		in.egress.enqueue(n, runs, whole)
	}
}

// decide lets the model decide on every packet of a frame that arrived, and
// returns those that pass: without held if they can leave as parts of this frame.
func (in *ingress) decide(n *line, f *frame.Frame, arrived time.Duration) []run {
	layers, at := f.Layers(), in.fabric(arrived) // the model's time
	p := &in.packet
	p.Payload, p.ECT, p.RoCE = layers.Payload, layers.ECT, nil
	identify := layers.RoCE && (in.recorder != nil || n.model.Identifies())
	var records *batch[impair.Record]
	if in.recorder != nil {
		records = in.recorder.spool.open()
		defer in.recorder.spool.close(records)
	}
	runs := in.runs[:0]
	for i := range f.Segments() {
		p.Frame = f.Size(i)
		n.stats.Entered(p.Frame)
		if identify {
			var known bool
			p.RoCE = nil
			if in.identity, known = impair.Identify(f.Message(i, layers)); known {
				p.RoCE = &in.identity
			}
		}
		v := n.model.Packet(p, at)
		n.stats.Decided(n.model, &v)
		if records != nil {
			n.record(records, p, at, &v)
		}
		if damages(&v) {
			in.recordLoss(n, f, layers, i, at, &v)
		}
		if len(n.link.taps) > 0 {
			in.verdicts = append(in.verdicts, v)
		}
		if v.Fate != impair.Passes {
			continue
		}
		r := run{departs: in.machine(v.Departs), queued: v.Queued, first: int32(i), count: 1, mark: v.Mark}
		if v.Flip.Any() {
			if r.held = in.corrupt(n, f, i, layers, &v, arrived); r.held == nil {
				n.stats.Counts.LostOverrun++
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
			n.stats.Counts.Duplicated++
			runs = append(runs, r)
		}
	}
	in.runs = runs[:0]
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

// hold keeps a frame from staging buffer i beyond the next receive. It returns nil
// when there is no memory left.
func (in *ingress) hold(n *line, f frame.Frame, i int, arrived time.Duration) *heldFrame {
	var b *buffer
	if size := len(f.Bytes()); size > shareLimit {
		fresh := in.memory.get()
		if fresh == nil {
			return nil
		}
		b, in.staging[i] = in.staging[i], fresh
		in.receiver.Replace(i, fresh.bytes)
	} else {
		var room []byte
		if b, room = in.memory.room(n, size); b == nil {
			return nil
		}
		f.Move(room)
	}
	return in.memory.hold(b, f, arrived)
}

// corrupt makes wire packet i of a frame, with bits flipped, a frame of its own.
// Its checksums are those of the packet before the change, but for RoCEv2 (see
// frame.Reseal). It returns nil when there
// is no memory left.
func (in *ingress) corrupt(n *line, f *frame.Frame, i int, at frame.Layers, v *impair.Verdict, arrived time.Duration) *heldFrame {
	b, room := in.memory.room(n, frame.HeaderLen+f.Size(i))
	if b == nil {
		return nil
	}
	one := f.Extract(room, i)
	if v.Mark {
		frame.Mark(one.Packet())
	}
	v.Flip.Apply(one.Packet())
	f.Reseal(one.Packet(), at)
	return in.memory.hold(b, one, arrived)
}
