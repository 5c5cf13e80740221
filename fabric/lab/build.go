package lab

import (
	"context"
	"fmt"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/topology"
)

// build makes the lab: its namespaces, agents, links and engine, and has every
// node configured. What a failure leaves half made goes with the supervisor.
func (s *Supervisor) build(ctx context.Context, params startParams) error {
	s.topo = params.Topology
	s.addresses = addresses(s.topo)
	s.place = place{dir: params.StateDir, name: s.name}
	s.named = params.Privileged
	if err := s.openExternalDir(); err != nil {
		return err
	}
	var err error
	if s.hostProc, err = enterNamespaces(s.name, params.StateDir); err != nil {
		return err
	}
	if s.network, err = link.Open(); err != nil {
		return err
	}
	for _, step := range []struct {
		what string
		do   func(context.Context) error
	}{
		{"start the nodes", s.startNodes},
		{"make the externals", s.makeExternals},
		{"make the links", s.makeLinks},
		{"configure the nodes", s.configureNodes},
		{"configure the externals", s.configureExternals},
		{"connect the links", s.connectLinks},
	} {
		if err := step.do(ctx); err != nil {
			return fmt.Errorf("%s: %w", step.what, err)
		}
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.ready = time.Now()
	return nil
}

// addresses lists the addresses at each endpoint in a node.
func addresses(topo *topology.Topology) map[topology.Endpoint][]netip.Addr {
	all := make(map[topology.Endpoint][]netip.Addr)
	for _, n := range topo.Nodes {
		for _, i := range n.Interfaces {
			e := topology.Endpoint{Node: n.Name, Interface: i.Name}
			for _, a := range i.Addresses {
				all[e] = append(all[e], a.Addr())
			}
		}
	}
	return all
}
