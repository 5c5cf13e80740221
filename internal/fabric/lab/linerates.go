package lab

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/node/adapter"
	"github.com/ndklab/ndklab/topology"
)

// This file has adapters know the rates of their lines while these change: congestion control has new queue pairs begin at
// the rate of the line, and pauses last by it.

// followRates returns how to carry out an action on a link so that the adapters at its ends know of its rates afterwards.
func (d *nodeDriver) followRates(a core.Action, act func() core.Done) func() core.Done {
	var spec *topology.Link
	var to [2]*topology.Impairment // nil: as before
	switch a := a.(type) {
	case core.Impair:
		spec, to = a.Link, [2]*topology.Impairment{&a.Asked[0], &a.Asked[1]}
	case core.SetImpairment:
		spec, to[a.Direction] = a.Link, &a.To
	case core.ReleaseLink:
		spec, to = a.Link, [2]*topology.Impairment{new(topology.Impairment), new(topology.Impairment)}
	default:
		return act
	}
	return func() core.Done {
		done := act()
		for end, i := range to {
			if l := d.life(spec.Endpoints[end].Node); done.Err == nil && i != nil && l != nil {
				done = l.done(l.setLineRate(spec.Endpoints[end], i.Rate))
			}
		}
		return done
	}
}

// setLineRate has the node's adapter know the rate of the line at an interface, in bits per second; 0: it has none.
func (l *life) setLineRate(at topology.Endpoint, rate uint64) error {
	i := slices.IndexFunc(l.spec.Interfaces, func(face topology.Interface) bool { return face.Name == at.Interface })
	l.rating.Lock() // the agent is told of one change after the other
	defer l.rating.Unlock()
	if l.rates == nil || i < 0 {
		return nil // no adapter that asks for it
	}
	changed := false
	for _, prefix := range l.spec.Interfaces[i].Addresses {
		if a := prefix.Addr(); adapter.Takes(a) && l.rates[a] != rate {
			l.rates[a] = rate
			changed = true
		}
	}
	if !changed {
		return nil
	}
	ctx, cancel := context.WithTimeout(context.Background(), answerTime)
	defer cancel()
	err := l.agent.SetLineRates(ctx, maps.Clone(l.rates))
	if errors.Is(err, context.DeadlineExceeded) {
		return nil // it is paused, and reads it when it goes on
	}
	if err != nil {
		return fmt.Errorf("rate of %s: %w", at, err)
	}
	return nil
}
