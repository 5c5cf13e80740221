package lab

import (
	"context"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file answers what commands ask about links, at both ends of the lab's channel. A link
// is named by the endpoint, node:interface, at either end of it.

// Links are the links of a lab, as commands have them.
type Links struct{ *session }

// Inspect returns the state of the link with an endpoint, or of every link for "".
func (l Links) Inspect(ctx context.Context, endpoint string) ([]report.Link, error) {
	return call(ctx, l.session, methodLinks, endpoint)
}

// Set changes what the link with an endpoint does to packets, in both
// directions or only to what the node called from sends.
func (l Links) Set(ctx context.Context, endpoint, from string, change topology.Change) error {
	return l.whyEnded(methodSet.Call(ctx, l.conn, setParams{Endpoint: endpoint, From: from, Change: change}))
}

// Reset gives the link with an endpoint the settings back that the topology
// has for it, in both directions or only for what the node called from sends.
// The link stays up or down as it is.
func (l Links) Reset(ctx context.Context, endpoint, from string) error {
	return l.whyEnded(methodReset.Call(ctx, l.conn, resetParams{Endpoint: endpoint, From: from}))
}

// Down takes the link with an endpoint down, as if its cable were pulled.
func (l Links) Down(ctx context.Context, endpoint string) error {
	return l.whyEnded(methodLink.Call(ctx, l.conn, linkParams{Endpoint: endpoint, Up: false}))
}

// Up brings the link with an endpoint back up, also if a partition took it
// down.
func (l Links) Up(ctx context.Context, endpoint string) error {
	return l.whyEnded(methodLink.Call(ctx, l.conn, linkParams{Endpoint: endpoint, Up: true}))
}

// Partition takes down every link between nodes of different sets, in the place
// of an earlier partition, and returns an endpoint of each link that is down
// because of it. Nodes in no set form one more.
func (l Links) Partition(ctx context.Context, sets ...[]string) (links []string, err error) {
	return call(ctx, l.session, methodPartition, sets)
}

// Heal ends a partition, and returns an endpoint of each link that came up. Those
// that Down took down stay down.
func (l Links) Heal(ctx context.Context) (links []string, err error) {
	return call(ctx, l.session, methodHeal, nil)
}

// A linkAPI answers what commands and runs ask of links.
type linkAPI struct {
	*driver
	lab     string
	nodeAPI *nodeAPI // of the nodes at its ends
}

func (a *linkAPI) set(ctx context.Context, _ *control.Request, params setParams) error {
	return a.askLink(ctx, params.Endpoint, func(index int) core.Command {
		return core.SetLink{Link: index, From: params.From, Change: params.Change}
	})
}

func (a *linkAPI) reset(ctx context.Context, _ *control.Request, params resetParams) error {
	return a.askLink(ctx, params.Endpoint, func(index int) core.Command { return core.ResetLink{Link: index, From: params.From} })
}

func (a *linkAPI) switchLink(ctx context.Context, _ *control.Request, params linkParams) error {
	return a.askLink(ctx, params.Endpoint, func(index int) core.Command { return core.SwitchLink{Link: index, Up: params.Up} })
}

func (a *linkAPI) partition(ctx context.Context, _ *control.Request, sets [][]string) ([]string, error) {
	return namesOf(a.ask(ctx, core.ByHand, core.Partition{Sets: sets}))
}

func (a *linkAPI) heal(ctx context.Context, _ *control.Request, _ control.None) ([]string, error) {
	return namesOf(a.ask(ctx, core.ByHand, core.Heal{}))
}

// askLink has something done with the link with an endpoint.
func (a *linkAPI) askLink(ctx context.Context, endpoint string, command func(index int) core.Command) error {
	_, err := a.askOf(ctx, core.ByHand, func(l *core.Lab) (core.Command, error) {
		index, err := findLink(l.Topology(), endpoint)
		if err != nil {
			return nil, err
		}
		return command(index), nil
	})
	return err
}

// namesOf returns the names of the links of an answer.
func namesOf(a core.Answer, err error) ([]string, error) {
	if err != nil {
		return nil, err
	}
	names := []string{}
	for _, l := range a.Links {
		names = append(names, l.Endpoints[0].String())
	}
	return names, nil
}

// findLink returns the index of the link with an endpoint, node:interface.
func findLink(topo *topology.Topology, endpoint string) (int, error) {
	if i, ok := topo.FindLink(endpoint); ok {
		return i, nil
	}
	return 0, control.Errorf(control.Usage, "lab %s has no link with the endpoint %q", topo.Name, endpoint)
}

func (a *linkAPI) showLinks(ctx context.Context, _ *control.Request, endpoint string) ([]report.Link, error) {
	var topo *topology.Topology
	var states []core.LinkStatus
	a.look(func(l *core.Lab) { topo, states = l.Topology(), linkStates(l) })
	first, end := 0, len(states)
	if endpoint != "" {
		index, err := findLink(topo, endpoint)
		if err != nil {
			return nil, err
		}
		first, end = index, index+1
	}
	links, err := a.linkFigures(ctx, topo, states, nil)
	if err != nil {
		return nil, err
	}
	return links[first:end], nil
}
