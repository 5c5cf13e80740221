package lab

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
)

// A labLink is a link of the running lab, in a roster.
type labLink struct {
	index int // in Topology.Links and roster.links
	spec  *topology.Link
	*linkState
}

// A linkState is what a link is and does at present.
type linkState struct {
	gone chan struct{} // closed, by who has changing, when the link is in the lab no more

	// changing holds a token while the link is changed, which takes several steps.
	changing chan struct{}
	taps     []*linkTap // of captures. Guarded by changing.

	// What follows is written with both the token and mu held, so that either
	// suffices to read it.
	mu        sync.Mutex
	request                    // what is asked at present
	lasting   request          // what the next run begins with (lasting.go)
	carrier   carrier          // that impairs it, or did until now; nil if it is plain
	relieving chan struct{}    // closed when the last relieveLater has ended; nil before the first
	joined    bool             // the kernel hands packets from middle to middle
	missing   [2]bool          // the end is in a node that is down, or has not been made as yet
	carried   [2]link.Counters // by the kernel while it had joined the link, in earlier terms
	lossy     [2]bool          // netem has been asked for loss
	base      [2]link.Counters // the kernel's counters when its present term began
	seen      [2]link.Counters // the kernel's counters when they were last read for a report; guarded by mu alone
}

func newLabLink(index int, spec *topology.Link) *labLink {
	asked := request{asked: spec.Directions, down: spec.Down}
	return &labLink{index, spec, &linkState{request: asked, lasting: asked, changing: make(chan struct{}, 1), gone: make(chan struct{})}}
}

// name is the link's in the engine and in messages: an endpoint names its link.
func (l *labLink) name() string { return l.spec.Endpoints[0].String() }

func (l *labLink) impaired() bool { return !l.asked[0].None() || !l.asked[1].None() }

// off reports whether the link is down, for whatever reason.
func (l *labLink) off() bool { return l.down || l.parted || !l.whole() }

// whole reports whether both ends of the link are there.
func (l *labLink) whole() bool { return !l.missing[0] && !l.missing[1] }

// lock waits for the right to change the link, which unlock gives back. There is none
// to a link that has gone.
func (l *labLink) lock(ctx context.Context) error {
	select {
	case l.changing <- struct{}{}:
		if isClosed(l.gone) {
			l.unlock()
			return control.Errorf(control.Usage, "link %s is in the lab no more", l.name())
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("link %s: %w", l.name(), ctx.Err())
	}
}

func (l *labLink) unlock() { <-l.changing }

// makeLinks makes every link, by now between running agents, and tells linked of each
// node that has all its links. The kernel makes one link at a time, so there is nothing
// to gain from doing it in parallel.
func (s *Supervisor) makeLinks(ctx context.Context, linked chan<- *labNode) error {
	left := make(map[*labNode]int) // links that nodes lack
	for _, n := range s.nodes {
		if left[n] = len(n.spec.Interfaces); left[n] == 0 {
			linked <- n
		}
	}
	for i := range s.topo.Links {
		l := newLabLink(i, &s.topo.Links[i])
		if err := s.makeLink(ctx, l); err != nil {
			return fmt.Errorf("link %s to %s: %w", l.spec.Endpoints[0], l.spec.Endpoints[1], err)
		}
		s.links = append(s.links, l)
		for _, e := range l.spec.Endpoints {
			n := s.byName[e.Node] // not of switches, nor outside
			if n == nil {
				continue
			}
			if left[n]--; left[n] == 0 {
				linked <- n
			}
		}
	}
	return nil
}

func (s *Supervisor) makeLink(ctx context.Context, l *labLink) error {
	if err := ctx.Err(); err != nil {
		return err
	}
	for _, asked := range l.asked {
		if err := l.check(asked); err != nil {
			return err
		}
	}
	if err := s.network.Make(l.spec.Number, l.spec.MTU, s.ends(l)); err != nil {
		return err
	}
	for end := range 2 {
		if err := l.addNetem(end); err != nil {
			return err
		}
	}
	if l.down {
		return nil
	}
	return s.network.Up(l.spec.Number)
}

// connectLinks has the kernel or the engine carry every link, between nodes that
// are configured by now. Sooner, the kernel would log that it has packets for an
// interface that is not up yet.
func (s *Supervisor) connectLinks(ctx context.Context) error {
	return parallel(ctx, requestsAtOnce, len(s.links), func(ctx context.Context, i int) error {
		l := s.links[i]
		if err := s.connectLink(ctx, l); err != nil {
			return fmt.Errorf("link %s to %s: %w", l.spec.Endpoints[0], l.spec.Endpoints[1], err)
		}
		return nil
	})
}

func (s *Supervisor) connectLink(ctx context.Context, l *labLink) error {
	if !l.down {
		if err := s.settle(ctx, l.spec.Number); err != nil {
			return err
		}
	}
	if l.impaired() {
		if err := s.impair(ctx, l); err != nil {
			return err
		}
	}
	if !l.down && (l.carrier == nil || l.carrier.needsJoin()) {
		if err := s.network.Join(l.spec.Number); err != nil {
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
func (s *Supervisor) settle(ctx context.Context, number int) error {
	ctx, cancel := context.WithTimeout(ctx, settleTime)
	defer cancel()
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for {
		if settled, err := s.network.Settled(number); settled || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no carrier: %w", ctx.Err())
		}
	}
}

// checkEnds says if a node at an end of the link is down, whose interface has
// gone with it. That of a node which is paused is there.
func (s *Supervisor) checkEnds(l *labLink) error {
	for _, e := range l.spec.Endpoints {
		n := s.byName[e.Node] // nil of switches and outside
		if n == nil {
			continue
		}
		if state := n.status(); state.State == nodeDown {
			return control.Errorf(control.Usage, "link %s: node %s is down: %s", l.name(), e.Node, state.Reason)
		}
	}
	return nil
}

// Link is the index of the link with an endpoint, node:interface.
func (s *Supervisor) Link(endpoint string) (int, error) {
	if i, ok := s.topo.FindLink(endpoint); ok {
		return i, nil
	}
	return 0, control.Errorf(control.Usage, "lab %s has no link with the endpoint %q", s.name, endpoint)
}
