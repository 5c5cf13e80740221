// Package actions does to a lab what those ask for who watch it: a live.Change, which a command could do as well. It remembers how to
// undo what it has done. Package live decides which command that is, and what undoes it.
//
// Start reading at Do.
package actions

import (
	"context"
	"strings"
	"sync"
	"syscall"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/lab"
	"github.com/ndklab/ndklab/internal/fabric/live"
	"github.com/ndklab/ndklab/topology"
)

// mostUndone bounds the changes that can be undone.
const mostUndone = 256

// Done says what was done, as who asked for it is told.
type Done struct {
	Command string        `json:"command"` // that does the same
	Undo    []live.Change `json:"undo"`    // empty: nothing undoes it
	Text    string        `json:"text"`
}

// A target is a lab that is changed. *labTarget is one.
type target interface {
	name() string
	// stand returns how that stands which a change is about.
	stand(ctx context.Context, c *live.Change) (*live.Standing, error)
	// carry carries a change out, and says what came of it.
	carry(ctx context.Context, c *live.Change) (text string, err error)
}

// Actions are done to a lab one at a time. Methods may be called from any goroutine.
type Actions struct {
	target target

	mu        sync.Mutex // held while one is done; guards what follows
	undo      [][]live.Change
	partition [][]string // that is in force, as far as it came from here
}

// New returns the actions of a lab. Workloads that they start end with ctx.
func New(ctx context.Context, l *lab.Lab) *Actions {
	return &Actions{target: &labTarget{Lab: l, alive: ctx}}
}

// Do does a change, unless dry is set, and remembers what undoes it.
func (a *Actions) Do(ctx context.Context, c *live.Change, dry bool) (*Done, error) {
	if err := c.Check(); err != nil {
		return nil, err
	}
	d := &Done{Command: c.Command(a.target.name()), Undo: []live.Change{}}
	if dry {
		return d, nil
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	undo, text, err := a.carry(ctx, c)
	if err != nil {
		return nil, err
	}
	d.Text = text
	if undo != nil {
		d.Undo = undo
		a.undo = append(a.undo, undo)
		a.undo = a.undo[max(0, len(a.undo)-mostUndone):]
	}
	return d, nil
}

// carry has a change carried out, and returns what undoes it.
func (a *Actions) carry(ctx context.Context, c *live.Change) (undo []live.Change, text string, err error) {
	before, err := a.stand(ctx, c)
	if err != nil {
		return nil, "", err
	}
	if text, err = a.target.carry(ctx, c); err != nil {
		return nil, "", err
	}
	switch c.Act {
	case live.ActPartition:
		a.partition = c.Sets
	case live.ActUnpartition:
		a.partition = nil
	}
	after, err := a.stand(ctx, c)
	if err != nil {
		return nil, "", err
	}
	undo, err = c.Undo(before, after)
	return undo, text, err
}

func (a *Actions) stand(ctx context.Context, c *live.Change) (*live.Standing, error) {
	s, err := a.target.stand(ctx, c)
	if err == nil {
		s.Partition = a.partition
	}
	return s, err
}

// errNothing is that there is nothing to undo.
var errNothing = control.Errorf(control.Usage, "there is no change to undo")

// Undo undoes the last change that is not undone, unless dry is set. It is tried once, also if it fails.
func (a *Actions) Undo(ctx context.Context, dry bool) (*Done, error) {
	a.mu.Lock()
	defer a.mu.Unlock()
	if len(a.undo) == 0 {
		return nil, errNothing
	}
	last := a.undo[len(a.undo)-1]
	var commands []string
	for i := range last {
		commands = append(commands, last[i].Command(a.target.name()))
	}
	d := &Done{Command: strings.Join(commands, " && "), Undo: []live.Change{}}
	if dry {
		return d, nil
	}
	a.undo = a.undo[:len(a.undo)-1]
	for i := range last {
		_, text, err := a.carry(ctx, &last[i])
		if err != nil {
			return nil, err
		}
		d.Text = text
	}
	return d, nil
}

// A labTarget is a lab as who changes it has it.
type labTarget struct {
	*lab.Lab
	alive context.Context // of workloads that it starts
}

func (t *labTarget) name() string { return t.Info().Lab }

func (t *labTarget) stand(ctx context.Context, c *live.Change) (*live.Standing, error) {
	var s live.Standing
	switch {
	case c.IsOfLink():
		links, err := t.Links.Inspect(ctx, c.Endpoint)
		if err != nil {
			return nil, err
		}
		s.Link = &links[0]
	case c.IsOfNode():
		n, err := t.Node(ctx, c.Node)
		if err != nil {
			return nil, err
		}
		s.Node = n.State
	}
	return &s, nil
}

func (t *labTarget) carry(ctx context.Context, c *live.Change) (text string, err error) {
	switch {
	case c.Act == live.ActSet:
		return t.set(ctx, c, c.Settings...)
	case c.Act == live.ActReset:
		return "link " + c.Endpoint + " is as the topology has it", t.Links.Reset(ctx, c.Endpoint, c.From)
	case c.Act == live.ActCut && c.From != "":
		return t.set(ctx, c, "cut=true")
	case c.Act == live.ActHeal && c.From != "":
		return t.set(ctx, c, "cut=none")
	case c.Act == live.ActCut:
		return "link " + c.Endpoint + " is down", t.Links.Down(ctx, c.Endpoint)
	case c.Act == live.ActHeal:
		return "link " + c.Endpoint + " is up", t.Links.Up(ctx, c.Endpoint)
	case c.Act == live.ActPartition:
		_, err := t.Links.Partition(ctx, c.Sets...)
		return "the lab is cut into parts", err
	case c.Act == live.ActUnpartition:
		_, err := t.Links.Heal(ctx)
		return "the lab is whole", err
	case c.Act == live.ActPerf:
		return t.measure(ctx, c)
	}
	var changed *lab.NodeChange
	if c.Act == live.ActKill {
		changed, err = t.Nodes.Kill(ctx, c.Node, syscall.SIGKILL)
	} else {
		changed, err = t.Nodes.Change(ctx, c.Node, lab.Action(c.Act))
	}
	if err != nil {
		return "", err
	}
	return "node " + c.Node + " is " + changed.InWords(), nil
}

func (t *labTarget) set(ctx context.Context, c *live.Change, settings ...string) (text string, err error) {
	change, err := topology.ParseChange(nil, settings)
	if err != nil {
		return "", control.Errorf(control.Usage, "%v", err)
	}
	of := "link " + c.Endpoint
	if c.From != "" {
		of += ", what " + c.From + " sends"
	}
	return of + ": " + change.String(), t.Links.Set(ctx, c.Endpoint, c.From, change)
}

// measure starts a workload, and returns when it has begun, or why it has not. The lab's events say what comes of it, failures too. It is a
// client of the lab for itself: another watches the lab's events.
func (t *labTarget) measure(ctx context.Context, c *live.Change) (text string, err error) {
	_, settings, err := c.Perf()
	if err != nil {
		return "", err
	}
	l, err := lab.Open(ctx, t.name())
	if err != nil {
		return "", err
	}
	began, ended := make(chan struct{}, 1), make(chan error, 1)
	standing, err := l.Standing(ctx)
	var w topology.Workload
	if err == nil {
		if w, err = standing.Topology.ParseWorkload(settings); err != nil {
			err = control.Errorf(control.Usage, "%v", err)
		}
	}
	if err == nil {
		err = l.Watch(ctx, func(e event.Event) {
			if e.Kind == event.WorkloadStarted && e.Workload == w.Name {
				select {
				case began <- struct{}{}:
				default: // and again: a round of several
				}
			}
		})
	}
	if err != nil {
		_ = l.Close() // a client's close does no more than close
		return "", err
	}
	go func() {
		_, err := l.RunWorkloads(t.alive, w)
		_ = l.Close() // a client's close does no more than close
		ended <- err
	}()
	select {
	case <-began:
	case err := <-ended:
		if err != nil {
			return "", err
		}
	}
	return "workload " + w.Name + " from " + c.Node + " to " + c.To + " has begun", nil
}
