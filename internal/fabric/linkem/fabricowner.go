package linkem

import (
	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/dataplane"
	"github.com/ndklab/ndklab/internal/fabric/impair"
)

// This file is the fabric as the owner of the packets of its plane, as far as packet.go is not: dataplane.Owner says what
// the methods do.

// lineOf returns the line that a wire belongs to.
func (f *fabric) lineOf(w *dataplane.Wire[*packet]) *line { return f.lines[w.Link][w.Direction] }

// Flip implements dataplane.Owner. Without memory the packet stays as it is.
func (f *fabric) Flip(p *packet, bits *impair.Flip) {
	if p.hops > 0 {
		if held := f.extract(p); held != nil {
			f.replace(p, held)
		}
	}
	if held := f.ingress.corrupt(p.line, &p.held.frame, int(p.segment), p.layers, &impair.Verdict{Mark: p.marked, Flip: *bits}, p.held.arrived); held != nil {
		f.replace(p, held)
	}
}

// Identify implements dataplane.Owner.
func (f *fabric) Identify(p *packet, of *impair.Packet, roce bool) {
	of.Payload = p.layers.Payload
	if !p.layers.RoCE || !roce && f.ingress.recorder == nil {
		return
	}
	var known bool
	if f.identity, known = impair.Identify(p.held.frame.Message(int(p.segment), p.layers)); known {
		of.RoCE = &f.identity
	}
}

// Decided implements dataplane.Owner: it records the decision, and copies the packet to taps.
func (f *fabric) Decided(w *dataplane.Wire[*packet], p *packet, of *impair.Packet, v *impair.Verdict) {
	if p.held == nil {
		return
	}
	n, in, now := f.lineOf(w), f.ingress, f.clock.Now()
	if in.recorder != nil {
		records := in.recorder.spool.open()
		n.record(records, of, now, v)
		in.recorder.spool.close(records)
	}
	if damages(v) {
		in.packet = *of
		in.recordLoss(n, &p.held.frame, p.layers, int(p.segment), now, v)
	}
	if len(n.link.taps) > 0 {
		in.copyToTaps(n, &p.held.frame, int(p.segment), p, v, false, f.machine(now))
	}
}

// Arrive implements dataplane.Owner.
func (f *fabric) Arrive(p *packet, by *dataplane.Wire[*packet], t dataplane.Transit) {
	switch to := by.To; {
	case to != nil && to.OfSwitch():
		by.Delivered(f.clock.Now(), f.Size(p), t, 0)
		f.forward(p, to, by)
	case to != nil && to.ReceivesSlowly():
		by.Delivered(f.clock.Now(), f.Size(p), t, 0)
		p.by, p.transit, p.counted = f.lineOf(by), t, true
		to.Take(p, by.In, to.Adapter())
	default:
		p.by, p.transit, p.counted = f.lineOf(by), t, false
		f.leave(p)
	}
}

// forward has a switch or router forward a packet that came in by a wire.
func (f *fabric) forward(p *packet, at *dataplane.Buffer[*packet], by *dataplane.Wire[*packet]) {
	if r := f.routers[at.Node().Name]; r != nil {
		f.route(p, at, r, by)
		return
	}
	b, in := f.switches[at.Node().Name], by.In
	to, from := p.addresses()
	if to.reserved() {
		f.Free(p)
		return
	}
	b.learn(from, in)
	if out, known := b.port(to); known {
		if out == in {
			f.Free(p)
			return
		}
		at.Take(p, in, out)
		return
	}
	for out := range b.ports {
		if out == in {
			continue
		}
		if c := f.Copy(p); c.held != nil {
			at.Take(c, in, out)
		} else {
			f.Free(c)
			p.line.stats.Counts.LostOverrun++
		}
	}
	f.Free(p)
}

// Deliver implements dataplane.Owner.
func (f *fabric) Deliver(p *packet, _ *dataplane.Buffer[*packet]) {
	p.transit.Departs = f.clock.Now()
	f.leave(p)
}

// Obeyed implements dataplane.Owner: a node gets the PFC frames that its adapter obeys, too, so that its processes do, and
// captures have them.
func (f *fabric) Obeyed(p *packet, by *dataplane.Wire[*packet]) {
	if by.To != nil && by.To.OfSwitch() || p.held == nil {
		f.Free(p)
		return
	}
	p.by, p.transit, p.counted = f.lineOf(by), dataplane.Transit{Departs: f.clock.Now()}, true
	f.leave(p)
}

// leave has a packet that has left its last wire sent.
func (f *fabric) leave(p *packet) {
	n := p.by
	if len(n.departed) == 0 {
		f.exits = append(f.exits, n)
	}
	n.departed = append(n.departed, p)
}

// Overflowed implements dataplane.Owner.
func (f *fabric) Overflowed(b *dataplane.Buffer[*packet]) { f.full[b.Node().Name]++ }

// Deadlocked implements dataplane.Owner.
func (f *fabric) Deadlocked(d bufferstats.Deadlock) {
	select {
	case f.deadlocks <- d:
	default: // the figures have it all the same
	}
}
