package lab

import (
	"context"
	"fmt"
	"slices"

	"github.com/ndklab/ndklab/topology"
)

// This file is what is still to be done when a changed topology has become the lab's:
// it is noted with each node and link, so that an Apply which is interrupted, or fails,
// leaves it to the next.

// complete makes what is not there as yet, and has the nodes that are there do what
// they owe.
func (c *change) complete(ctx context.Context) error {
	s := c.Supervisor
	var made []int
	for i, l := range s.links {
		if err := ctx.Err(); err != nil {
			return err
		}
		if !l.state().whole {
			made = append(made, i)
			if err := s.plugFixed(context.WithoutCancel(ctx), l); err != nil {
				return err
			}
		}
	}
	started := make([]bool, len(s.nodes))
	err := parallel(ctx, requestsAtOnce, len(s.nodes), func(ctx context.Context, i int) (err error) {
		started[i], err = s.settleDue(context.WithoutCancel(ctx), s.nodes[i])
		return err
	})
	if err != nil {
		return err
	}
	for i, n := range s.nodes { // which may wait for each other
		if started[i] {
			if err := n.settled(ctx); err != nil {
				return err
			}
		}
	}
	made = slices.DeleteFunc(made, func(i int) bool { return !s.links[i].state().whole })
	for _, i := range made {
		l := s.links[i]
		s.Publish(Event{Kind: LinkAdded, Link: l.name(), Text: fmt.Sprintf("link %s to %s is there", l.spec.Endpoints[0], l.spec.Endpoints[1])})
	}
	return s.growTree(ctx, made...)
}

// plugFixed makes the ends of a new link that are not in nodes with processes.
func (s *Supervisor) plugFixed(ctx context.Context, l *labLink) error {
	for end, e := range l.spec.Endpoints {
		if s.switches[e.Node] == nil || !l.state().missing[end] {
			continue
		}
		if err := s.replug(ctx, l, end, 0); err != nil {
			return err
		}
		if err := s.network.OpenPort(l.spec.Number, end); err != nil {
			return fmt.Errorf("link %s: %w", l.name(), err)
		}
		if err := s.plugged(ctx, l, end); err != nil {
			return err
		}
	}
	return nil
}

// What a node owes to the topology that it has got: it is to be done, by an Apply that
// can be interrupted before.
type due int

const (
	dueNothing  due = iota
	dueSettings     // its interfaces, addresses, neighbours, routes or limits are others by now
	dueStart        // it is to be started, also if it is up
)

// owe notes what the node has to do, unless it owes more.
func (n *labNode) owe(what due) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.due = max(n.due, what)
}

// settleDue has a node do what it owes, and says whether that was to start.
func (s *Supervisor) settleDue(ctx context.Context, n *labNode) (started bool, err error) {
	s, n, err = s.hold(ctx, n.spec.Name)
	if err != nil {
		return false, err
	}
	defer n.unlock()
	n.mu.Lock()
	owed := n.due
	n.mu.Unlock()
	up := n.status().State != nodeDown
	switch {
	case owed == dueStart:
		n.reviver.Cancel()
		if up {
			s.stop(n, "it starts again with other settings")
		}
		err = s.startAgain(ctx, n)
	case owed == dueSettings && up:
		err = s.reconfigure(ctx, n)
	}
	if err != nil {
		return false, err
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.due = dueNothing
	return owed == dueStart, nil
}

// reconfigure makes the interfaces that a node which is up has not got as yet, and
// has its network and limits be what the topology says. The caller has the right to
// change the node.
func (s *Supervisor) reconfigure(ctx context.Context, n *labNode) error {
	life := n.current()
	if life.group != nil {
		if err := life.group.Set(limitsOf(n.spec)); err != nil {
			return fmt.Errorf("node %s: %w", n.spec.Name, err)
		}
	}
	agent := life.agent
	var fresh []topology.Interface
	for _, i := range n.spec.Interfaces {
		l := s.links[i.Link]
		if !l.state().missing[i.End] {
			continue
		}
		if err := s.replug(ctx, l, i.End, agent.PID()); err != nil {
			return fmt.Errorf("node %s: %w", n.spec.Name, err)
		}
		fresh = append(fresh, i)
	}
	if err := agent.Reconfigure(s.lifeConfig(n)); err != nil {
		return err
	}
	for _, i := range fresh {
		if err := s.plugged(ctx, s.links[i.Link], i.End); err != nil {
			return fmt.Errorf("node %s: %w", n.spec.Name, err)
		}
	}
	return nil
}

// notStarted is the life of a node that is still to be started.
func notStarted() *life {
	l := &life{progress: newProgress(&topology.Setup{}), begun: make(chan struct{}), down: make(chan struct{}), over: make(chan struct{}), reason: "it has not been started yet"}
	close(l.down)
	close(l.over)
	return l
}

// A plugState is which ends of a link are there.
type plugState struct {
	missing [2]bool
	whole   bool
}

func (l *labLink) state() plugState {
	l.mu.Lock()
	defer l.mu.Unlock()
	return plugState{l.missing, l.whole()}
}
