package lab

import (
	"context"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/linkreport"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// This file answers monitors, at both ends of the lab's channel. They ask again and again, so that one
// request makes one request of each agent, and one of the link engine, which leave out what takes
// time: percentiles, lists and texts. Nobody who asks for nothing costs the lab anything.

// Observe describes the lab to a monitor, with delays and latencies by bounds in
// nanoseconds, which ascend.
func (l *Lab) Observe(ctx context.Context, bounds []int64) (*report.Observation, error) {
	return call(ctx, l.session, methodObserve, bounds)
}

// observe answers methodObserve. Agents and the link engine are asked at once.
func (s *Supervisor) observe(ctx context.Context, _ *control.Request, bounds []int64) (*report.Observation, error) {
	var standing core.Standing
	var states []core.LinkStatus
	s.look(func(l *core.Lab) { standing, states = l.Standing(), linkStates(l) })
	topo := standing.Topology
	o := &report.Observation{Lab: s.name, Seed: topo.Seed, State: stateOf(standing), Up: s.Since().Seconds()}
	err := parallel(ctx, 2, 2, func(ctx context.Context, i int) (err error) {
		if i == 0 {
			o.Nodes = s.observeNodes(ctx, topo, bounds)
			return nil
		}
		o.Links, err = s.observeLinks(ctx, topo, states, bounds)
		return err
	})
	if err != nil {
		return nil, err
	}
	return o, nil
}

// observeNodes returns every node of the lab's topology, in its order.
func (a *nodeAPI) observeNodes(ctx context.Context, topo *topology.Topology, bounds []int64) []report.ObservedNode {
	asked := withProcesses(topo)
	answers := make([]node.Observation, len(asked))
	states := a.askNodes(ctx, asked, func(ctx context.Context, i int, agent *node.Client) (err error) {
		answers[i], err = agent.Observe(ctx, bounds)
		return err
	})
	nodes := make([]report.ObservedNode, len(topo.Nodes))
	for i := range topo.Nodes {
		spec, n := &topo.Nodes[i], &nodes[i]
		if spec.Kind == topology.Switch {
			status := a.node(spec.Name)
			n.Node = report.Node{NodeState: stateOfNode(spec.Name, status), Kind: string(topology.Switch), Restarts: status.Restarts}
			continue
		}
		answer := &answers[0]
		n.Node = a.describe(spec, states[0], &answer.Counters)
		a.amendState(&n.NodeState)
		n.InUse, n.Connections = answer.InUse, answer.Connections
		for _, w := range answer.Workloads {
			n.Workloads = append(n.Workloads, report.ObservedWorkload(w))
		}
		answers, states = answers[1:], states[1:]
	}
	return nodes
}

// observeLinks returns every link of the lab's topology, in its order, whose states are known.
func (a *linkAPI) observeLinks(ctx context.Context, topo *topology.Topology, states []core.LinkStatus, bounds []int64) ([]report.Link, error) {
	kernel, err := a.machines.carried(topo)
	if err != nil {
		return nil, err
	}
	links := make([]report.Link, len(states))
	for i := range states {
		spec := &topo.Links[i]
		links[i] = reportLink(spec, &states[i], kernel[spec.Number], [2]link.Counters{})
	}
	all, err := ofEngines(ctx, a.machines.engines(), func(ctx context.Context, engine *linkem.Engine) (map[string][2]linkstats.Statistics, error) {
		return engine.Observe(ctx, bounds)
	})
	if err != nil {
		return nil, err
	}
	for i := range topo.Links {
		if both, ok := all[topo.Links[i].Endpoints[0].String()]; ok {
			for end := range both {
				counted := linkreport.Counters(&both[end])
				add(&links[i].Directions[end], &counted)
			}
		}
	}
	return links, nil
}
