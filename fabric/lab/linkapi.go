package lab

import (
	"context"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
)

// This file is what commands ask about links, at both ends of the lab's channel.
// A link is named by the endpoint, node:interface, at either end of it.

// Links is the state of the link with an endpoint, or of every link for "".
func (l *Lab) Links(ctx context.Context, endpoint string) ([]report.Link, error) {
	return call(ctx, l, methodLinks, endpoint)
}

// SetLink changes what the link with an endpoint does to packets, in both
// directions or only to what the node called from sends.
func (l *Lab) SetLink(ctx context.Context, endpoint, from string, change topology.Change) error {
	return l.whyEnded(methodSet.Call(ctx, l.conn, setParams{Endpoint: endpoint, From: from, Change: change}))
}

// ResetLink gives the link with an endpoint the settings back that the topology
// has for it, in both directions or only for what the node called from sends.
// Whether it is up does not change.
func (l *Lab) ResetLink(ctx context.Context, endpoint, from string) error {
	return l.whyEnded(methodReset.Call(ctx, l.conn, resetParams{Endpoint: endpoint, From: from}))
}

// LinkDown takes the link with an endpoint down, as if its cable were pulled.
func (l *Lab) LinkDown(ctx context.Context, endpoint string) error {
	return l.whyEnded(methodLink.Call(ctx, l.conn, linkParams{Endpoint: endpoint, Up: false}))
}

// LinkUp brings the link with an endpoint back up, also if a partition took it
// down.
func (l *Lab) LinkUp(ctx context.Context, endpoint string) error {
	return l.whyEnded(methodLink.Call(ctx, l.conn, linkParams{Endpoint: endpoint, Up: true}))
}

// Partition takes down every link between nodes of different sets, in the place
// of an earlier partition, and returns an endpoint of each link that is down
// because of it. Nodes in no set form one more.
func (l *Lab) Partition(ctx context.Context, sets ...[]string) (links []string, err error) {
	return call(ctx, l, methodPartition, sets)
}

// Heal ends a partition, and returns an endpoint of each link that came up. Those
// that LinkDown took down stay down.
func (l *Lab) Heal(ctx context.Context) (links []string, err error) {
	return call(ctx, l, methodHeal, nil)
}

// heal ends a partition and waits until the links that came up carry packets, or are
// spares of a spanning tree.
func (s *Supervisor) heal(ctx context.Context, _ *control.Request, _ control.None) ([]string, error) {
	healed, err := s.Heal(ctx, byHand)
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, i := range healed {
		names = append(names, s.links[i].name())
	}
	return names, s.growTree(ctx, healed...)
}

func (s *Supervisor) showLinks(ctx context.Context, _ *control.Request, endpoint string) ([]report.Link, error) {
	first, end := 0, len(s.links)
	if endpoint != "" {
		index, err := s.Link(endpoint)
		if err != nil {
			return nil, err
		}
		first, end = index, index+1
	}
	links, err := s.InspectLinks(ctx)
	if err != nil {
		return nil, err
	}
	return links[first:end], nil
}

func (s *Supervisor) set(ctx context.Context, _ *control.Request, params setParams) error {
	return s.alter(ctx, params.Endpoint, func(index int) error { return s.SetLink(ctx, byHand, index, params.From, params.Change) })
}

func (s *Supervisor) reset(ctx context.Context, _ *control.Request, params resetParams) error {
	return s.alter(ctx, params.Endpoint, func(index int) error { return s.ResetLink(ctx, byHand, index, params.From) })
}

// alter changes the settings of a link and waits until the kernel has it if it is plain.
func (s *Supervisor) alter(ctx context.Context, endpoint string, change func(index int) error) error {
	index, err := s.Link(endpoint)
	if err != nil {
		return err
	}
	if err := change(index); err != nil {
		return err
	}
	s.links[index].awaitPlain(ctx)
	return nil
}

func (s *Supervisor) partition(ctx context.Context, _ *control.Request, sets [][]string) ([]string, error) {
	return s.Partition(ctx, byHand, sets)
}

func (s *Supervisor) carrier(ctx context.Context, _ *control.Request, params linkParams) error {
	index, err := s.Link(params.Endpoint)
	if err != nil {
		return err
	}
	if params.Up {
		if err := s.LinkUp(ctx, byHand, index); err != nil {
			return err
		}
		return s.growTree(ctx, index)
	}
	return s.LinkDown(ctx, byHand, index)
}

func (s *Supervisor) verify(ctx context.Context, _ *control.Request, params verifyParams) (*report.Verification, error) {
	index, err := s.Link(params.Endpoint)
	if err != nil {
		return nil, err
	}
	return s.VerifyLink(ctx, index, params.Probes)
}
