package lab

import (
	"context"
	"slices"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/topology"
)

// This file answers what commands ask about nodes and their adapters, at both ends of the
// lab's channel.

// Nodes are the nodes of a lab, as commands have them.
type Nodes struct{ *session }

// Inspect returns the state and the counters of a host, or of every host for "".
func (n Nodes) Inspect(ctx context.Context, nodeName string) ([]report.Node, error) {
	return call(ctx, n.session, methodNodes, nodeName)
}

// Node returns the state of a node of any kind, in any state.
func (l *Lab) Node(ctx context.Context, name string) (*report.Node, error) {
	hosts, err := l.Nodes.Inspect(ctx, name)
	switch {
	case err == nil && len(hosts) == 1:
		return &hosts[0], nil
	case control.CodeOf(err) != control.Usage:
		return nil, err
	}
	all, err := l.Inspect(ctx) // it is no host, or not up
	if err != nil {
		return nil, err
	}
	i := slices.IndexFunc(all.Nodes, func(n report.Node) bool { return n.Name == name })
	if i < 0 {
		return nil, control.Errorf(control.Usage, "lab %s has no node %q", l.info.Lab, name)
	}
	return &all.Nodes[i], nil
}

// Adapters returns the state of the adapter of a host, or of every host for "".
func (n Nodes) Adapters(ctx context.Context, nodeName string) ([]report.NodeAdapter, error) {
	return call(ctx, n.session, methodAdapter, nodeName)
}

// Connections lists the connections, listeners and shared endpoints of a node's
// adapter, or of every node's for "".
func (n Nodes) Connections(ctx context.Context, nodeName string) (*report.Connections, error) {
	return call(ctx, n.session, methodConnections, nodeName)
}

// Enable enables or disables a node's adapter; see node.Agent.SetState.
func (n Nodes) Enable(ctx context.Context, nodeName string, enable bool) (*node.StateChange, error) {
	return call(ctx, n.session, methodEnable, enableParams{nodeName, enable})
}

// ofNodes is a handler of requests about a host or, for "", all hosts.
func ofNodes[T any](s *Supervisor, get func(context.Context, []*topology.Node) T) func(context.Context, *control.Request, string) (T, error) {
	return func(ctx context.Context, _ *control.Request, name string) (found T, err error) {
		nodes, err := s.pick(name)
		if err != nil {
			return found, err
		}
		return get(ctx, nodes), nil
	}
}

// adapters answers methodAdapter.
func (a *nodeAPI) adapters(ctx context.Context, nodes []*topology.Node) []report.NodeAdapter {
	found := make([]report.NodeAdapter, len(nodes))
	states := a.askNodes(ctx, nodes, func(ctx context.Context, i int, agent *node.Client) (err error) {
		found[i].Adapter, err = agent.Adapter(ctx)
		return err
	})
	for i := range found {
		found[i].NodeState = states[i]
	}
	return found
}

// connections answers methodConnections: node by node, in the order of the
// topology.
func (a *nodeAPI) connections(ctx context.Context, nodes []*topology.Node) *report.Connections {
	found := make([][]adapter.Connection, len(nodes))
	r := &report.Connections{Lab: a.lab, Connections: []adapter.Connection{}}
	r.Nodes = a.askNodes(ctx, nodes, func(ctx context.Context, i int, agent *node.Client) (err error) {
		found[i], err = agent.Connections(ctx)
		return err
	})
	for i, n := range nodes {
		for _, c := range found[i] {
			a.complete(n.Name, &c)
			r.Connections = append(r.Connections, c)
		}
	}
	return r
}

// complete adds what an agent does not know of a connection: the node's name, and the
// process id on the host.
func (a *nodeAPI) complete(nodeName string, c *adapter.Connection) {
	c.Node = nodeName
	if c.Mode == "User" {
		// The process may have ended meanwhile.
		c.PID, _ = a.machines.pid(nodeName, c.PID)
	}
}

// enable answers methodEnable.
func (a *nodeAPI) enable(ctx context.Context, _ *control.Request, params enableParams) (*node.StateChange, error) {
	l, err := a.host(params.Node)
	if err != nil {
		return nil, err
	}
	change, err := l.client.SetState(ctx, params.Enable)
	if err != nil {
		return nil, err
	}
	change.Lab, change.Node = a.lab, params.Node
	return &change, nil
}
