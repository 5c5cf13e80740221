package core

import (
	"github.com/ndklab/ndklab/topology"
)

// This file is what can be seen of a lab. Looking changes nothing.

// The states of a node.
const (
	NodeIsReady    = "ready"
	NodeIsStarting = "starting"
	NodeIsDown     = "down"
	NodeIsPaused   = "paused"
)

// A NodeStatus is how a host or router fares, as far as the lab knows without asking it.
type NodeStatus struct {
	State    string
	Reason   string // why it is down, or what it is at while it starts
	Life     int    // counts its starts
	Restarts int    // counts those after the first
	Health   string // "" if it has no healthcheck
	Failures int    // of the healthcheck, in a row
	Output   string // why the last check failed
}

// Node returns how a host or router fares. One that the lab does not have is down.
func (l *Lab) Node(name string) NodeStatus {
	n := l.byName[name]
	if n == nil {
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

// Spec returns what the topology says of a host or router, whatever its state.
func (l *Lab) Spec(name string) (*topology.Node, error) {
	n, err := l.withProcesses(name)
	if err != nil {
		return nil, err
	}
	return n.spec, nil
}

// Alive says why nothing can be asked of a host or router; nil if it can.
func (l *Lab) Alive(name string) error {
	n, err := l.withProcesses(name)
	if err != nil {
		return err
	}
	return n.alive()
}

// A LinkStatus is how a link fares.
type LinkStatus struct {
	Asked        [2]topology.Impairment
	Down, Parted bool
	Made         [2]bool // the interface at the end is there
	Engine       bool    // its engine has it
	Connected    bool
}

// Off reports whether the link carries nothing, for whatever reason.
func (s *LinkStatus) Off() bool { return s.Down || s.Parted || s.Made != [2]bool{true, true} }

// Link returns how the link of an index in Topology.Links fares.
func (l *Lab) Link(index int) LinkStatus {
	k := l.links[index]
	return LinkStatus{k.asked.impairments, k.asked.down, k.asked.partitioned, k.made, k.engine, k.connected}
}

// Ends says which node at an end of the link of an index is down, whose interface has gone with it; nil if none is.
func (l *Lab) Ends(index int) error { return l.links[index].checkEnds() }

// A Standing is what the lab is at present, for who wants to change it.
type Standing struct {
	Topology   *topology.Topology
	Unfinished string // why the last Apply did not come to its end; "" if it did
	Generation int    // counts what has become of the lab
	Applying   bool   // nodes and links come and go at present
	Present    bool   // all of it has been built, and can be looked at
	Ready      bool   // every node was ready once
	Running    bool   // between BeginRun and EndRun
}

// Standing returns what the lab is at present.
func (l *Lab) Standing() Standing {
	return Standing{l.topo, l.unfinished, l.generation, l.applying != nil, l.present, l.present && l.building == nil, l.runs.running}
}
