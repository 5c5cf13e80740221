package dataplane

import (
	"time"

	"github.com/ndklab/ndklab/internal/fabric/bufferstats"
	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/internal/fabric/series"
	"github.com/ndklab/ndklab/topology"
)

// This file is about the figures of buffers.

// Figures returns those of all buffers, in the order of the nodes.
func (p *Plane[F]) Figures() (all []bufferstats.Buffer) {
	for i := range p.topology.Nodes {
		if b := p.buffers[p.topology.Nodes[i].Name]; b != nil {
			all = append(all, b.figures(p.now()))
		}
	}
	return all
}

// Begin has all figures begin anew, as of the present instant, but for those of CountPauses.
func (p *Plane[F]) Begin() {
	p.began, p.deadlocks = p.now(), nil
	for _, b := range p.buffers {
		pauses := map[string]uint64{}
		for class := range uint32(mmu.Classes) {
			b.CountPauses(pauses, class)
		}
		b.earlier = pauses
		b.model.Begin(p.began)
		for i := range b.ports {
			b.ports[i].lengths = [mmu.Classes]bufferstats.Lengths{}
			for class := range mmu.Classes {
				b.observe(p.began, i, class)
			}
		}
	}
}

// CountPauses adds the counters of the pauses of a class, of all interfaces, since there is the buffer.
func (b *Buffer[F]) CountPauses(to map[string]uint64, class uint32) {
	now := b.shard.clock.Now()
	for _, c := range []topology.PauseCounter{
		topology.RxPause, topology.RxPauseDuration, topology.RxPauseTransition, topology.TxPause, topology.TxPauseDuration, topology.RxDiscards,
	} {
		to[c.Of(class)] += b.earlier[c.Of(class)]
	}
	for i := range b.node.Interfaces {
		c := b.model.Counters(now, i, int(class))
		to[topology.RxPause.Of(class)] += c.RxPause
		to[topology.RxPauseDuration.Of(class)] += uint64(c.RxPauseTime / time.Microsecond)
		to[topology.RxPauseTransition.Of(class)] += c.RxTransitions
		to[topology.TxPause.Of(class)] += c.TxPause
		to[topology.TxPauseDuration.Of(class)] += uint64(c.TxPauseTime / time.Microsecond)
		to[topology.RxDiscards.Of(class)] += c.Drops[mmu.NoHeadroom]
	}
}

func (b *Buffer[F]) figures(now time.Duration) bufferstats.Buffer {
	r := bufferstats.Buffer{Node: b.node.Name, Size: uint64(b.size), Peak: uint64(b.model.Peak()), Ports: []bufferstats.Port{}}
	for i := range b.node.Interfaces {
		p := &b.ports[i]
		face := &b.node.Interfaces[i]
		port := bufferstats.Port{
			Interface: face.Name, Peer: b.plane.topology.Links[face.Link].Endpoints[1-face.End].String(), Classes: []bufferstats.Class{},
		}
		for class := range mmu.Classes {
			c := b.model.Counters(now, i, class)
			b.observe(now, i, class)
			if c != (mmu.Counters{}) {
				port.Classes = append(port.Classes, classFigures(class, &c, &p.lengths[class]))
			}
		}
		r.Ports = append(r.Ports, port)
	}
	return r
}

func classFigures(class int, c *mmu.Counters, l *bufferstats.Lengths) bufferstats.Class {
	us := func(d time.Duration) float64 { return d.Seconds() * 1e6 }
	peak := uint64(c.QueuePeak)
	r := bufferstats.Class{
		Class: class, Packets: c.Packets, Bytes: c.Bytes, Marked: c.Marked,
		RxPauses: c.RxPause, RxPauseUS: us(c.RxPauseTime), RxTransitions: c.RxTransitions,
		TxPauses: c.TxPause, TxPauseUS: us(c.TxPauseTime), TxTransitions: c.TxTransitions, Storms: c.Storms,
		Queue:       bufferstats.QueueLength{P50: min(l.Percentile(0.5), peak), P99: min(l.Percentile(0.99), peak), Peak: peak},
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

// Queues are those of all buffers, for a recorder of their course.
type Queues[F any] struct {
	plane *Plane[F]
	all   []recordedQueue[F]
}

// A recordedQueue is a class at a port of a buffer.
type recordedQueue[F any] struct {
	*series.Queue
	buffer      *Buffer[F]
	port, class int
}

// Record adds all queues to a recorder.
func (p *Plane[F]) Record(r *series.Recorder) *Queues[F] {
	q := &Queues[F]{plane: p}
	for i := range p.topology.Nodes {
		b := p.buffers[p.topology.Nodes[i].Name]
		if b == nil {
			continue
		}
		for i := range b.node.Interfaces {
			for class := range mmu.Classes {
				endpoint := b.node.Name + ":" + b.node.Interfaces[i].Name
				q.all = append(q.all, recordedQueue[F]{r.Queue(endpoint, class), b, i, class})
			}
		}
	}
	return q
}

// Set tells the recorder what all queues hold now.
func (q *Queues[F]) Set() {
	now := q.plane.now()
	for i := range q.all {
		one := &q.all[i]
		one.Queue.Set(uint64(one.buffer.model.Queued(one.port, one.class)), one.buffer.model.Counters(now, one.port, one.class).RxPauseTime)
	}
}
