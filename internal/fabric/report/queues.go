package report

import (
	"cmp"
	"slices"
)

// A Queue is of one endpoint and one class.
type Queue struct {
	Endpoint string
	*BufferClass
}

// Queues returns those of buffers in their order, but for those into which nothing came.
func Queues(buffers []Buffer) []Queue {
	var all []Queue
	for i := range buffers {
		b := &buffers[i]
		for j := range b.Ports {
			p := &b.Ports[j]
			for k := range p.Classes {
				if c := &p.Classes[k]; c.Packets > 0 || c.Queue.Peak > 0 || c.Drops() > 0 {
					all = append(all, Queue{b.Node + ":" + p.Interface, c})
				}
			}
		}
	}
	return all
}

// ByTrouble orders queues: those that dropped most, then the longest ones.
func ByTrouble(a, b Queue) int {
	return cmp.Or(cmp.Compare(b.Drops(), a.Drops()), cmp.Compare(b.Queue.P99, a.Queue.P99),
		cmp.Compare(b.Queue.Peak, a.Queue.Peak))
}

// A Pause is of one endpoint by another, in a class, summed over the run.
type Pause struct {
	By, Whom string // endpoints of one link
	Class    int
	Frames   uint64
	US       float64
}

// Pauses returns who paused whom in buffers, the longest in all first. It is told by those who
// were paused: the endpoint that paused them is the other end of their link.
func Pauses(buffers []Buffer) []Pause {
	var all []Pause
	for i := range buffers {
		for _, p := range buffers[i].Ports {
			for _, c := range p.Classes {
				if c.RxPauses > 0 || c.RxPauseUS > 0 {
					all = append(all, Pause{By: p.Peer, Whom: buffers[i].Node + ":" + p.Interface, Class: c.Class, Frames: c.RxPauses, US: c.RxPauseUS})
				}
			}
		}
	}
	slices.SortStableFunc(all, func(a, b Pause) int { return cmp.Compare(b.US, a.US) })
	return all
}
