package core

import (
	"fmt"

	"github.com/ndklab/ndklab/topology"
)

// The states of a node.
const (
	NodeIsReady        = "ready"
	NodeIsStarting     = "starting"
	NodeIsDown         = "down"
	NodeIsPaused       = "paused"
	NodeIsUnresponsive = "unresponsive" // its agent does not answer, as a report has it
)

// A NodeStatus is the state of a node, as far as the lab knows without asking its agent.
type NodeStatus struct {
	State    string
	Reason   string // why it is down, or what it is doing while it starts
	Life     int    // counts its starts
	Restarts int    // counts those after the first
	Health   string // "" if it has no healthcheck
	Failures int    // of the healthcheck, in a row
	Output   string // why the last check failed
}

// Node returns the state of a node. A node that the lab does not have is down.
func (l *Lab) Node(name string) NodeStatus {
	n := l.byName[name]
	if n == nil {
		if b := l.switchOf(name); b != nil {
			return b.status()
		}
		return NodeStatus{State: NodeIsDown, Reason: "it is not in the lab"}
	}
	s := NodeStatus{State: NodeIsReady, Life: n.number, Restarts: n.restarts}
	if h := &n.health; h.check != nil {
		s.Health, s.Failures, s.Output = Starting, h.failures, h.output
		if h.state != "" {
			s.Health = h.state
		}
	}
	switch {
	case n.down():
		s.State, s.Reason = NodeIsDown, n.reason
	case n.paused:
		s.State = NodeIsPaused
	case l.building != nil && n.stages.doing != "":
		s.State, s.Reason = NodeIsStarting, n.stages.doing
	}
	return s
}

// Spec returns what the topology says of a node, whatever its state.
func (l *Lab) Spec(name string) (*topology.Node, error) {
	if b := l.switchOf(name); b != nil {
		return b.spec, nil
	}
	n, err := l.withProcesses(name)
	if err != nil {
		return nil, err
	}
	return n.spec, nil
}

// Alive returns an error if a host or router cannot be asked for anything, because it is down or paused.
func (l *Lab) Alive(name string) error {
	n, err := l.withProcesses(name)
	if err != nil {
		return err
	}
	return n.alive()
}

// A LinkStatus is the state of a link.
type LinkStatus struct {
	Asked             [2]topology.Impairment // by direction
	Down, Partitioned bool
	Made              [2]bool // the interface at the end is there
	SwitchAway        bool    // a switch at an end is down or paused
	Engine            bool    // its engine has it
	Connected         bool
}

// Off reports whether the link carries nothing, for whatever reason.
func (s *LinkStatus) Off() bool {
	return s.Down || s.Partitioned || s.SwitchAway || s.Made != [2]bool{true, true}
}

// Link returns the state of the link of an index in Topology.Links.
func (l *Lab) Link(index int) LinkStatus {
	k := l.links[index]
	return LinkStatus{k.asked.impairments, k.asked.down, k.asked.partitioned, k.made, k.switchAway(), k.engine, k.connected}
}

// Ends returns an error if nothing can come out at an end of the link of an index: a node there is down, or a switch is down
// or paused.
func (l *Lab) Ends(index int) error {
	k := l.links[index]
	for _, b := range k.bridges {
		if b != nil && !b.forwards() {
			return fmt.Errorf("link %s: %w", k.name(), checkAlive(b.spec.Name, b.reason, b.paused))
		}
	}
	return k.checkEnds()
}

// A Standing is the state of the lab as a whole.
type Standing struct {
	Topology   *topology.Topology
	Unfinished string // why the last Apply failed; "" if it succeeded
	Generation int    // counts the topologies that the lab has had
	Applying   bool   // an Apply is under way
	Present    bool   // all of it has been built, and can be looked at
	Ready      bool   // every node was ready once
	Running    bool   // between BeginRun and EndRun
}

// Standing returns the state of the lab as a whole.
func (l *Lab) Standing() Standing {
	return Standing{l.topo, l.unfinished, l.generation, l.applying != nil, l.present, l.present && l.building == nil, l.runs.running}
}
