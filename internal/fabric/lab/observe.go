package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkreport"
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
	states := a.askNodes(ctx, asked, func(ctx context.Context, i int, agent *node.Agent) (err error) {
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

// kernelCounters returns the kernel's counters of all links, if it joins any now: they take the kernel some microseconds for each link,
// and of links that it does not join they say nothing (labLink.byKernel).
func (a *linkAPI) kernelCounters(topo *topology.Topology) (map[int][2]link.Counters, error) {
	for i := range topo.Links {
		if a.links.link(&topo.Links[i]).isJoined() {
			return a.links.network.Counters()
		}
	}
	return nil, nil
}

// observeLinks returns every link of the lab's topology, in its order, whose states are known.
func (a *linkAPI) observeLinks(ctx context.Context, topo *topology.Topology, states []core.LinkStatus, bounds []int64) ([]report.Link, error) {
	kernel, err := a.kernelCounters(topo)
	if err != nil {
		return nil, err
	}
	links := make([]report.Link, len(states))
	for i := range states {
		spec := &topo.Links[i]
		links[i] = a.links.link(spec).report(spec, &states[i], kernel[spec.Number], [2]link.Counters{})
	}
	engine := a.links.engine.current()
	if engine == nil {
		return links, nil
	}
	all, err := engine.Observe(ctx, bounds)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
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
