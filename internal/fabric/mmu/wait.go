package mmu

import (
	"math/bits"
	"strings"
)

// A Queue names what leaves a switch by a port in a class. Switch is an index among those of a
// fabric.
type Queue struct{ Switch, Port, Class int }

// A Member is a Switch, whatever its packets, as part of a fabric.
type Member interface {
	// Blocked appends the queues that are paused and not empty. index is the switch's.
	Blocked(to []Queue, index int) []Queue
	// Held returns how many bytes that came in by a port wait to leave by another.
	Held(in, out, class int) int64
	// stuck reports whether a neighbour that is to pause has to do so until one of some queues moves.
	// queues has their classes, by port.
	stuck(in, class int, queues []uint8) bool
	size() int
}

// Blocked implements Member.
func (s *Switch[P]) Blocked(to []Queue, index int) []Queue {
	for i := range s.ports {
		p := &s.ports[i]
		for b := p.filled & p.paused &^ p.storming; b != 0; b &= b - 1 {
			to = append(to, Queue{index, i, bits.TrailingZeros8(b)})
		}
	}
	return to
}

// Held implements Member.
func (s *Switch[P]) Held(in, out, class int) int64 { return s.held[s.at(in, out, class)] }

func (s *Switch[P]) size() int { return len(s.ports) }

func (s *Switch[P]) stuck(in, class int, queues []uint8) bool {
	i := &s.ports[in].ingress[class]
	bytes := s.heldBy(in, class, queues)
	switch {
	case !i.xoff || bytes == 0:
		return false
	case bytes == i.held+i.headroom:
		return true // no packet leaves that would end the pause
	}
	// All else may leave, which makes room and so raises the threshold.
	free := s.shared
	for in := range s.ports {
		for class := range Classes {
			free -= max(0, s.heldBy(in, class, queues)-s.ports[in].config.Classes[class].Reserve)
		}
	}
	return s.ports[in].config.Classes[class].beyond(bytes, free)
}

// heldBy returns how many bytes that came in by a port some queues hold.
func (s *Switch[P]) heldBy(in, class int, queues []uint8) (bytes int64) {
	for out, classes := range queues {
		if classes>>class&1 != 0 {
			bytes += s.Held(in, out, class)
		}
	}
	return bytes
}

// Deadlock returns queues of which each is paused until the next moves, and the last until the first
// does; none if every queue moves once hosts let it. So it finds no storm: a host that pauses
// without end is not part of a cycle. peer returns the switch and port at the other end of a port's
// line; false if a host is there.
//
// A driver calls it when a pause begins: for a switch that asks and for one that is asked. Where
// only the thresholds of a switch moved since, what it finds is as of the pause before.
//
// It takes all queues that are blocked, and strikes out those whose pauser would end the pause if all
// that is not blocked drained, until none is left to strike out. A cycle of blocked queues is not
// enough: "a cyclic buffer dependency is necessary, not sufficient" (Hu et al., HotNets'16).
func Deadlock(fabric []Member, peer func(sw, port int) (peerSwitch, peerPort int, ok bool)) []Queue {
	var left []Queue
	for i, m := range fabric {
		left = m.Blocked(left, i)
	}
	if len(left) == 0 {
		return nil
	}
	queues := make([][]uint8, len(fabric)) // those of left, by switch and port
	for i, m := range fabric {
		queues[i] = make([]uint8, m.size())
	}
	for _, q := range left {
		queues[q.Switch][q.Port] |= 1 << q.Class
	}
	for struck := true; struck; {
		struck = false
		kept := left[:0]
		for _, q := range left {
			if sw, port, ok := peer(q.Switch, q.Port); ok && fabric[sw].stuck(port, q.Class, queues[sw]) {
				kept = append(kept, q)
				continue
			}
			queues[q.Switch][q.Port] &^= 1 << q.Class
			struck = true
		}
		left = kept
	}
	return FindCycle(left, func(q Queue, visit func(Queue)) {
		sw, port, _ := peer(q.Switch, q.Port)
		for out, classes := range queues[sw] {
			if classes>>q.Class&1 != 0 && fabric[sw].Held(port, out, q.Class) > 0 {
				visit(Queue{sw, out, q.Class})
			}
		}
	})
}

// FindCycle returns the nodes of a cycle in a graph, each followed by one of those that next visits
// for it, and the last by the first; none if there is no cycle. The first in the order of nodes and
// of visits is found. With the queues that flows may take one after another as the graph it finds a
// cyclic buffer dependency before anything runs.
func FindCycle[N comparable](nodes []N, next func(n N, visit func(N))) []N {
	const open, done = 1, 2
	state := map[N]int{}
	var path, cycle []N
	var walk func(n N)
	walk = func(n N) {
		state[n] = open
		path = append(path, n)
		next(n, func(m N) {
			switch {
			case cycle != nil || state[m] == done:
			case state[m] == open:
				for i, p := range path {
					if p == m {
						cycle = append([]N(nil), path[i:]...)
					}
				}
			default:
				walk(m)
			}
		})
		path = path[:len(path)-1]
		state[n] = done
	}
	for _, n := range nodes {
		if state[n] == 0 && cycle == nil {
			walk(n)
		}
	}
	return cycle
}

// FormatCycle names the queues of a cycle, such as "s0:e10 -> s1:e12 -> s0:e10".
func FormatCycle(cycle []Queue, name func(Queue) string) string {
	var b strings.Builder
	for _, q := range cycle {
		b.WriteString(name(q))
		b.WriteString(" -> ")
	}
	if len(cycle) > 0 {
		b.WriteString(name(cycle[0]))
	}
	return b.String()
}
