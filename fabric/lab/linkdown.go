package lab

import (
	"context"
	"fmt"
)

// LinkDown takes a link down: the nodes lose the carrier, as when a cable is
// pulled, and keep their interfaces' state. Packets on their way are lost.
func (s *Supervisor) LinkDown(ctx context.Context, index int) error {
	l := s.links[index]
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if err := s.switchLink(context.WithoutCancel(ctx), l, true, l.parted); err != nil {
		return err
	}
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: fmt.Sprintf("link %s is down", l.name())})
	return nil
}

// LinkUp brings a link back up, whatever took it down, and returns when it
// carries packets.
func (s *Supervisor) LinkUp(ctx context.Context, index int) error {
	l := s.links[index]
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	if err := s.switchLink(context.WithoutCancel(ctx), l, false, false); err != nil {
		return err
	}
	s.Publish(Event{Kind: LinkChanged, Link: l.name(), Text: fmt.Sprintf("link %s is up", l.name())})
	return nil
}

// switchLink takes a link down or up, for either of two reasons.
func (s *Supervisor) switchLink(ctx context.Context, l *labLink, down, parted bool) error {
	if err := s.checkEnds(l); err != nil {
		return err
	}
	var err error
	switch off := down || parted; {
	case off && !l.off():
		err = s.disconnect(l)
	case !off && l.off():
		err = s.reconnect(ctx, l)
	}
	if err != nil {
		return fmt.Errorf("link %s: %w", l.name(), err)
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.down, l.parted = down, parted
	return nil
}

func (s *Supervisor) disconnect(l *labLink) error {
	// The kernel would log what it has for an interface that is down.
	if err := s.part(l); err != nil {
		return err
	}
	return s.network.Down(l.index)
}

func (s *Supervisor) reconnect(ctx context.Context, l *labLink) error {
	if err := s.network.Up(l.index); err != nil {
		return err
	}
	if err := s.settle(ctx, l.index); err != nil {
		return err
	}
	if l.joined || l.carrier != nil && !l.carrier.needsJoin() {
		return nil
	}
	return s.join(l)
}
