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

// record records that an action was done. staysDown says that the node is down, and that nothing starts it again.
func (a *nodeAsked) record(by Source, action topology.NodeAction, staysDown bool) {
	switch {
	case action == "":
	case by == ByRun:
		a.changed = true
	case action == topology.StopNode:
		*a = nodeAsked{state: NodeIsDown}
	case action == topology.PauseNode:
		*a = nodeAsked{state: NodeIsPaused}
	case action != topology.KillNode:
		*a = nodeAsked{}
	case staysDown: // else the restart policy decides on its state
		*a = nodeAsked{state: NodeIsDown}
	}
}

// StateByHand returns the state to which a command has brought a node, if that is not ready, and the command that brings it
// back; else "".
func (l *Lab) StateByHand(name string) (state, command string) {
	var lasting nodeAsked
	if n := l.byName[name]; n != nil {
		lasting = n.lasting
	} else if b := l.switchOf(name); b != nil {
		lasting = b.lasting
	}
	if lasting.state == "" {
		return "", ""
	}
	action := topology.StartNode
	if lasting.state == NodeIsPaused {
		action = topology.ResumeNode
	}
	return lasting.state, fmt.Sprintf("ndklab %s %s/%s", action, l.name, name)
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
	for _, b := range l.switches {
		if b.lasting.state != "" {
			words = append(words, b.spec.Name+" "+b.lasting.state)
		}
	}
	return words
}
