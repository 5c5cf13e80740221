package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/node/verbs"
)

// build makes the lab: its namespaces, agents, links and engine, and waits until every node is ready. After a failure
// the half-made lab goes with the supervisor.
func (s *Supervisor) build(ctx context.Context, params startParams, files []*os.File) error {
	if err := s.prepare(&params); err != nil {
		return fmt.Errorf("lab %s: %w", s.name, err)
	}
	s.beginLinks = func() error {
		if err := s.links.configureExternals(ctx, params.Topology); err != nil {
			return fmt.Errorf("configure the externals: %w", err)
		}
		if err := s.links.setFabric(ctx, params.Topology); err != nil {
			return fmt.Errorf("switches with a buffer: %w", err)
		}
		if err := s.decisions.open(ctx, params, files); err != nil {
			return fmt.Errorf("log of decisions: %w", err)
		}
		return nil
	}
	s.links.noteRouters(params.Topology)
	s.driver.mu.Lock()
	s.core, s.started = core.New(params.Topology), time.Now()
	s.driver.mu.Unlock()
	_, err := s.ask(ctx, core.ByHand, core.Build{})
	return err
}

// prepare makes what nodes and links need.
func (s *Supervisor) prepare(params *startParams) error {
	topo, p := params.Topology, place{dir: params.StateDir, name: s.name}
	s.dir = params.Dir
	s.links.place, s.links.named, s.links.seed = p, params.Privileged, topo.Seed
	s.mu.Lock()
	s.dilation = topo.DilationFactor()
	s.links.engine.dilation = s.dilation
	s.mu.Unlock()
	if folder, err := verbs.Folder(); err == nil { // else commands run without, and ndklab doctor says what is missing
		s.nodes.libraries = folder
	}
	if err := s.links.openExternalDir(topo); err != nil {
		return err
	}
	var err error
	if s.nodes.hostProc, err = enterNamespaces(s.name, params.StateDir); err != nil {
		return err
	}
	if err := errors.Join(checkEngines(topo), checkPorts(topo)); err != nil {
		return err
	}
	if s.links.network, err = link.Open(); err != nil {
		return err
	}
	if err := s.nodes.writeHosts(params.StateDir, topo); err != nil {
		return err
	}
	if err := s.links.makeExternals(topo, s.nodes.hostProc); err != nil {
		return fmt.Errorf("make the externals: %w", err)
	}
	return nil
}
