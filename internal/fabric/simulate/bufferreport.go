package simulate

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/histogram"
	"github.com/ndklab/ndklab/topology"
)

// This file is about the figures of buffers.

// lengths has the lengths of a queue, weighted by time, from its first packet to its last.
type lengths struct {
	since   time.Duration
	bytes   int64
	weights *histogram.Histogram // nanoseconds by bytes; nil: nothing ever waited
}

// lengthPrecision has lengths of queues told apart that differ by a hundredth.
const lengthPrecision = 6

// observe takes note of a queue's length from now on.
func (l *lengths) observe(now time.Duration, bytes int64) {
	if bytes == 0 && l.bytes == 0 {
		return // how long it is empty counts once a packet follows
	}
	if l.weights == nil {
		l.weights, l.since = histogram.New(lengthPrecision), now
	}
	if now > l.since {
		l.weights.Record(l.bytes, uint64(now-l.since))
	}
	l.since, l.bytes = now, bytes
}

// percentile returns the length that the queue had at most in a share of the time.
func (l *lengths) percentile(share float64) uint64 {
	if l.weights == nil || l.weights.Count() == 0 {
		return 0
	}
	rank := max(1, uint64(share*float64(l.weights.Count())))
	return uint64(l.weights.Highest(l.weights.Ranked(rank)))
}

// buffers returns the figures of all buffers, in the order of the nodes.
func (n *network) buffers(now time.Duration) (all []report.Buffer) {
	for _, at := range n.nodes {
		if at.buffer != nil {
			all = append(all, at.buffer.report(now))
		}
	}
	return all
}

// countPauses adds a class's counters of all interfaces.
func (b *buffer) countPauses(to map[string]uint64, class uint32) {
	now := b.network.clock.Now()
	for i := range b.node.spec.Interfaces {
		c := b.model.Counters(now, i, int(class))
		to[topology.RxPause.Of(class)] += c.RxPause
		to[topology.RxPauseDuration.Of(class)] += uint64(c.RxPauseTime / time.Microsecond)
		to[topology.RxPauseTransition.Of(class)] += c.RxTransitions
		to[topology.TxPause.Of(class)] += c.TxPause
		to[topology.TxPauseDuration.Of(class)] += uint64(c.TxPauseTime / time.Microsecond)
		to[topology.RxDiscards.Of(class)] += c.Drops[mmu.NoHeadroom]
	}
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
