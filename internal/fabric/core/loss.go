package core

import (
	"fmt"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/failure"
)

// This file is the loss of a host of a lab over several. It ends the lab, unless the lab is up and its topology says that it
// goes on. Then the nodes of that host end as if their agents had died, and nothing starts them again: the host does not come
// back. Their links lose the carrier at the ends that are left.

// HostLost says that a host is gone, with all that was made there. Results of actions that the loss has cut short come after it.
type HostLost struct {
	Host   string
	Nodes  []string // that are on it, switches among them
	Reason error    // which names the host
}

// lose takes HostLost.
func (l *Lab) lose(e HostLost) {
	lost := map[string]bool{}
	for _, name := range e.Nodes {
		lost[name] = true
	}
	left := 0
	for _, n := range l.nodes {
		if n.lost == "" && !lost[n.spec.Name] {
			left++
		}
	}
	if !l.topo.Continues() || l.CheckReady() != nil || left == 0 {
		l.end(e.Reason)
		return
	}
	reason := fmt.Sprintf("its host %s is lost", e.Host)
	l.notify(Notify{Kind: event.HostLost, Text: fmt.Sprintf("%v; the lab goes on without the nodes there: %d", e.Reason, len(e.Nodes))})
	for _, b := range l.switches {
		if lost[b.spec.Name] {
			b.lose(reason)
		}
	}
	for _, n := range l.nodes {
		if lost[n.spec.Name] {
			n.lose(reason)
		}
	}
}

// lose has the node be down for good.
func (n *node) lose(reason string) {
	n.lost = reason
	n.policy.timer.stop()
	n.startPending = false
	n.agentEnded(reason)
	if n.down() { // also one that was down before, or was being started
		n.reason = reason
	}
	n.scheduleWithLinks()
}

// lose has the switch be down for good.
func (b *bridge) lose(reason string) {
	b.stop(reason)
	b.reason, b.lost, b.made = reason, reason, false
	for _, k := range b.links() {
		if k.awaitsEnd { // no agent has ended at the switch's end
			k.busy, k.awaitsEnd = false, false
		}
		k.schedule()
	}
}

// checkLost returns an error if a node or switch is on a host that is lost, which is its reason to be down for good.
func checkLost(name, lost string) error {
	if lost == "" {
		return nil
	}
	return failure.Errorf(failure.Usage, "node %s does not start again: %s", name, lost)
}
