package lab

import (
	"context"
	"fmt"

	"github.com/ndklab/ndklab/fabric/lab/link"
	"github.com/ndklab/ndklab/fabric/linkem"
	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// linkemCarrier carries links with the link engine.
type linkemCarrier struct{ *Supervisor }

func (linkemCarrier) name() string                    { return "linkem" }
func (linkemCarrier) check(topology.Impairment) error { return nil } // it can do everything
func (linkemCarrier) needsJoin() bool                 { return false }

// attach takes over from the kernel if that has joined the link (package linkem
// says how).
func (s linkemCarrier) attach(ctx context.Context, l *labLink) error {
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

func (s linkemCarrier) detach(ctx context.Context, l *labLink) error {
	engine, err := s.startedEngine()
	if err != nil {
		return err
	}
	if err := engine.Release(ctx, l.name()); err != nil {
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

func (s linkemCarrier) measure(ctx context.Context) (map[string][2]report.Direction, error) {
	engine := s.engine.current()
	if engine == nil {
		return nil, nil
	}
	all, err := engine.Measure(ctx)
	if err != nil {
		return nil, fmt.Errorf("engine: %w", err)
	}
	found := make(map[string][2]report.Direction, len(all))
	for name, both := range all {
		found[name] = [2]report.Direction{measured(&both[0]), measured(&both[1])}
	}
	return found, nil
}

// measured is what the engine measured in one direction, in a report.
func measured(m *linkem.Measured) report.Direction {
	return report.Direction{
		Packets:  m.Packets,
		Bytes:    m.Bytes,
		Dropped:  m.Dropped,
		Lost:     m.LostQueue + m.LostDown + m.LostOverrun,
		Asked:    asked(m),
		Achieved: achieved(m),
	}
}
