package lab

import (
	"context"
	"errors"
	"fmt"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
	"github.com/ndklab/ndklab/topology/diff"
)

// This file is how a lab that is up is changed to another topology, at both ends of
// its channel. What takes steps is in change.go.
//
// One Apply at a time has Supervisor.applying, and alone makes new rosters. It first
// removes what is not to stay and alters links that go on, then has the new topology
// be the lab's, with all that is new in it as if it had gone down, and brings that up.
// After each of the three the roster is what is there: whoever looks meanwhile, or
// after an Apply that came to no end, sees that, and another Apply goes on from there.

// Kinds of events of an Apply. What comes up or goes down has others.
const (
	LabChanged  = "lab-changed"
	NodeRemoved = "node-removed"
	LinkAdded   = "link-added"
	LinkRemoved = "link-removed"
)

// A Standing is what a lab is at present, for who wants to change it.
type Standing struct {
	Topology *topology.Topology
	// Unfinished is why the last Apply did not come to its end; "" if it did.
	Unfinished string
	Generation int // counts what has become of the lab
}

// Standing is what the lab is at present.
func (l *Lab) Standing(ctx context.Context) (*Standing, error) {
	return call(ctx, l, methodStanding, nil)
}

// Apply makes the lab that of another topology, which was read with that of from as
// topology.Options.Running. What is the same in both goes on undisturbed. It returns
// when every new node is ready. If it fails, or ctx ends, what was done by then stays
// so, and a later Apply does the rest. It is refused while the lab runs its workloads,
// if the lab was changed since from, and for what diff.Compare refuses.
func (l *Lab) Apply(ctx context.Context, topo *topology.Topology, from *Standing) error {
	return l.whyEnded(methodApply.Call(ctx, l.conn, applyParams{Topology: topo, Generation: from.Generation}))
}

func (s *Supervisor) standing() *Standing {
	s.mu.Lock()
	defer s.mu.Unlock()
	return &Standing{Topology: s.topo, Unfinished: s.unfinished, Generation: s.generation}
}

// apply answers methodApply.
func (s *Supervisor) apply(ctx context.Context, _ *control.Request, params applyParams) error {
	if err := s.beginApply(); err != nil {
		return err
	}
	s = s.now() // which nobody else changes until endApply
	d, err := s.compare(params)
	if err != nil {
		s.endApply(s.standing().Unfinished)
		return err
	}
	change := &change{Supervisor: s, to: params.Topology, difference: d}
	if err := change.all(ctx); err != nil {
		unfinished := err.Error()
		if ctx.Err() != nil {
			unfinished = "it was interrupted"
		}
		s.endApply(unfinished)
		return fmt.Errorf("lab %s is changed in part: %w", s.name, err)
	}
	s.endApply("")
	s.Publish(Event{Kind: LabChanged, Text: fmt.Sprintf("lab %s is as its file says: nodes: %d, links: %d", s.name, len(params.Topology.Nodes), len(params.Topology.Links))})
	return nil
}

// compare is what has to happen for the lab to be that of the topology, which it
// gives the lab's seed.
func (s *Supervisor) compare(params applyParams) (*diff.Difference, error) {
	if params.Generation != s.generation {
		return nil, control.Errorf(control.Usage, "lab %s was changed meanwhile: apply again", s.name)
	}
	d, err := diff.Compare(s.topo, params.Topology)
	if refused := (*diff.RefusedError)(nil); errors.As(err, &refused) {
		return nil, control.Errorf(control.Usage, "%v, which a lab that is up cannot", refused)
	}
	if err != nil {
		return nil, err
	}
	params.Topology.Seed, params.Topology.HasSeed = s.topo.Seed, true
	params.Topology.KeepLabels(s.topo.Labels)
	return d, errors.Join(checkEngines(params.Topology), checkPorts(params.Topology))
}

// beginApply begins a change of who is in the lab, which endApply ends.
func (s *Supervisor) beginApply() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	switch {
	case s.applying:
		return control.Errorf(control.Usage, "lab %s is being changed already", s.name)
	case s.running != nil && !isClosed(s.running.over):
		return control.Errorf(control.Usage, "lab %s is running its workloads: apply when they are done", s.name)
	}
	s.applying = true
	return nil
}

func (s *Supervisor) isApplying() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.applying
}

func (s *Supervisor) endApply(unfinished string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.applying, s.unfinished = false, unfinished
}

// mayRun says why no run can begin. The caller holds mu.
func (s *Supervisor) mayRun() error {
	switch {
	case s.applying:
		return control.Errorf(control.Usage, "lab %s is being changed: run its workloads when that is done", s.name)
	case s.unfinished != "":
		return control.Errorf(control.Usage, "lab %s is changed in part (%s): `ndklab apply` does the rest", s.name, s.unfinished)
	}
	return nil
}
