package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/fabric/probe"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/fabric/verify"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
)

// Probes say what VerifyLink sends in each direction.
type Probes = verify.Probes

// MaxProbes bounds Probes.Count.
const MaxProbes = verify.MaxProbes

// VerifyLink sends probes across the link with an endpoint, in both directions, and
// holds what becomes of them against what the link is set to do, with its tolerance.
// The link should have no other traffic meanwhile.
func (l *Lab) VerifyLink(ctx context.Context, endpoint string, probes Probes) (*report.Verification, error) {
	return call(ctx, l, methodVerify, verifyParams{endpoint, probes})
}

// VerifyLink is Lab.VerifyLink of a link by its index in the topology.
func (s *Supervisor) VerifyLink(ctx context.Context, index int, probes Probes) (*report.Verification, error) {
	l := s.links[index]
	ends, err := s.probeEnds(l)
	if err != nil {
		return nil, err
	}
	before := l.report([2]link.Counters{})
	if before.State != "up" {
		return nil, control.Errorf(control.Usage, "link %s is down: `ndklab link up %s/%s` brings it up", l.name(), s.name, l.name())
	}
	v := &report.Verification{Lab: s.name, Endpoints: before.Endpoints, Engine: before.Engine, Passed: true}
	var directions [2]*verify.Direction
	for d := range directions {
		l.mu.Lock()
		asked := l.asked[d]
		l.mu.Unlock()
		if directions[d], err = verify.Prepare(l.spec, ends, d, asked, probes); err != nil {
			return nil, err
		}
	}
	err = parallel(ctx, 2, 2, func(ctx context.Context, d int) error { return directions[d].Fly(ctx) })
	for d := 0; d < 2 && err == nil; d++ {
		err = directions[d].Burst(ctx)
	}
	// What went wrong may be because of a change, which explains it better.
	if after := l.report([2]link.Counters{}); after.State != "up" || !l.asks(directions[0].Asked, directions[1].Asked) {
		return nil, control.Errorf(control.Usage, "link %s was changed while it was probed: probe it again", l.name())
	}
	if err != nil {
		return nil, fmt.Errorf("link %s: %w", l.name(), err)
	}
	for d, p := range directions {
		p.Found.From = before.Endpoints[d]
		v.Directions[d] = p.Found
		for _, f := range p.Found.Findings {
			v.Passed = v.Passed && f.Passed
		}
	}
	return v, nil
}

// probeEnds is where the ends of a link are, in nodes that are up.
func (s *Supervisor) probeEnds(l *labLink) (ends [2]probe.End, err error) {
	if err := s.checkEnds(l); err != nil {
		return ends, err
	}
	for end, e := range l.spec.Endpoints {
		switch {
		case e.External():
			return ends, control.Errorf(control.Usage, "link %s has an end outside the lab, %s, where no probe can be seen", l.name(), e)
		case s.switches[e.Node] != nil:
			ends[end] = probe.End{Interface: link.Port(l.spec.Number, end)}
		default:
			ends[end] = probe.End{Interface: e.Interface, PID: s.byName[e.Node].current().agent.PID()}
		}
	}
	return ends, nil
}

// asks reports whether that is asked of the link's directions.
func (l *labLink) asks(both ...topology.Impairment) bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.asked[0].Equal(both[0]) && l.asked[1].Equal(both[1])
}
