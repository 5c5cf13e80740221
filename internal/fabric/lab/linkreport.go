package lab

import (
	"cmp"
	"context"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/internal/fabric/linkreport"
	"github.com/ndklab/ndklab/internal/fabric/linkstats"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// linkStates returns how each link of the lab's topology fares.
func linkStates(l *core.Lab) (states []core.LinkStatus) {
	for i := range l.Topology().Links {
		states = append(states, l.Link(i))
	}
	return states
}

// linkFigures returns figures of every link of a topology, in its order, whose states are known, from a beginning on, or
// from when the lab came up if that is nil.
func (a *linkAPI) linkFigures(ctx context.Context, topo *topology.Topology, states []core.LinkStatus, began *beginning) ([]report.Link, error) {
	kernel, err := a.machines.carried(topo)
	if err != nil {
		return nil, err
	}
	links := make([]report.Link, len(states))
	for i := range states {
		spec := &topo.Links[i]
		var before [2]link.Counters
		if began != nil {
			before = began.links[i]
		}
		links[i] = reportLink(spec, &states[i], kernel[spec.Number], before)
		links[i].Hosts = a.machines.between(spec)
	}
	return links, a.measure(ctx, topo, states, links, began != nil)
}

// measure adds what the link engine knows of links, or since it last began anew.
func (a *linkAPI) measure(ctx context.Context, topo *topology.Topology, states []core.LinkStatus, links []report.Link, since bool) error {
	tolerances := make(map[string]topology.Tolerance, len(states))
	for i := range topo.Links {
		tolerances[topo.Links[i].Endpoints[0].String()] = linkreport.Tolerance(&topo.Links[i])
	}
	all, err := ofEngines(ctx, a.machines, func(ctx context.Context, engine *linkem.Engine) (map[string][2]linkstats.Statistics, error) {
		if since {
			return engine.MeasureSince(ctx, tolerances)
		}
		return engine.Measure(ctx, tolerances)
	})
	if err != nil {
		return err
	}
	for i := range topo.Links {
		spec := &topo.Links[i]
		both, ok := all[spec.Endpoints[0].String()]
		for end := range both {
			if ok {
				judged := linkreport.Judged(&both[end], spec, states[i].Asked[end].Rate, a.here.links.named)
				addTo(&links[i], end, &judged)
			}
		}
	}
	return nil
}

// plainEngine is the engine of a link without impairments, in reports.
const plainEngine = "plain"

// stateOfLink returns a link's engine and state, for reports.
func stateOfLink(spec *topology.Link, status *core.LinkStatus) (engine, state string) {
	engine, state = plainEngine, "up"
	if status.Engine || !status.Asked[0].None() || !status.Asked[1].None() { // which will have it once a node is back
		engine = cmp.Or(string(spec.Engine), string(topology.Linkem))
	}
	if status.Off() {
		state = "down"
	}
	return engine, state
}

// reportLink returns a link's state and what the kernel has counted while it joined the link, less what it had counted before.
func reportLink(spec *topology.Link, status *core.LinkStatus, kernel carried, before [2]link.Counters) report.Link {
	var r report.Link
	r.Engine, r.State = stateOfLink(spec, status)
	for d, e := range spec.Endpoints {
		r.Endpoints[d] = e.String()
		plain, asked := kernel.Counters[d].Sub(before[d]), status.Asked[d]
		r.Directions[d] = report.Direction{
			From: e.String(), Settings: asked.Settings(), Set: linkreport.Set(asked), Packets: plain.Packets, Bytes: plain.Bytes,
			Lost: plain.Lost, LostBy: report.LostBy{Kernel: plain.Lost},
		}
		if spec.Engine == topology.Netem {
			reportNetem(&r.Directions[d], asked, plain, kernel.Lossy[d])
		}
	}
	return r
}

// addTo adds what engines know of a link's direction. A plain link between hosts is one as within a host: though engines carry it, it
// has no queue, and no delay that anybody asked for.
func addTo(l *report.Link, end int, from *report.Direction) {
	if l.Hosts != nil && l.Engine == plainEngine {
		from.QueuePeak, from.DelayBars = nil, nil
	}
	add(&l.Directions[end], from)
}

// add adds what a carrier knows of a direction.
func add(to, from *report.Direction) {
	to.Packets += from.Packets
	to.Bytes += from.Bytes
	to.Dropped += from.Dropped
	to.Lost += from.Lost
	from.LostBy.Kernel += to.LostBy.Kernel
	to.LostBy = from.LostBy
	to.Duplicated, to.Reordered, to.Corrupted, to.Marked, to.Faulted = from.Duplicated, from.Reordered, from.Corrupted, from.Marked, from.Faulted
	to.QueuePeak, to.Lateness, to.Delays, to.DelayBars, to.Replayed, to.Overruns = from.QueuePeak, from.Lateness, from.Delays, from.DelayBars, from.Replayed, from.Overruns
	to.Asked, to.Achieved = from.Asked, from.Achieved
}
