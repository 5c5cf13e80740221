package lab

import (
	"context"

	"github.com/ndklab/ndklab/node"
	"github.com/ndklab/ndklab/node/cgroup"
	"github.com/ndklab/ndklab/topology"
)

// A roster is who is in the lab at a time: its nodes and links, each with what the
// topology says of it. From when the lab is built it is never changed: a change of the
// lab makes another one, in which those that stay have the same state.
type roster struct {
	topo       *topology.Topology
	segments   [][]node.Neighbour // who is on the segment of each link
	groups     *cgroup.Tree       // where nodes with limits have their groups; nil if there are none
	nodes      []*labNode         // with a process: hosts and routers
	byName     map[string]*labNode
	switches   map[string]*labSwitch
	links      []*labLink // in the order of topo
	externals  []*external
	generation int // counts rosters
}

func newRoster() *roster {
	return &roster{byName: map[string]*labNode{}, switches: map[string]*labSwitch{}}
}

// now is the lab as it is now.
func (s *Supervisor) now() *Supervisor {
	if present := s.present.Load(); present != nil {
		return &Supervisor{s.core, present}
	}
	return s // it is still being built
}

// as is a node as it is in the lab that s sees; nil if it is not in it any more. Who has
// the right to change a node finds it in the lab as it is now.
func (s *Supervisor) as(n *labNode) *labNode {
	if as := s.byName[n.spec.Name]; as != nil && as.nodeState == n.nodeState {
		return as
	}
	return nil
}

// hold waits for the right to change a host or router, which unlock gives back, and
// returns the lab and the node as they are by then.
func (s *Supervisor) hold(ctx context.Context, name string) (*Supervisor, *labNode, error) {
	n, err := s.labNode(name)
	if err != nil {
		return nil, nil, err
	}
	if err := n.lock(ctx); err != nil {
		return nil, nil, err
	}
	s = s.now()
	return s, s.as(n), nil
}
