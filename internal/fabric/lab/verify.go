package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/probe"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/verify"
	"github.com/ndklab/ndklab/topology"
)

// Probes say what Links.Verify sends in each direction.
type Probes = verify.Probes

// MaxProbes bounds Probes.Count.
const MaxProbes = verify.MaxProbes

// Verify sends probes across the link with an endpoint, in both directions, and
// holds what becomes of them against what the link is set to do, with its tolerance.
// The link should have no other traffic meanwhile.
func (l Links) Verify(ctx context.Context, endpoint string, probes Probes) (*report.Verification, error) {
	return call(ctx, l.session, methodVerify, verifyParams{endpoint, probes})
}

// verifyLink answers methodVerify.
func (a *linkAPI) verifyLink(ctx context.Context, _ *control.Request, params verifyParams) (*report.Verification, error) {
	var dilation int
	a.look(func(l *core.Lab) { dilation = l.Topology().DilationFactor() })
	if dilation > 1 {
		return nil, control.Errorf(control.Usage, "lab %s has dilation %d, and probes know the machine's time alone: `ndklab up --dilation 1` makes a lab whose links can be verified", a.lab, dilation)
	}
	spec, before, err := a.linkToProbe(params.Endpoint)
	if err != nil {
		return nil, err
	}
	name := spec.Endpoints[0]
	engine, state := stateOfLink(spec, before)
	if state != "up" {
		return nil, control.Errorf(control.Usage, "link %s is down: `ndklab link up %s/%s` brings it up", name, a.lab, name)
	}
	v := &report.Verification{Lab: a.lab, Engine: engine, Passed: true}
	found, err := a.machines.probe(ctx, spec, before.Asked, params.Probes)
	// A change of the link explains a failure better than the failure itself.
	_, after, changed := a.linkToProbe(params.Endpoint)
	if changed != nil || after.Off() || !after.Asked[0].Equal(before.Asked[0]) || !after.Asked[1].Equal(before.Asked[1]) {
		return nil, control.Errorf(control.Usage, "link %s was changed while it was probed: probe it again", name)
	}
	if err != nil {
		return nil, err
	}
	for d, p := range found {
		v.Endpoints[d] = spec.Endpoints[d].String()
		p.From = v.Endpoints[d]
		v.Directions[d] = p
		for _, f := range p.Findings {
			v.Passed = v.Passed && f.Passed
		}
	}
	return v, nil
}

// probe sends probes in both directions of a link, which are set to what asked says, and returns what became of them.
func (m *machine) probe(ctx context.Context, spec *topology.Link, asked [2]topology.Impairment, probes Probes) (found [2]report.Probed, err error) {
	var ends [2]probe.End
	for end := range ends {
		if ends[end], err = m.probeEnd(spec, end); err != nil {
			return found, err
		}
	}
	return flyBoth(ctx, spec, verify.Within(ends), asked, probes)
}

// flyBoth has probes fly in both directions of a link, and returns what became of them.
func flyBoth(ctx context.Context, spec *topology.Link, fly verify.Fly, asked [2]topology.Impairment, probes Probes) (found [2]report.Probed, err error) {
	var directions [2]*verify.Direction
	for d := range directions {
		if directions[d], err = verify.Prepare(spec, fly, d, asked[d], probes); err != nil {
			return found, err
		}
	}
	err = parallel(ctx, 2, 2, func(ctx context.Context, d int) error { return directions[d].Fly(ctx) })
	for d := 0; d < 2 && err == nil; d++ {
		err = directions[d].Burst(ctx)
	}
	if err != nil {
		return found, fmt.Errorf("link %s: %w", spec.Endpoints[0], err)
	}
	for d, p := range directions {
		found[d] = p.Found
	}
	return found, nil
}

// probeLink answers methodProbe.
func (p *part) probeLink(ctx context.Context, _ *control.Request, params probeParams) ([2]report.Probed, error) {
	spec := p.linkOf(params.Link)
	if spec == nil {
		return [2]report.Probed{}, control.Errorf(control.Usage, "there is no link %d", params.Link)
	}
	return p.probe(ctx, spec, params.Asked, params.Probes)
}

// linkOf returns the link of a number that the lab has now; nil if there is none.
func (p *part) linkOf(number int) *topology.Link {
	links := p.topo.Load().Links
	if at := slices.IndexFunc(links, func(l topology.Link) bool { return l.Number == number }); at >= 0 {
		return &links[at]
	}
	return nil
}

// linkToProbe returns the link with an endpoint, whose nodes are up.
func (a *linkAPI) linkToProbe(endpoint string) (spec *topology.Link, status *core.LinkStatus, err error) {
	a.look(func(l *core.Lab) {
		topo := l.Topology()
		var index int
		if index, err = findLink(topo, endpoint); err != nil {
			return
		}
		found := l.Link(index)
		spec, status, err = &topo.Links[index], &found, l.Ends(index)
	})
	return spec, status, err
}

// probeEnd returns the place of a link's end, in a node that is up.
func (m *machine) probeEnd(spec *topology.Link, end int) (probe.End, error) {
	e := spec.Endpoints[end]
	switch {
	case e.External():
		return probe.End{}, control.Errorf(control.Usage, "link %s has an end outside the lab, %s, where no probe can be seen", spec.Endpoints[0], e)
	case m.links.hasBuffer(e.Node):
		return probe.End{}, control.Errorf(control.Usage, atBuffer, "send a probe", e, "a run's report has the delays of all packets of its links")
	case m.links.switchOf(e.Node) != nil:
		return probe.End{Interface: link.Port(spec.Number, end)}, nil
	}
	l := m.life(e.Node)
	if l == nil {
		return probe.End{}, control.Errorf(control.Usage, "node %s is down", e.Node)
	}
	return probe.End{Interface: e.Interface, Network: l.agent.Network}, nil
}
