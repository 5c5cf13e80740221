package lab

import (
	"context"
	"fmt"

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
	if err := a.isAlone("probes of a link"); err != nil {
		return nil, err
	}
	var dilation int
	a.look(func(l *core.Lab) { dilation = l.Topology().DilationFactor() })
	if dilation > 1 {
		return nil, control.Errorf(control.Usage, "lab %s has dilation %d, and probes know the machine's time alone: `ndklab up --dilation 1` makes a lab whose links can be verified", a.lab, dilation)
	}
	spec, before, err := a.linkToProbe(params.Endpoint)
	if err != nil {
		return nil, err
	}
	ends, err := a.probeEnds(spec)
	if err != nil {
		return nil, err
	}
	name := spec.Endpoints[0]
	engine, state := stateOfLink(spec, before)
	if state != "up" {
		return nil, control.Errorf(control.Usage, "link %s is down: `ndklab link up %s/%s` brings it up", name, a.lab, name)
	}
	v := &report.Verification{Lab: a.lab, Engine: engine, Passed: true}
	var directions [2]*verify.Direction
	for d := range directions {
		v.Endpoints[d] = spec.Endpoints[d].String()
		if directions[d], err = verify.Prepare(spec, ends, d, before.Asked[d], params.Probes); err != nil {
			return nil, err
		}
	}
	err = parallel(ctx, 2, 2, func(ctx context.Context, d int) error { return directions[d].Fly(ctx) })
	for d := 0; d < 2 && err == nil; d++ {
		err = directions[d].Burst(ctx)
	}
	// A change of the link explains a failure better than the failure itself.
	_, after, changed := a.linkToProbe(params.Endpoint)
	if changed != nil || after.Off() || !after.Asked[0].Equal(before.Asked[0]) || !after.Asked[1].Equal(before.Asked[1]) {
		return nil, control.Errorf(control.Usage, "link %s was changed while it was probed: probe it again", name)
	}
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", name, err)
	}
	for d, p := range directions {
		p.Found.From = v.Endpoints[d]
		v.Directions[d] = p.Found
		for _, f := range p.Found.Findings {
			v.Passed = v.Passed && f.Passed
		}
	}
	return v, nil
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

// probeEnds returns the places of a link's ends, in nodes that are up.
func (a *linkAPI) probeEnds(spec *topology.Link) (ends [2]probe.End, err error) {
	for end, e := range spec.Endpoints {
		switch {
		case e.External():
			return ends, control.Errorf(control.Usage, "link %s has an end outside the lab, %s, where no probe can be seen", spec.Endpoints[0], e)
		case a.here.links.hasBuffer(e.Node):
			return ends, control.Errorf(control.Usage, atBuffer, "send a probe", e, "a run's report has the delays of all packets of its links")
		case a.here.links.switchOf(e.Node) != nil:
			ends[end] = probe.End{Interface: link.Port(spec.Number, end)}
		default:
			ends[end] = probe.End{Interface: e.Interface, PID: a.machines.life(e.Node).agent.PID()}
		}
	}
	return ends, nil
}
