package simulate

import (
	"fmt"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/report"
)

// findDeadlock looks for queues that wait for each other, and tells of those that it finds once.
func (n *network) findDeadlock(now time.Duration) {
	cycle := mmu.Deadlock(n.members, n.peer)
	if cycle == nil {
		return
	}
	first := 0 // the cycle begins with the queue that is first, wherever it was found
	for i, q := range cycle {
		if n.endpoint(q) < n.endpoint(cycle[first]) {
			first = i
		}
	}
	cycle = slices.Concat(cycle[first:], cycle[:first])
	text := mmu.FormatCycle(cycle, n.endpoint)
	for _, known := range n.deadlocks {
		if known.Class == cycle[0].Class && slices.Equal(known.Queues, n.endpoints(cycle)) {
			return
		}
	}
	n.deadlocks = append(n.deadlocks, report.Deadlock{AtUS: now.Seconds() * 1e6, Class: cycle[0].Class, Queues: n.endpoints(cycle)})
	n.tell(event.Event{Kind: event.Deadlock, Text: fmt.Sprintf("deadlock in class %d: %s", cycle[0].Class, text)})
}

// peer returns the switch and its port at the other end of a port's link; false if there is no buffer of a
// switch.
func (n *network) peer(sw, port int) (peer, in int, ok bool) {
	w := n.switches[sw].ports[port].wire
	if w.to == nil || w.to.index < 0 {
		return 0, 0, false
	}
	return w.to.index, w.in, true
}

// endpoint names a queue by the interface that it leaves by.
func (n *network) endpoint(q mmu.Queue) string {
	spec := n.switches[q.Switch].node.spec
	return spec.Name + ":" + spec.Interfaces[q.Port].Name
}

func (n *network) endpoints(cycle []mmu.Queue) []string {
	names := make([]string, len(cycle))
	for i, q := range cycle {
		names[i] = n.endpoint(q)
	}
	return names
}

// buffers returns what befell the buffers of nodes.
func (n *network) buffers(now time.Duration) (all []report.Buffer) {
	for _, at := range n.nodes {
		if at.buffer != nil {
			all = append(all, at.buffer.report(now))
		}
	}
	return all
}

func (b *buffer) report(now time.Duration) report.Buffer {
	r := report.Buffer{Node: b.node.spec.Name, Size: uint64(b.size), Peak: uint64(b.model.Peak()), Ports: []report.BufferPort{}}
	for i := range b.node.spec.Interfaces {
		p := &b.ports[i]
		face := &b.node.spec.Interfaces[i]
		port := report.BufferPort{
			Interface: face.Name, Peer: b.network.links[face.Link].spec.Endpoints[1-face.End].String(), Classes: []report.BufferClass{},
		}
		for class := range mmu.Classes {
			c := b.model.Counters(now, i, class)
			p.lengths[class].observe(now, b.model.Queued(i, class))
			if c != (mmu.Counters{}) {
				port.Classes = append(port.Classes, classReport(class, &c, &p.lengths[class]))
			}
		}
		r.Ports = append(r.Ports, port)
	}
	return r
}

func classReport(class int, c *mmu.Counters, l *lengths) report.BufferClass {
	us := func(d time.Duration) float64 { return d.Seconds() * 1e6 }
	peak := uint64(c.QueuePeak)
	r := report.BufferClass{
		Class: class, Packets: c.Packets, Bytes: c.Bytes, Marked: c.Marked,
		RxPauses: c.RxPause, RxPauseUS: us(c.RxPauseTime), RxTransitions: c.RxTransitions,
		TxPauses: c.TxPause, TxPauseUS: us(c.TxPauseTime), TxTransitions: c.TxTransitions, Storms: c.Storms,
		Queue:       report.QueueLength{P50: min(l.percentile(0.5), peak), P99: min(l.percentile(0.99), peak), Peak: peak},
		IngressPeak: uint64(c.IngressPeak), HeadroomPeak: uint64(c.HeadroomPeak),
	}
	for v, n := range c.Drops {
		if n > 0 {
			if r.Dropped == nil {
				r.Dropped = map[string]uint64{}
			}
			r.Dropped[mmu.Verdict(v).String()] += n
		}
	}
	return r
}
