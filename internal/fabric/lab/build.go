package lab

import (
	"context"
	"fmt"
	"os"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
)

// build makes the lab: its namespaces, agents, links and engine, and waits until every node is ready. After a failure
// the half-made lab goes with the supervisor.
func (s *Supervisor) build(ctx context.Context, params startParams, files []*os.File) error {
	topo := params.Topology
	s.dir = params.Dir
	s.mu.Lock()
	s.dilation = topo.DilationFactor()
	s.mu.Unlock()
	prepare := s.prepareHere
	if s.head != nil {
		prepare = s.prepareHosts
	}
	if err := prepare(ctx, params, files); err != nil {
		return fmt.Errorf("lab %s: %w", s.name, err)
	}
	s.driver.mu.Lock()
	s.core, s.started = core.New(topo), time.Now()
	s.driver.mu.Unlock()
	_, err := s.ask(ctx, core.ByHand, core.Build{})
	return err
}

// prepareHere has this machine be ready for the lab.
func (s *Supervisor) prepareHere(ctx context.Context, params startParams, files []*os.File) error {
	topo := params.Topology
	if err := s.here.prepare(setting{Lab: s.name, Topology: topo, StateDir: params.StateDir, Privileged: params.Privileged}); err != nil {
		return err
	}
	s.here.links.noteRouters(topo)
	s.here.beginLinks = func() error {
		if err := s.here.begin(ctx, topo); err != nil {
			return err
		}
		return s.openDecisions(ctx, params, files)
	}
	return nil
}

// openDecisions opens the logs of decisions that are to be recorded and replayed.
func (s *Supervisor) openDecisions(ctx context.Context, params startParams, files []*os.File) error {
	if err := s.decisions.open(ctx, params, files); err != nil {
		return fmt.Errorf("log of decisions: %w", err)
	}
	return nil
}

// prepareHosts has the hosts come, and be ready for the lab.
func (s *Supervisor) prepareHosts(ctx context.Context, params startParams, files []*os.File) error {
	found, err := s.head.hosts.Await(ctx)
	if err != nil {
		return err
	}
	go s.head.watch()
	s.head.beginLinks = func() error { return s.openDecisions(ctx, params, files) }
	return s.head.begin(ctx, s.name, params.Topology, found)
}
