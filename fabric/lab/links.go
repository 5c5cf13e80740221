package lab

import (
	"context"
	"fmt"
	"strings"
	"sync"
	"time"

	"github.com/ndklab/ndklab/control"
	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/fabric/linkem"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A labLink is a link of the running lab.
type labLink struct {
	index int // in Topology.Links, and the link's number in the network
	spec  *topology.Link

	// changing is held while the link is changed, which takes several steps.
	changing sync.Mutex
	taps     []*linkTap // of captures. Guarded by changing.

	// What follows is written with both locks held, so that either suffices to
	// read it.
	mu      sync.Mutex
	asked   [2]topology.Impairment
	engine  bool             // linkem carries it; else the kernel does
	joined  bool             // the kernel is about it: neither the engine's nor down
	down    bool             // by LinkDown
	carried [2]link.Counters // by the kernel, in earlier terms
	base    [2]link.Counters // the kernel's counters when its present term began
}

// name is the link's in the engine: an endpoint names its link.
func (l *labLink) name() string { return l.spec.Endpoints[0].String() }

func (l *labLink) impaired() bool { return !l.asked[0].None() || !l.asked[1].None() }

// makeLinks makes every link, by now between running agents. The kernel makes
// one link at a time, so there is nothing to gain from doing it in parallel.
func (s *Supervisor) makeLinks(ctx context.Context) error {
	for i := range s.topo.Links {
		l := &labLink{index: i, spec: &s.topo.Links[i], asked: s.topo.Links[i].Directions}
		if err := s.makeLink(ctx, l); err != nil {
			return fmt.Errorf("link %s to %s: %w", l.spec.Endpoints[0], l.spec.Endpoints[1], err)
		}
		s.links = append(s.links, l)
	}
	return nil
}

func (s *Supervisor) makeLink(ctx context.Context, l *labLink) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	var ends [2]link.End
	for end, e := range l.spec.Endpoints {
		ends[end] = link.End{Interface: e.Interface}
		switch sw := s.switches[e.Node]; {
		case e.External():
			ends[end].Outside = s.externalOf(e).namespace
		case sw != nil:
			ends[end].Bridge = sw.bridge
		default:
			ends[end].PID = s.byName[e.Node].agent.PID()
		}
	}
	if err := s.network.Make(l.index, l.spec.MTU, ends); err != nil {
		return err
	}
	return s.network.Up(l.index)
}

// connectLinks has the kernel or the engine carry every link, between nodes that
// are configured by now. Sooner, the kernel would log that it has packets for an
// interface that is not up yet.
func (s *Supervisor) connectLinks(ctx context.Context) error {
	for _, l := range s.links {
		if err := s.connectLink(ctx, l); err != nil {
			return fmt.Errorf("link %s to %s: %w", l.spec.Endpoints[0], l.spec.Endpoints[1], err)
		}
	}
	return nil
}

func (s *Supervisor) connectLink(ctx context.Context, l *labLink) error {
	if err := s.settle(ctx, l.index); err != nil {
		return err
	}
	if l.impaired() {
		if err := s.attach(ctx, l); err != nil {
			return err
		}
	} else {
		if err := s.network.Join(l.index); err != nil {
			return err
		}
		l.joined = true // with nothing counted before
	}
	return s.openPorts(ctx, l)
}

// How long the kernel may take to notice that interfaces are up.
const (
	settlePoll = time.Millisecond
	settleTime = 5 * time.Second
)

// settle waits until a link, both of whose ends are up, carries packets.
func (s *Supervisor) settle(ctx context.Context, index int) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for {
		if settled, err := s.network.Settled(index); settled || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no carrier: %w", ctx.Err())
		}
	}
}

// attach has the engine open a link and forward, taking over from the kernel if
// that has joined it (package linkem says how).
func (s *Supervisor) attach(ctx context.Context, l *labLink) error {
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	err = engine.Attach(ctx, linkem.Link{
		Name:       l.name(),
		Seed:       s.topo.Seed,
		Interfaces: [2]string{link.Middle(l.index, 0), link.Middle(l.index, 1)},
		Directions: l.asked,
		Joined:     l.joined,
	})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	s.startTaps(l)
	if err := s.part(l); err != nil {
		return err
	}
	if err := engine.Start(ctx, l.name()); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.engine = true
	return nil
}

// giveBack has the kernel carry a link that the engine has.
func (s *Supervisor) giveBack(ctx context.Context, l *labLink) error {
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	if err := engine.Release(ctx, l.name()); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if !l.down {
		if err := s.join(l); err != nil {
			return err
		}
	}
	if _, err := engine.Detach(ctx, l.name()); err != nil { // its measurements stay with the engine
		return fmt.Errorf("engine: %w", err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.engine = false
	return nil
}

// join begins a term of the kernel with a link.
func (s *Supervisor) join(l *labLink) error {
	counters, err := s.network.Counters()
	if err != nil {
		return err
	}
	if err := s.network.Join(l.index); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base = counters[l.index]
	l.joined = true
	return nil
}

// part ends the kernel's term with a link, if there is one.
func (s *Supervisor) part(l *labLink) error {
	if !l.joined {
		return nil
	}
	if err := s.network.Part(l.index); err != nil {
		return err
	}
	counters, err := s.network.Counters()
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for d, now := range counters[l.index] {
		l.carried[d] = l.carried[d].Add(now.Sub(l.base[d]))
	}
	l.joined = false
	return nil
}

// SetLink changes what a link does to packets, by its index in the topology, in
// the direction that the node called from sends, or in both if from is "". The
// link moves between the kernel and the engine as its settings need; the nodes'
// interfaces do not notice.
func (s *Supervisor) SetLink(ctx context.Context, index int, from string, change topology.Change) error {
	l := s.links[index]
	if from != "" && from != l.spec.Endpoints[0].Node && from != l.spec.Endpoints[1].Node {
		return control.Errorf(control.Usage, "node %q is at neither end of the link %s to %s", from, l.spec.Endpoints[0], l.spec.Endpoints[1])
	}
	l.changing.Lock()
	defer l.changing.Unlock()
	if err := s.checkEnds(l); err != nil {
		return err
	}
	l.mu.Lock()
	before := l.asked
	for d, e := range l.spec.Endpoints {
		if from == "" || from == e.Node {
			l.asked[d] = change.Apply(l.asked[d])
		}
	}
	after := l.asked
	l.mu.Unlock()
	// A command that is interrupted now must not leave the link between two carriers.
	if err := s.changeLink(context.WithoutCancel(ctx), l, before, after); err != nil {
		l.mu.Lock()
		l.asked = before
		l.mu.Unlock()
		return fmt.Errorf("link %s: %w", l.name(), err)
	}
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: fmt.Sprintf("link %s: %s", l.name(), describe(change, from))})
	return nil
}

// checkEnds says if a node at an end of the link is down, whose interface has
// gone with it.
func (s *Supervisor) checkEnds(l *labLink) error {
	for _, e := range l.spec.Endpoints {
		if e.External() || s.switches[e.Node] != nil {
			continue
		}
		if _, err := s.Node(e.Node); err != nil {
			return fmt.Errorf("link %s: %w", l.name(), err)
		}
	}
	return nil
}

func (s *Supervisor) changeLink(ctx context.Context, l *labLink, before, after [2]topology.Impairment) error {
	switch {
	case l.engine && !l.impaired():
		return s.giveBack(ctx, l)
	case !l.engine && l.impaired():
		return s.attach(ctx, l)
	case !l.engine:
		return nil
	}
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	for d := range after {
		if !after[d].Equal(before[d]) {
			if err := engine.Set(ctx, l.name(), d, after[d]); err != nil {
				return fmt.Errorf("engine: %w", err)
			}
		}
	}
	return nil
}

// describe says a change in words.
func describe(c topology.Change, from string) string {
	var parts []string
	if c.Delay != nil {
		parts = append(parts, "delay "+topology.FormatDuration(*c.Delay))
	}
	if c.Jitter != nil {
		parts = append(parts, "jitter "+topology.FormatDuration(c.Jitter.Spread))
	}
	if c.Loss != nil {
		parts = append(parts, "loss "+topology.FormatPercent(c.Loss.Rate))
	}
	if c.Rate != nil {
		parts = append(parts, "rate "+topology.FormatRate(*c.Rate))
	}
	if len(parts) == 0 {
		return "no change"
	}
	text := strings.Join(parts, ", ")
	if from != "" {
		text += " from " + from
	}
	return text
}

// LinkDown takes a link down: the nodes lose the carrier, as when a cable is
// pulled, and keep their interfaces' state. Packets on their way are lost.
func (s *Supervisor) LinkDown(_ context.Context, index int) error {
	l := s.links[index]
	return s.setCarrier(l, true, func() error {
		// The kernel would log what it has for an interface that is down.
		if err := s.part(l); err != nil {
			return err
		}
		return s.network.Down(index)
	})
}

// LinkUp brings a link back up, and returns when it carries packets, or is a spare of
// a spanning tree.
func (s *Supervisor) LinkUp(ctx context.Context, index int) error {
	l := s.links[index]
	err := s.setCarrier(l, false, func() error {
		if err := s.network.Up(index); err != nil {
			return err
		}
		if err := s.settle(ctx, index); err != nil {
			return err
		}
		if l.engine || l.joined {
			return nil
		}
		return s.join(l)
	})
	if err != nil {
		return err
	}
	return s.growTree(ctx, index)
}

// setCarrier has change take a link up or down.
func (s *Supervisor) setCarrier(l *labLink, down bool, change func() error) error {
	l.changing.Lock()
	defer l.changing.Unlock()
	if err := s.checkEnds(l); err != nil {
		return err
	}
	if err := change(); err != nil {
		return fmt.Errorf("link %s: %w", l.name(), err)
	}
	l.mu.Lock()
	l.down = down
	l.mu.Unlock()
	word := "up"
	if down {
		word = "down"
	}
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: fmt.Sprintf("link %s is %s", l.name(), word)})
	return nil
}

// Link is the index of the link with an endpoint, node:interface.
func (s *Supervisor) Link(endpoint string) (int, error) {
	for i, l := range s.links {
		if endpoint == l.spec.Endpoints[0].String() || endpoint == l.spec.Endpoints[1].String() {
			return i, nil
		}
	}
	return 0, control.Errorf(control.Usage, "lab %s has no link with the endpoint %q", s.name, endpoint)
}

// InspectLinks is the state of every link, in the order of the topology.
func (s *Supervisor) InspectLinks(ctx context.Context) ([]report.Link, error) {
	kernel, err := s.network.Counters()
	if err != nil {
		return nil, err
	}
	var measured map[string][2]linkem.Measured
	if engine := s.engine.current(); engine != nil {
		if measured, err = engine.Measure(ctx); err != nil {
			return nil, fmt.Errorf("engine: %w", err)
		}
	}
	links := make([]report.Link, len(s.links))
	for i, l := range s.links {
		links[i] = l.report(kernel[i], measured[l.name()])
	}
	return links, nil
}

// report is a link's state; kernel and engine are what each has counted.
func (l *labLink) report(kernel [2]link.Counters, engine [2]linkem.Measured) report.Link {
	l.mu.Lock()
	defer l.mu.Unlock()
	r := report.Link{Engine: "plain", State: "up"}
	if l.engine {
		r.Engine = "linkem"
	}
	if l.down {
		r.State = "down"
	}
	for d, e := range l.spec.Endpoints {
		r.Endpoints[d] = e.String()
		plain := l.carried[d]
		if l.joined {
			plain = plain.Add(kernel[d].Sub(l.base[d]))
		}
		m := &engine[d]
		r.Directions[d] = report.Direction{
			From:     e.String(),
			Packets:  plain.Packets + m.Packets,
			Bytes:    plain.Bytes + m.Bytes,
			Dropped:  m.Dropped,
			Lost:     plain.Lost + m.LostQueue + m.LostDown + m.LostOverrun,
			Asked:    asked(m, l.asked[d]),
			Achieved: achieved(m),
		}
	}
	return r
}
