package lab

import (
	"context"
	"errors"
	"fmt"
	"os"
	"time"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/node/verbs"
)

// build makes the lab: its namespaces, agents, links and engine, and has every
// node configured. What a failure leaves half made goes with the supervisor.
func (s *Supervisor) build(ctx context.Context, params startParams, files []*os.File) error {
	s.topo = params.Topology
	s.segments = segments(s.topo)
	s.place = place{dir: params.StateDir, name: s.name}
	s.named = params.Privileged
	s.dir = params.Dir
	if folder, err := verbs.Folder(); err == nil { // else commands run without, and ndklab doctor says what is missing
		s.libraries = folder
	}
	if err := s.openExternalDir(); err != nil {
		return err
	}
	var err error
	if s.hostProc, err = enterNamespaces(s.name, params.StateDir); err != nil {
		return err
	}
	if err := errors.Join(checkEngines(s.topo), checkPorts(s.topo)); err != nil {
		return err
	}
	if s.network, err = link.Open(); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"names of nodes", func(context.Context) error { return s.writeHosts() }},
		{"start the nodes", s.startNodes},
		{"make the externals", s.makeExternals},
		{"make the switches", s.makeSwitches},
		{"link the nodes", s.linkNodes},
		{"configure the externals", s.configureExternals},
		{"log of decisions", func(ctx context.Context) error { return s.openLogs(ctx, params, files) }},
		{"connect the links", s.connectLinks},
		{"spanning tree", s.growTrees},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	// From here on others may look at the lab, and into its nodes.
	s.present.Store(s.roster)
	if err := s.readyNodes(ctx); err != nil {
		return fmt.Errorf("the nodes are not ready: %w", err)
	}
	return s.beReady()
}

// beReady has the lab be ready, if every node still is: one may have died since it was.
func (s *Supervisor) beReady() error {
	lives := make([]*life, len(s.nodes))
	for i, n := range s.nodes {
		lives[i] = n.current() // before mu is held: labNode.mu comes first
	}
	s.mu.Lock()
	for i, l := range lives {
		if isClosed(l.down) {
			s.mu.Unlock()
			return fmt.Errorf("node %s: %s", s.nodes[i].spec.Name, l.reason)
		}
	}
	s.ready = time.Now()
	s.mu.Unlock()
	s.Publish(Event{Kind: LabReady, Text: "all nodes are ready"})
	return nil
}
