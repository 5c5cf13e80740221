package lab

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkreport"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/rows"
	"github.com/ndklab/ndklab/internal/node"
	"github.com/ndklab/ndklab/topology"
)

// This file answers monitors, at both ends of the lab's channel. They ask again and again, so that one
// request makes one request of each agent, and one of the link engine, which leave out what takes
// time: percentiles, lists and texts. Rows that have not changed since they asked last are neither made nor told again: package rows
// decides that, of what a view (view.go) has found. Nobody who asks for nothing costs the lab anything.

// An observeAnswer has the changes of an observation of the lab since another one.
type observeAnswer struct {
	View   uint64 // whose number Number is
	Number uint64
	Lab    report.Observation // without nodes and links
	Nodes  rows.Changes[report.ObservedNode]
	Links  rows.Changes[report.Link]
}

// An observed is an observation of the lab by bounds, as the lab numbers it. It is not changed.
type observed struct {
	report.Observation
	bounds       []int64
	view, number uint64
}

// Observe describes the lab to a monitor, with delays and latencies by bounds in
// nanoseconds, which ascend. The answer shares memory with later ones, and is not to be changed.
func (l *Lab) Observe(ctx context.Context, bounds []int64) (*report.Observation, error) {
	last := l.observed.Load()
	if last == nil || !slices.Equal(last.bounds, bounds) {
		last = new(observed)
	}
	answer, err := call(ctx, l.session, methodObserve, observeParams{Bounds: bounds, View: last.view, Since: last.number})
	if err != nil {
		return nil, err
	}
	now := &observed{answer.Lab, slices.Clone(bounds), answer.View, answer.Number}
	if now.Nodes, err = answer.Nodes.Apply(last.Nodes); err != nil {
		return nil, fmt.Errorf("lab %s: nodes: %w", now.Lab, err)
	}
	if now.Links, err = answer.Links.Apply(last.Links); err != nil {
		return nil, fmt.Errorf("lab %s: links: %w", now.Lab, err)
	}
	l.observed.Store(now) // of several at once, any is right to go on from
	return &now.Observation, nil
}

// observe answers methodObserve. Agents and the link engine are asked at once.
func (s *Supervisor) observe(ctx context.Context, _ *control.Request, params observeParams) (answer observeAnswer, err error) {
	v := s.views.of(params.Bounds)
	if err := v.begin(ctx); err != nil {
		return answer, err
	}
	defer v.end()
	s.look(func(l *core.Lab) { v.see(l, s.machines) })
	err = parallel(ctx, 2, 2, func(ctx context.Context, i int) error {
		if i == 0 {
			s.observeNodes(ctx, v)
			return nil
		}
		return s.observeLinks(ctx, v)
	})
	if err != nil {
		return answer, err
	}
	since := params.Since
	if params.View != v.id {
		since = 0
	}
	whole := report.Observation{Lab: s.name, Seed: v.standing.Topology.Seed, State: stateOf(v.standing), Up: s.Since().Seconds()}
	return observeAnswer{v.id, v.look, whole, v.nodes.Since(since), v.links.Since(since)}, nil
}

// observeNodes has the view have every node of the lab's topology. It asks those in which something may have happened.
func (a *nodeAPI) observeNodes(ctx context.Context, v *view) {
	topo, now := v.standing.Topology, time.Now()
	var asked []*topology.Node
	var places []int
	for i := range topo.Nodes {
		spec, of := &topo.Nodes[i], v.foundNodes[i]
		switch {
		case v.hasNode(i, now):
		case spec.Kind == topology.Switch:
			n := report.Node{NodeState: stateOfNode(spec.Name, of.status), Kind: string(topology.Switch), Restarts: of.status.Restarts}
			v.nodes.Put(i, of, &report.ObservedNode{Node: n}, v.look)
		default:
			asked, places = append(asked, spec), append(places, i)
		}
	}
	if len(asked) == 0 {
		return
	}
	answers := make([]node.Observation, len(asked))
	states := a.askNodes(ctx, asked, func(ctx context.Context, i int, agent *node.Client) (err error) {
		answers[i], err = agent.Observe(ctx, v.bounds)
		return err
	})
	nodes := make([]report.ObservedNode, len(asked))
	for i, spec := range asked {
		n, answer := &nodes[i], &answers[i]
		n.Node = a.describe(spec, states[i], &answer.Counters)
		a.amendState(&n.NodeState)
		n.InUse, n.Connections = answer.InUse, answer.Connections
		for _, w := range answer.Workloads {
			n.Workloads = append(n.Workloads, report.ObservedWorkload(w))
		}
		for _, s := range answer.Sending {
			n.Sending = append(n.Sending, report.ObservedPair{SendState: s, Peer: v.owners[s.Remote]})
		}
		n.Pauses = answer.Pauses
	}
	var handled uint64
	a.look(func(l *core.Lab) { handled = l.Handled() })
	for i, place := range places {
		of := v.foundNodes[place]
		of.answer = answers[i].Number
		if handled != v.handled { // the node may have been described by another status
			of.amid = v.look
		}
		v.nodes.Put(place, of, &nodes[i], v.look)
	}
}

// observeLinks has the view have every link of the lab's topology.
func (a *linkAPI) observeLinks(ctx context.Context, v *view) error {
	topo := v.standing.Topology
	kernel, err := a.machines.carried(topo)
	if err != nil {
		return err
	}
	for _, engine := range a.machines.engines() {
		answer, err := engine.Observe(ctx, v.bounds, v.engines[engine])
		if a.machines.failedWith(ctx, engine, err) {
			continue
		}
		if err != nil {
			return fmt.Errorf("engine: %w", err)
		}
		v.measure(engine, &answer)
	}
	for i := range topo.Links {
		spec := &topo.Links[i]
		of := v.foundLinks[i].linkInput
		of.kernel = kernel[spec.Number]
		if spec.Engine != topology.Netem && v.links.Is(i, of) { // netem's counters depend on more
			continue
		}
		found := reportLink(spec, &v.foundLinks[i].status, of.kernel, [2]link.Counters{})
		found.Hosts = a.machines.between(spec)
		if both := v.foundLinks[i].measured(); both != nil {
			for end := range both {
				counted := linkreport.Counters(&both[end])
				addTo(&found, end, &counted)
			}
		}
		v.links.Put(i, of, &found, v.look)
	}
	return nil
}
