package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/topology"
)

// SetLink changes what a link does to packets, by its index in the topology, in
// the direction that the node called from sends, or in both if from is "". It holds
// for the packets to come as soon as SetLink returns. The link moves between the
// kernel and its carrier as its settings need, back to the kernel a little later
// (relieveLater); the nodes' interfaces do not notice.
func (s *Supervisor) SetLink(ctx context.Context, by source, index int, from string, change topology.Change) error {
	return s.changeLink(ctx, by, index, from, inDirection(change.String(), from),
		func(_ int, i topology.Impairment) topology.Impairment { return change.Apply(i) })
}

// ResetLink gives a link the settings back that the topology has for it, in one
// direction or both. It stays up or down.
func (s *Supervisor) ResetLink(ctx context.Context, by source, index int, from string) error {
	file := s.links[index].spec.Directions
	return s.changeLink(ctx, by, index, from, inDirection("reset", from), func(d int, _ topology.Impairment) topology.Impairment { return file[d] })
}

// changeLink changes each direction that from means by what to says, and tells
// of it in words.
func (s *Supervisor) changeLink(ctx context.Context, by source, index int, from, words string, to func(direction int, i topology.Impairment) topology.Impairment) error {
	l := s.links[index]
	if from != "" && from != l.spec.Endpoints[0].Node && from != l.spec.Endpoints[1].Node {
		return control.Errorf(control.Usage, "node %q is at neither end of the link %s to %s", from, l.spec.Endpoints[0], l.spec.Endpoints[1])
	}
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if err := s.checkEnds(l); err != nil {
		return err
	}
	before, after, lasting := l.asked, l.asked, l.lasting.asked
	for d, e := range l.spec.Endpoints {
		if from != "" && from != e.Node {
			continue
		}
		after[d], lasting[d] = to(d, after[d]), to(d, lasting[d])
		if err := after[d].Check(); err != nil {
			return control.Errorf(control.Usage, "link %s: packets from %s: %v", l.name(), e.Node, err)
		}
		if err := l.check(after[d]); err != nil {
			return err
		}
		if err := l.check(lasting[d]); by == byHand && err != nil {
			return fmt.Errorf("%w, which would be so in the next run", err)
		}
	}
	l.ask(after)
	// A command that is interrupted now must not leave the link between two carriers.
	if err := s.enforce(context.WithoutCancel(ctx), l, before); err != nil {
		l.ask(before)
		return fmt.Errorf("link %s: %w", l.name(), err)
	}
	l.last(by, func(r *request) { r.asked = lasting })
	if l.carrier != nil && !l.impaired() {
		s.relieveLater(l)
	}
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: fmt.Sprintf("link %s: %s", l.name(), words)})
	return nil
}

// check says what is wrong with an impairment, or what of it the link's engine
// cannot do.
func (l *labLink) check(i topology.Impairment) error {
	err := i.Check()
	if err == nil {
		err = l.spec.Engine.Check(i, l.spec.Offload)
	}
	if err == nil {
		err = l.spec.CheckQueue(i)
	}
	if err != nil {
		return control.Errorf(control.Usage, "link %s: %v", l.name(), err)
	}
	return nil
}

func (l *labLink) ask(settings [2]topology.Impairment) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.asked = settings
}

// enforce has what is asked of a link happen, before which something else did.
func (s *Supervisor) enforce(ctx context.Context, l *labLink, before [2]topology.Impairment) error {
	switch {
	case l.carrier == nil && l.impaired():
		return s.impair(ctx, l)
	case l.carrier == nil:
		return nil
	}
	for d, to := range l.asked {
		if !to.Equal(before[d]) {
			if err := l.carrier.set(ctx, l, d, to); err != nil {
				return err
			}
		}
	}
	return nil
}

// inDirection says of which direction words are.
func inDirection(words, from string) string {
	if from == "" {
		return words
	}
	return words + " from " + from
}
