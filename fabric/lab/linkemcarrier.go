package lab

import (
	"context"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/fabric/linkem"
	"github.com/ndklab/ndklab/fabric/linkreport"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// linkemCarrier carries links with the link engine.
type linkemCarrier struct{ *Supervisor }

func (linkemCarrier) name() string    { return "linkem" }
func (linkemCarrier) needsJoin() bool { return false }

// attach takes over from the kernel if that has joined the link (package linkem
// says how).
func (s linkemCarrier) attach(ctx context.Context, l *labLink) error {
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	atOnce := !l.joined && len(l.taps) == 0
	err = engine.Attach(ctx, linkem.Link{
		Name:       l.name(),
		Seed:       s.topo.Seed,
		Interfaces: [2]string{link.Middle(l.spec.Number, 0), link.Middle(l.spec.Number, 1)},
		Directions: l.asked,
		Joined:     l.joined,
		Started:    atOnce,
	})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if atOnce {
		return nil
	}
	s.startTaps(l)
	if err := s.part(l); err != nil {
		return err
	}
	if err := engine.Start(ctx, l.name()); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

func (s linkemCarrier) set(ctx context.Context, l *labLink, direction int, to topology.Impairment) error {
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	if err := engine.Set(ctx, l.name(), direction, to); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

func (s linkemCarrier) idle(ctx context.Context, l *labLink) error {
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	return engine.Idle(ctx, l.name())
}

// releaseTime is how long packets that came since a link was idle may take to leave
// it. On one with more traffic than the engine keeps up with there is no such time.
const releaseTime = time.Second

func (s linkemCarrier) detach(ctx context.Context, l *labLink) error {
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(ctx, releaseTime)
	defer cancel()
	if err := engine.Release(soon, l.name()); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if !l.off() {
		if err := s.join(l); err != nil {
			return err
		}
	}
	if _, err := engine.Detach(ctx, l.name()); err != nil { // its measurements stay with the engine
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

func (s linkemCarrier) abandon(ctx context.Context, l *labLink) error {
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	if _, err := engine.Detach(ctx, l.name()); err != nil { // its measurements stay with the engine
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

func (s linkemCarrier) measure(ctx context.Context, since bool) (map[string][2]report.Direction, error) {
	engine := s.engine.current()
	if engine == nil {
		return nil, nil
	}
	tolerances := make(map[string]topology.Tolerance, len(s.links))
	for _, l := range s.links {
		tolerances[l.name()] = linkreport.Tolerance(l.spec)
	}
	measure := engine.Measure
	if since {
		measure = engine.MeasureSince
	}
	all, err := measure(ctx, tolerances)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	found := make(map[string][2]report.Direction, len(all))
	for _, l := range s.links {
		if both, ok := all[l.name()]; ok {
			l.mu.Lock()
			present := l.asked
			l.mu.Unlock()
			found[l.name()] = [2]report.Direction{linkreport.Judged(&both[0], l.spec, present[0].Rate, s.named), linkreport.Judged(&both[1], l.spec, present[1].Rate, s.named)}
		}
	}
	return found, nil
}
