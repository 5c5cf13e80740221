package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A beginning holds the counters as they stood when a run began: its figures count from
// there. Those of the link engine are not in it, which begins anew itself
// (linkem.Engine.Begin).
type beginning struct {
	links [][2]link.Counters // of the kernel, by the link's index
	nodes map[string]earlier
}

// An earlier holds the counters of a node as they stood when a run began.
type earlier struct {
	life int // a later one has counted nothing before the run
	report.Node
}

// noLife is the life of a switch, which counts nothing but its starts.
const noLife = -1

// beginFigures begins the figures of a run.
func (a *runAPI) beginFigures(ctx context.Context) (*beginning, error) {
	for _, engine := range a.machines.engines() {
		if err := engine.Begin(ctx); err != nil && !a.machines.failedWith(ctx, engine, err) {
			return nil, fmt.Errorf("engine: %w", err)
		}
	}
	topo := a.topology()
	kernel, err := a.machines.carried(topo)
	if err != nil {
		return nil, err
	}
	nodes := withProcesses(topo)
	b := &beginning{links: make([][2]link.Counters, len(topo.Links)), nodes: make(map[string]earlier, len(nodes))}
	for i := range topo.Links {
		spec := &topo.Links[i]
		b.links[i] = kernel[spec.Number].Counters
	}
	lives := make([]int, len(nodes))
	for i, n := range nodes {
		lives[i] = a.node(n.Name).Life
	}
	for i, n := range a.inspectNodes(ctx, nodes) {
		b.nodes[n.Name] = earlier{lives[i], n}
	}
	for i := range topo.Nodes {
		if spec := &topo.Nodes[i]; spec.Kind == topology.Switch {
			b.nodes[spec.Name] = earlier{noLife, report.Node{Restarts: a.node(spec.Name).Restarts}}
		}
	}
	return b, nil
}

// since has nodes count from the beginning of the run.
func (b *beginning) since(s *Supervisor, nodes []report.Node) []report.Node {
	for i := range nodes {
		n := &nodes[i]
		before, known := b.nodes[n.Name]
		if !known {
			continue
		}
		n.Restarts -= before.Restarts
		if s.node(n.Name).Life == before.life {
			*n = report.Since([]report.Node{before.Node}, nodes[i:i+1])[0]
		}
	}
	return nodes
}
