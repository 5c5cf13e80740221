package lab

import (
	"context"
	"fmt"
	"log"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/internal/fabric/linkem"
	"github.com/ndklab/ndklab/topology"
)

// linkemCarrier carries links with the link engine.
type linkemCarrier struct {
	*engine
	seed uint64 // the lab's
}

func (linkemCarrier) needsJoin() bool { return false }

// attach takes over from the kernel if that has joined the link (package linkem
// says how).
func (c linkemCarrier) attach(l *labLink, asked [2]topology.Impairment) error {
	engine, err := c.start()
	if err != nil {
		return err
	}
	ctx := context.Background() // the engine's end ends it
	atOnce := !l.joined && len(l.taps) == 0
	var interfaces [2]string
	for end, is := range l.ends(l.spec) {
		if !is.Stub && !l.far[end] {
			interfaces[end] = link.Middle(l.spec.Number, end)
		}
	}
	err = engine.Attach(ctx, linkem.Link{
		Name:       l.name(),
		Seed:       c.seed,
		Interfaces: interfaces,
		Directions: asked,
		Joined:     l.joined,
		Started:    atOnce,
		Trunk:      l.host,
		Number:     uint32(l.spec.Number),
	})
	if err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if atOnce {
		return nil
	}
	if err := l.startTaps(); err != nil {
		log.Print(err) // a link does not depend on those who watch it
	}
	if err := l.part(); err != nil {
		return err
	}
	if err := engine.Start(ctx, l.name()); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

func (c linkemCarrier) set(l *labLink, direction int, to topology.Impairment) error {
	engine, err := c.start()
	if err != nil {
		return err
	}
	if err := engine.Set(context.Background(), l.name(), direction, to); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}

func (c linkemCarrier) idle(ctx context.Context, name string) error {
	engine, err := c.start()
	if err != nil {
		return err
	}
	return engine.Idle(ctx, name)
}

// releaseTime bounds the time in which packets that came since a link was idle leave it.
// On a link with more traffic than the engine keeps up with they never do.
const releaseTime = time.Second

func (c linkemCarrier) detach(l *labLink) error {
	engine, err := c.start()
	if err != nil {
		return err
	}
	soon, cancel := context.WithTimeout(context.Background(), releaseTime)
	defer cancel()
	if err := engine.Release(soon, l.name()); err != nil {
		return fmt.Errorf("engine: %w", err)
	}
	if l.connected {
		if err := l.join(); err != nil {
			return err
		}
	}
	return c.abandon(l)
}

func (c linkemCarrier) abandon(l *labLink) error {
	engine, err := c.start()
	if err != nil {
		return err
	}
	if _, err := engine.Detach(context.Background(), l.name()); err != nil { // its measurements stay with the engine
		return fmt.Errorf("engine: %w", err)
	}
	return nil
}
