package lab

import (
	"context"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/topology"
)

// This file changes a lab that is up to another topology, at both ends of its channel.
// The core decides the steps.

// A Standing describes a lab at present, for a caller that wants to change it.
type Standing struct {
	Topology *topology.Topology
	// Unfinished has the reason why the last Apply did not come to its end; "" if it did.
	Unfinished string
	Generation int // counts what has become of the lab
}

// Standing returns the present topology of the lab, and whether a change is under way or unfinished.
func (l *Lab) Standing(ctx context.Context) (*Standing, error) {
	return call(ctx, l.session, methodStanding, nil)
}

// Apply makes the lab that of another topology, which was read with that of from as
// topology.Options.Running. It does not disturb what is the same in both. It returns
// when every new node is ready. If it fails, or ctx ends, the changes made by then
// stay, and a later Apply does the rest. It is refused while the lab runs its workloads,
// if the lab was changed since from, and for what diff.Compare refuses.
func (l *Lab) Apply(ctx context.Context, topo *topology.Topology, from *Standing) error {
	if err := Refuse(topo); err != nil {
		return err
	}
	return l.whyEnded(methodApply.Call(ctx, l.conn, applyParams{Topology: topo, Generation: from.Generation}))
}

// standingOf answers methodStanding.
func (s *Supervisor) standingOf() *Standing {
	standing := s.standing()
	return &Standing{Topology: standing.Topology, Unfinished: standing.Unfinished, Generation: standing.Generation}
}

// apply answers methodApply.
func (s *Supervisor) apply(ctx context.Context, _ *control.Request, params applyParams) error {
	over, err := s.machines.foresee(ctx, s.topology(), params.Topology)
	if err != nil {
		return err
	}
	defer over()
	_, err = s.ask(ctx, core.ByHand, core.Apply{Topology: params.Topology, Generation: params.Generation})
	return err
}
