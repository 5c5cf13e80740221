package lab

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/node"
	"github.com/ndklab/ndklab/topology"
)

// This file takes nodes through their stages: their files, their commands, what they
// wait for, and their health.

// A progress is how far a node has come in one life.
type progress struct {
	settled chan struct{} // closed when makeReady has returned
	err     error         // that it returned; valid once settled is closed

	mu      sync.Mutex // guards what follows
	stage   topology.Stage
	doing   string        // what it is at; "" nothing
	health  health        // of no check if the node has none
	output  string        // why the last check failed
	changed chan struct{} // closed with the next change
}

func newProgress(setup *topology.Setup) *progress {
	p := &progress{settled: make(chan struct{}), changed: make(chan struct{})}
	if setup.Healthcheck != nil {
		p.health = newHealth(setup.Healthcheck)
	}
	return p
}

// change tells those who wait for one. The caller holds the lock.
func (p *progress) change() {
	close(p.changed)
	p.changed = make(chan struct{})
}

func (p *progress) reach(stage topology.Stage) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.stage, p.doing = stage, ""
	p.change()
}

func (p *progress) begin(doing string) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.doing = doing
}

// at is what the node is at, "" if that is nothing.
func (p *progress) at() string {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.doing
}

// until waits until is reports true of a node, or an error. That the node is down is
// one, however far it had come, unless it is still to begin.
func (n *labNode) until(ctx context.Context, l *life, is func(p *progress) (ok bool, err error)) error {
	for {
		l.progress.mu.Lock()
		ok, err := is(l.progress)
		changed := l.progress.changed
		l.progress.mu.Unlock()
		if l.begun != nil {
			select {
			case <-l.begun:
				l = n.current()
				continue
			case <-ctx.Done():
				return context.Cause(ctx)
			}
		}
		if isClosed(l.down) {
			return control.Errorf(control.Unmet, "node %s is down: %s", n.spec.Name, l.reason)
		}
		if ok || err != nil {
			return err
		}
		select {
		case <-changed:
		case <-l.down:
		case <-ctx.Done():
			return context.Cause(ctx)
		}
	}
}

// furnish takes a node with interfaces to the stage created.
func (s *Supervisor) furnish(ctx context.Context, n *labNode, l *life) error {
	if len(n.spec.Setup.Files) > 0 {
		l.progress.begin("puts its files in place")
		if err := l.agent.Furnish(ctx); err != nil {
			return err
		}
	}
	if err := s.execute(ctx, n, l, topology.Created); err != nil {
		return err
	}
	l.progress.reach(topology.Created)
	return nil
}

// makeReady takes a node that is configured through the other stages, after which it is
// ready. It is called once in a life.
func (s *Supervisor) makeReady(ctx context.Context, n *labNode, l *life) (err error) {
	defer func() {
		l.progress.err = err
		close(l.progress.settled)
	}()
	l.progress.reach(topology.Configured)
	for _, w := range n.spec.Setup.WaitFor {
		l.progress.begin(fmt.Sprintf("waits for %s to be %s", w.Node, w.Stage))
		other := s.byName[w.Node]
		err := other.until(ctx, other.current(), func(p *progress) (bool, error) { return p.has(w.Stage), nil })
		if err != nil {
			return fmt.Errorf("node %s waits for %s: %w", n.spec.Name, w.Node, err)
		}
	}
	if err := s.execute(ctx, n, l, topology.Configured); err != nil {
		return err
	}
	l.progress.reach(topology.Executed)
	if n.spec.Setup.Healthcheck != nil {
		l.progress.begin("is checked by its healthcheck")
		go s.watchHealth(n, l)
		if err := n.until(ctx, l, n.healthy); err != nil {
			return err
		}
	}
	if err := s.execute(ctx, n, l, topology.Healthy); err != nil {
		return err
	}
	l.progress.reach(topology.Healthy)
	return nil
}

// has reports whether a stage is reached. The caller holds the lock.
func (p *progress) has(stage topology.Stage) bool {
	return p.stage != "" && slices.Index(topology.Stages, p.stage) >= slices.Index(topology.Stages, stage)
}

// healthy is for until.
func (n *labNode) healthy(p *progress) (bool, error) {
	if p.health.state == healthUnhealthy {
		return false, control.Errorf(control.Unmet, "node %s is unhealthy: %s", n.spec.Name, p.output)
	}
	return p.health.state == healthHealthy, nil
}

// execute runs a node's commands of a stage.
func (s *Supervisor) execute(ctx context.Context, n *labNode, l *life, stage topology.Stage) error {
	for _, e := range n.spec.Setup.Exec {
		if e.Stage != stage {
			continue
		}
		l.progress.begin("runs " + brief(e.Command))
		status, last, err := shell(ctx, l.agent, e.Command, os.Stderr)
		switch {
		case errors.Is(err, control.ErrClosed):
			<-l.agent.Done()
			return control.Errorf(control.Unmet, "node %s: %s was cut short: %s", n.spec.Name, brief(e.Command), l.end())
		case err != nil:
			return fmt.Errorf("%s: %w", brief(e.Command), err)
		case status != 0:
			text := fmt.Sprintf("node %s: %s ended with status %d", n.spec.Name, brief(e.Command), status)
			if len(last) > 0 {
				text += ", having written:\n  " + strings.Join(last, "\n  ")
			}
			return control.Errorf(control.Unmet, "%s", text)
		}
	}
	return nil
}

// brief is a command for messages: its first line, if that is not long.
func brief(command string) string {
	line, _, _ := strings.Cut(strings.TrimSpace(command), "\n")
	const most = 60 // characters
	if runes := []rune(line); len(runes) > most {
		line = string(runes[:most])
	}
	if line != strings.TrimSpace(command) {
		line += "..."
	}
	return fmt.Sprintf("%q", line)
}

// shell runs a command in a node, and returns its exit status and the last lines that
// it wrote. All of them go to the log, if that is not nil.
func shell(ctx context.Context, agent *node.Agent, command string, log io.Writer) (status int, last []string, err error) {
	out, w, err := newTranscript(log, "node "+agent.Name()+": ", lastLines)
	if err != nil {
		return 0, nil, err
	}
	null, err := os.Open(os.DevNull)
	if err != nil {
		w.Close()
		return 0, nil, err
	}
	status, err = agent.Exec(ctx, node.Command{Args: []string{"/bin/sh", "-c", command}}, null, w, w)
	null.Close()
	w.Close()
	return status, out.ended(), err
}

// readyNodes takes all nodes, which are configured, through the other stages.
func (s *Supervisor) readyNodes(ctx context.Context) error { return s.together(ctx, s.makeReady) }

// together does something to all nodes at once, since any may wait for any other. The
// first error ends the rest. Nodes that are given nothing do nothing that takes time.
func (s *Supervisor) together(ctx context.Context, do func(context.Context, *labNode, *life) error) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var busy sync.WaitGroup
	for _, n := range s.nodes {
		one := func() {
			if err := do(ctx, n, n.current()); err != nil {
				cancel(err) // the first cause is kept
			}
		}
		if n.spec.Setup.None() {
			one()
		} else {
			busy.Go(one)
		}
	}
	done := make(chan struct{})
	go func() {
		busy.Wait()
		close(done)
	}()
	s.tellUntil(done)
	return context.Cause(ctx)
}

// How long a start may take before it says whom it waits for, and how often it does.
const (
	firstNotice   = 3 * time.Second
	waitingPeriod = 10 * time.Second
)

// tellUntil says from time to time whom the lab waits for.
func (s *Supervisor) tellUntil(done <-chan struct{}) {
	next := time.NewTimer(firstNotice)
	defer next.Stop()
	for {
		select {
		case <-done:
			return
		case <-next.C:
			if text := s.waiting(); text != "" {
				s.Publish(Event{Kind: LabWaiting, Text: "waiting: " + text})
			}
			next.Reset(waitingPeriod)
		}
	}
}

// waiting is which nodes are not ready, and what they are at.
func (s *Supervisor) waiting() string {
	const most = 8
	var texts []string
	others := 0
	for _, n := range s.nodes {
		doing := n.current().progress.at()
		switch {
		case doing == "":
		case len(texts) == most:
			others++
		default:
			texts = append(texts, n.spec.Name+" "+doing)
		}
	}
	if others > 0 {
		texts = append(texts, fmt.Sprintf("and %d others", others))
	}
	return strings.Join(texts, ", ")
}

// readyAgain is makeReady of a node that was started again. The lab goes on without it if
// it fails, and says so.
func (s *Supervisor) readyAgain(n *labNode, l *life) {
	if n.spec.Setup.None() {
		_ = s.makeReady(context.Background(), n, l) // nothing that could fail
		return
	}
	ctx, cancel := context.WithCancel(context.Background())
	go func() {
		defer cancel()
		select {
		case <-l.down:
		case <-l.progress.settled:
		}
	}()
	go func() {
		if err := s.makeReady(ctx, n, l); err != nil && !isClosed(l.down) {
			s.Publish(Event{Kind: Warning, Node: n.spec.Name, Text: err.Error()})
		}
	}()
}

// settled waits until a node that was started is ready, and returns what went wrong.
func (n *labNode) settled(ctx context.Context) error {
	l := n.current()
	select {
	case <-l.progress.settled:
		return l.progress.err
	case <-ctx.Done():
		return fmt.Errorf("node %s is up, but not ready: %w", n.spec.Name, ctx.Err())
	}
}
