package lab

import (
	"context"
	"errors"
	"fmt"
	"log"
	"os"
	"syscall"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/node"
	"github.com/ndklab/ndklab/node/cgroup"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A life is a node from a start to its end: an agent, which is never the same
// again. What is not said to change is set before the life is the node's.
type life struct {
	group   *cgroup.Group // nil without limits
	unwatch func()        // ends what watches the group's memory
	agent   *node.Agent
	hostPID int
	// begun is closed when another life takes the place of one that is still to begin;
	// nil of others.
	begun chan struct{}
	// progress is how far the node has come.
	progress *progress
	began    time.Duration // by the clock of labNode.reviver

	// stopping is why the node is being stopped; "" if its end is its own. Guarded by
	// labNode.mu, as is signal, the last that a command has sent; 0 if none has.
	stopping string
	signal   syscall.Signal

	down   chan struct{} // closed when the agent has ended
	reason string        // why it did; valid once down is closed
	over   chan struct{} // closed when the node's interfaces have gone, too
}

// begin starts the agent of a node. A later start has other random numbers than the
// one before: what is still under way must not be taken for the new node's.
func (s *Supervisor) begin(spec *topology.Node, start int) (*life, error) {
	l := &life{progress: newProgress(&spec.Setup), began: clock.Real().Now(), unwatch: func() {}, down: make(chan struct{}), over: make(chan struct{})}
	if err := l.limit(s.name, spec, s.groups); err != nil {
		return nil, fmt.Errorf("node %s: limits: %w", spec.Name, err)
	}
	cfg := s.startConfig(spec, start)
	cfg.QPError = func(e provider.QPError) { s.publishQPError(spec.Name, e) }
	err := s.reaper.Start(func() (pid int, err error) {
		if l.agent, err = node.Start(cfg, l.group, os.Stderr); err != nil {
			return 0, err
		}
		return l.agent.PID(), nil
	})
	if err != nil {
		l.unwatch()
		return nil, err
	}
	go func() {
		<-l.agent.Done()
		l.unwatch()
	}()
	if l.hostPID, err = node.PIDIn(s.hostProc, l.agent.PID()); err != nil {
		log.Printf("node %s: %v", spec.Name, err) // it is only shown
	}
	return l, nil
}

// startConfig is what a node is told when it is started for the start-th time after
// the first.
func (s *Supervisor) startConfig(spec *topology.Node, start int) node.Config {
	cfg := s.nodeConfig(spec)
	if start > 0 {
		cfg.Seed = s.topo.SeedOf(fmt.Sprintf("node %s, start %d", spec.Name, start))
	}
	return cfg
}

// lifeConfig is what the node as it is would have been told when it was started.
func (s *Supervisor) lifeConfig(n *labNode) node.Config {
	n.mu.Lock()
	start := n.restarts
	n.mu.Unlock()
	return s.startConfig(n.spec, start)
}

// up has the agent configure its interfaces and open its adapter.
func (l *life) up(ctx context.Context) error {
	err := l.agent.Up(ctx)
	if errors.Is(err, control.ErrClosed) {
		<-l.agent.Done()
		return fmt.Errorf("node %s: %s", l.agent.Name(), l.end())
	}
	return err
}

// end is how the agent has ended, in words. The runtime of Go has process 1 exit with
// status 2 where a signal would kill another process.
func (l *life) end() string {
	text := "its agent " + l.agent.Exit().String()
	if l.signal != 0 && l.agent.Exit().Status == 2 {
		text = "its agent was killed by " + unix.SignalName(l.signal)
	}
	return text + l.limitReached()
}

// watchNode notices that a node's agent has ended. The far ends of its links, which
// lose the carrier, and the rest of the lab stay; a lab that is still starting comes to
// nothing (beReady).
func (s *Supervisor) watchNode(n *labNode, l *life) {
	<-l.agent.Done()
	s.reaper.Collected(l.agent.PID())
	l.unwatch() // which may take a while, and n.mu is not to be held for it
	words := ""
	n.mu.Lock()
	if l.reason = l.stopping; l.reason == "" {
		l.reason = l.end()
		words = s.reviveLater(n, n.reviver.Clock.Now()-l.began) // before anybody can see it down, and call that off
	}
	n.paused = false
	close(l.down)
	n.mu.Unlock()
	switch {
	case s.checkReady() == nil:
		s.unplugAll(n)
	case isClosed(l.progress.settled) && l.progress.err == nil:
		// It was ready itself. Others need not be waited for.
		s.end(control.Errorf(control.Failed, "lab %s: node %s: %s", s.name, n.spec.Name, l.reason))
	default:
		// Whoever is starting it knows what it was about, and beReady finds it down.
	}
	s.Publish(Event{Kind: NodeDown, Node: n.spec.Name, Text: fmt.Sprintf("node %s is down: %s%s", n.spec.Name, l.reason, words)})
	close(l.over) // after which another start can be told of
}

// lock waits for the right to change the state of the node, which unlock gives back.
// There is none to a node that is in the lab no more.
func (n *labNode) lock(ctx context.Context) error {
	select {
	case n.changing <- struct{}{}:
		if isClosed(n.gone) {
			n.unlock()
			return control.Errorf(control.Usage, "node %s is in the lab no more", n.spec.Name)
		}
		return nil
	case <-ctx.Done():
		return fmt.Errorf("node %s: %w", n.spec.Name, ctx.Err())
	}
}

func (n *labNode) unlock() { <-n.changing }

// stop ends the node that is up as if it were switched off: its interfaces go
// before it can say anything. The caller has the right to change the node.
func (s *Supervisor) stop(n *labNode, why string) {
	n.mu.Lock()
	l := n.life
	l.stopping = why
	n.mu.Unlock()
	s.unplugAll(n)
	l.agent.Kill()
	<-l.over
}

// startTime is how long a node may take to start again.
const startTime = 30 * time.Second

// startAgain starts a node that is down, and its links as they were last asked to be.
// The caller has the right to change the node. An error does not mean that it is down
// still: it may be that a spanning tree does not stand.
func (s *Supervisor) startAgain(ctx context.Context, n *labNode) error {
	n.reviver.Cancel()
	<-n.current().over
	n.mu.Lock()
	owed := n.due
	n.due = dueNothing
	first := n.life.agent == nil // an Apply has added the node
	if !first {
		n.restarts++
	}
	start := n.restarts
	n.mu.Unlock()
	// What the node owed it gets by being started as the lab has it now. Looking at that
	// comes second, as an Apply first shows the lab and then notes what is owed to it.
	s = s.now()
	n = s.as(n)
	l, err := s.begin(n.spec, start)
	if err != nil {
		n.owe(owed)
		return err
	}
	soon, cancel := context.WithTimeout(ctx, startTime)
	defer cancel()
	if err := s.bringUp(soon, n, l); err != nil {
		l.agent.Kill()
		<-l.agent.Done()
		s.reaper.Collected(l.agent.PID())
		s.unplugAll(n)
		n.owe(owed)
		return err
	}
	n.mu.Lock()
	if n.life.begun != nil {
		close(n.life.begun)
	}
	n.life = l
	n.mu.Unlock()
	words := "node %s is up again"
	if first {
		words = "node %s is up"
	}
	s.Publish(Event{Kind: NodeUp, Node: n.spec.Name, Text: fmt.Sprintf(words, n.spec.Name)})
	go s.watchNode(n, l)
	err = s.growTree(ctx, s.switched(n)...)
	s.readyAgain(n, l)
	return err
}

// bringUp makes the interfaces of a node whose agent has just been started, has it
// configured, and connects the links whose other ends are there.
func (s *Supervisor) bringUp(ctx context.Context, n *labNode, l *life) error {
	for _, i := range n.spec.Interfaces {
		if err := s.replug(ctx, s.links[i.Link], i.End, l.agent.PID()); err != nil {
			return fmt.Errorf("node %s: %w", n.spec.Name, err)
		}
	}
	if err := s.furnish(ctx, n, l); err != nil {
		return err
	}
	if err := s.up(ctx, n, l); err != nil {
		return err
	}
	for _, i := range n.spec.Interfaces {
		if err := s.plugged(ctx, s.links[i.Link], i.End); err != nil {
			return fmt.Errorf("node %s: %w", n.spec.Name, err)
		}
	}
	return nil
}
