package lab

import (
	"context"
	"fmt"
	"log"

	"github.com/ndklab/ndklab/fabric/lab/link"
)

// This file is what becomes of a link when a node at one of its ends goes down, with
// which its interface vanishes, and comes back. What is asked of the link stays as it
// is, or as it is changed meanwhile; the kernel and the link's carrier have to do
// with it only while both ends are there.

// unplugAll takes the interfaces of a node that has gone, or is about to, from the
// links that it has now.
func (s *Supervisor) unplugAll(n *labNode) {
	s = s.now()
	if n = s.as(n); n == nil {
		return
	}
	for _, i := range n.spec.Interfaces {
		l := s.links[i.Link]
		if err := s.unplug(l, i.End); err != nil && !isClosed(l.gone) {
			log.Printf("node %s: link %s: %v", n.spec.Name, l.name(), err)
		}
	}
}

// unplug removes a link's interface in a node: the far end loses the carrier.
func (s *Supervisor) unplug(l *labLink, end int) error {
	if err := l.lock(context.Background()); err != nil {
		return err
	}
	defer l.unlock()
	if l.whole() {
		if err := s.takeApart(l); err != nil {
			return err
		}
	}
	l.mu.Lock()
	l.missing[end] = true
	l.mu.Unlock()
	return s.network.RemoveEnd(l.spec.Number, end)
}

// takeApart ends what the kernel and the carrier do with a link, of which an end may
// have vanished. Packets on their way are lost.
func (s *Supervisor) takeApart(l *labLink) error {
	if err := s.part(l); err != nil {
		return err
	}
	if l.carrier != nil {
		if err := l.carrier.abandon(context.Background(), l); err != nil {
			return err
		}
		l.mu.Lock()
		l.carrier = nil
		l.mu.Unlock()
	}
	return s.network.Down(l.spec.Number)
}

// replug makes a link's interface in a node again, whose agent has that process id.
func (s *Supervisor) replug(ctx context.Context, l *labLink, end, pid int) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	// The kernel takes its time to remove what was in a node, by its own doing.
	if err := s.network.RemoveEnd(l.spec.Number, end); err != nil {
		return err
	}
	ends := s.ends(l)
	ends[end].PID = pid
	if err := s.network.MakeEnd(l.spec.Number, end, l.spec.MTU, ends); err != nil {
		return fmt.Errorf("link %s: %w", l.name(), err)
	}
	return l.addNetem(end)
}

// plugged connects a link, one of whose ends is there again, if the other one is. It
// is then as it was last asked to be.
func (s *Supervisor) plugged(ctx context.Context, l *labLink, end int) error {
	if err := l.lock(ctx); err != nil {
		return err
	}
	defer l.unlock()
	l.mu.Lock()
	l.missing[end] = false
	l.mu.Unlock()
	if !l.whole() {
		return nil
	}
	if l.impaired() {
		if err := s.impair(ctx, l); err != nil {
			return err
		}
	}
	if l.off() {
		return nil
	}
	if err := s.reconnect(ctx, l); err != nil {
		return fmt.Errorf("link %s: %w", l.name(), err)
	}
	return nil
}

// ends is what the network is told of a link's ends. The process of one in a host
// or router is whatever the node has.
func (s *Supervisor) ends(l *labLink) (ends [2]link.End) {
	for end, e := range l.spec.Endpoints {
		ends[end] = link.End{Interface: e.Interface, Wire: !l.spec.Offload}
		switch sw := s.switches[e.Node]; {
		case e.External():
			ends[end].Outside = s.externalOf(e).namespace
		case sw != nil:
			ends[end].Bridge = sw.bridge
		default:
			if agent := s.byName[e.Node].current().agent; agent != nil { // else it is still to be started
				ends[end].PID = agent.PID()
			}
		}
	}
	return ends
}
