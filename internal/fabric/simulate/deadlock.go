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
