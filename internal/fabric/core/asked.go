package core

import (
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/topology"
)

// Three layers ask links and nodes for something. The lowest is the lab's file, and the second the commands by hand: these
// two last. The highest is the timeline and the chaos of a run. It lasts until the next run begins, when BeginRun restores
// the two that last.

// A linkAsked holds the impairments and the state that are asked of a link.
type linkAsked struct {
	impairments [2]topology.Impairment
	down        bool // by SwitchLink, or from the start
	partitioned bool // by Partition
}

func (a *linkAsked) equal(b *linkAsked) bool {
	return a.down == b.down && a.partitioned == b.partitioned && a.impairments[0].Equal(b.impairments[0]) && a.impairments[1].Equal(b.impairments[1])
}

func (a *linkAsked) impaired() bool { return !a.impairments[0].None() || !a.impairments[1].None() }

// A nodeAsked holds the state that is lastingly asked of a node.
type nodeAsked struct {
	state   string // to which a command has brought the node: NodeIsDown or NodeIsPaused; "" is ready
	changed bool   // a run has acted on the node since, whose state may be another
}

// recordAsked records that a command was done.
func (n *node) recordAsked(r *nodeRequest) {
	switch {
	case r.action == "":
	case r.by == ByRun:
		n.lasting.changed = true
	case r.action == topology.StopNode:
		n.lasting = nodeAsked{state: NodeIsDown}
	case r.action == topology.PauseNode:
		n.lasting = nodeAsked{state: NodeIsPaused}
	case r.action != topology.KillNode:
		n.lasting = nodeAsked{}
	case n.down() && !n.spec.Restart: // else the restart policy decides on its state
		n.lasting = nodeAsked{state: NodeIsDown}
	}
}

// StateByHand returns the state to which a command has brought a node, if that is not ready, and the command that brings it
// back; else "".
func (l *Lab) StateByHand(name string) (state, command string) {
	n := l.byName[name]
	if n == nil || n.lasting.state == "" {
		return "", ""
	}
	action := topology.StartNode
	if n.lasting.state == NodeIsPaused {
		action = topology.ResumeNode
	}
	return n.lasting.state, fmt.Sprintf("ndklab %s %s/%s", action, l.name, name)
}

// SetByHand lists the settings and states that commands have made other than the file has them, in words such as
// "client:eth0 loss=5%".
func (l *Lab) SetByHand() (words []string) {
	for _, k := range l.links {
		var both [2][]string
		for d := range both {
			both[d] = topology.Difference(k.spec.Directions[d], k.lasting.impairments[d]).Settings()
		}
		if slices.Equal(both[0], both[1]) {
			for _, setting := range both[0] {
				words = append(words, k.name()+" "+setting)
			}
		} else {
			for d, e := range k.spec.Endpoints {
				for _, setting := range both[d] {
					words = append(words, k.name()+" "+inDirection(setting, e.Node))
				}
			}
		}
		switch {
		case k.lasting.down && !k.spec.Down:
			words = append(words, k.name()+" down")
		case !k.lasting.down && k.spec.Down:
			words = append(words, k.name()+" up")
		}
		if k.lasting.partitioned {
			words = append(words, k.name()+" down by a partition")
		}
	}
	for _, n := range l.nodes {
		if n.lasting.state != "" {
			words = append(words, n.spec.Name+" "+n.lasting.state)
		}
	}
	return words
}
