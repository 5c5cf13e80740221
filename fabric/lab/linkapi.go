package lab

import (
	"context"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file is what commands ask about links, at both ends of the lab's channel.
// A link is named by the endpoint, node:interface, at either end of it.

// Links is the state of the link with an endpoint, or of every link for "".
func (l *Lab) Links(ctx context.Context, endpoint string) ([]report.Link, error) {
	var links []report.Link
	err := l.call(ctx, methodLinks, endpoint, &links)
	return links, err
}

// SetLink changes what the link with an endpoint does to packets, in both
// directions or only to what the node called from sends.
func (l *Lab) SetLink(ctx context.Context, endpoint, from string, change topology.Change) error {
	return l.call(ctx, methodSet, setParams{Endpoint: endpoint, From: from, Change: change}, nil)
}

// ResetLink gives the link with an endpoint the settings back that the topology
// has for it, in both directions or only for what the node called from sends.
// Whether it is up does not change.
func (l *Lab) ResetLink(ctx context.Context, endpoint, from string) error {
	return l.call(ctx, methodReset, setParams{Endpoint: endpoint, From: from}, nil)
}

// LinkDown takes the link with an endpoint down, as if its cable were pulled.
func (l *Lab) LinkDown(ctx context.Context, endpoint string) error {
	return l.call(ctx, methodLink, linkParams{Endpoint: endpoint, Up: false}, nil)
}

// LinkUp brings the link with an endpoint back up, also if a partition took it
// down.
func (l *Lab) LinkUp(ctx context.Context, endpoint string) error {
	return l.call(ctx, methodLink, linkParams{Endpoint: endpoint, Up: true}, nil)
}

// Partition takes down every link between nodes of different sets, in the place
// of an earlier partition, and returns an endpoint of each link that is down
// because of it. Nodes in no set form one more.
func (l *Lab) Partition(ctx context.Context, sets ...[]string) (links []string, err error) {
	err = l.call(ctx, methodPartition, sets, &links)
	return links, err
}

// Heal ends a partition, and returns an endpoint of each link that came up. Those
// that LinkDown took down stay down.
func (l *Lab) Heal(ctx context.Context) (links []string, err error) {
	err = l.call(ctx, methodHeal, nil, &links)
	return links, err
}

// handleLinks answers requests to change links, or send probes over them.
func (s *Supervisor) handleLinks(ctx context.Context, r *control.Request) (any, error) {
	switch r.Method {
	case methodSet, methodReset:
		return nil, s.set(ctx, r)
	case methodLink:
		return nil, s.carrier(ctx, r)
	case methodVerify:
		return s.verify(ctx, r)
	case methodPartition:
		var sets [][]string
		if err := r.Decode(&sets); err != nil {
			return nil, err
		}
		return s.Partition(ctx, byHand, sets)
	case methodHeal:
		return s.heal(ctx)
	}
	return nil, control.Errorf(control.Usage, "unknown request %q", r.Method)
}

// heal ends a partition and waits until the links that came up carry packets, or are
// spares of a spanning tree.
func (s *Supervisor) heal(ctx context.Context) ([]string, error) {
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

func (s *Supervisor) showLinks(ctx context.Context, r *control.Request) (any, error) {
	var endpoint string
	if err := r.Decode(&endpoint); err != nil {
		return nil, err
	}
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

func (s *Supervisor) set(ctx context.Context, r *control.Request) error {
	var params setParams
	if err := r.Decode(&params); err != nil {
		return err
	}
	index, err := s.Link(params.Endpoint)
	if err != nil {
		return err
	}
	if r.Method == methodReset {
		err = s.ResetLink(ctx, byHand, index, params.From)
	} else {
		err = s.SetLink(ctx, byHand, index, params.From, params.Change)
	}
	if err == nil {
		s.links[index].awaitPlain(ctx)
	}
	return err
}

func (s *Supervisor) carrier(ctx context.Context, r *control.Request) error {
	var params linkParams
	if err := r.Decode(&params); err != nil {
		return err
	}
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

func (s *Supervisor) verify(ctx context.Context, r *control.Request) (any, error) {
	var params verifyParams
	if err := r.Decode(&params); err != nil {
		return nil, err
	}
	index, err := s.Link(params.Endpoint)
	if err != nil {
		return nil, err
	}
	return s.VerifyLink(ctx, index, params.Probes)
}
