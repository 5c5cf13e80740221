package lab

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file waits for a lab to be in some state. The supervisor waits for states of what is
// in the lab, woken by events where these tell, else looking from time to time. The command
// itself waits for a lab to be there, or gone.

// Awaited tells how waiting for a condition ended.
type Awaited struct {
	Reached bool
	Failed  bool   // it is a workload that had errors
	Got     string // in what state it was found last, for people
}

// awaitPoll is the time between two looks whether a lab is there.
const awaitPoll = 20 * time.Millisecond

// lookTime bounds the time in which a lab answers, however short the time to wait is: a caller
// who does not want to wait wants to know all the same.
const lookTime = 5 * time.Second

// Await waits until a condition holds for a lab or, unless node is "", for that node
// of it; at most for timeout, unless that is 0, but it looks once at least. A lab that is
// to be ready need not be there yet.
func Await(ctx context.Context, name, node string, c Condition, timeout time.Duration) (*Awaited, error) {
	p, err := placeOf(name)
	if err != nil {
		return nil, err
	}
	waiting, looking := ctx, ctx
	if timeout > 0 {
		var end, cancel context.CancelFunc
		looking, end = context.WithTimeout(ctx, max(timeout, lookTime))
		defer end()
		waiting, cancel = context.WithTimeout(looking, timeout)
		defer cancel()
	}
	a := new(Awaited)
	inside := node != "" || c.State == ""
	switch {
	case c.State == Down && node == "":
		err = p.awaitDown(waiting, a)
	case c.State == Ready:
		err = p.awaitReady(looking, waiting, a, !inside)
	default:
		// One that is not there is not waited for: it is more likely a wrong name.
		var l *Lab
		if l, err = Open(looking, name); err == nil {
			_ = l.Close() // a client's close does no more than close
			err = p.awaitReady(looking, waiting, a, !inside)
		}
	}
	if err == nil && inside && a.Reached {
		err = p.awaitInside(ctx, waiting, node, c, a)
	}
	switch {
	case ctx.Err() != nil:
		return nil, ctx.Err()
	case errors.Is(err, context.DeadlineExceeded):
		a.Reached = false
		if a.Got == "" {
			a.Got = "no answer"
		}
		return a, nil
	case err != nil:
		return nil, err
	}
	return a, nil
}

// repeat calls look every awaitPoll until it says that it is done. Its error is also
// ctx's.
func repeat(ctx context.Context, look func() (done bool, err error)) error {
	tick := time.NewTicker(awaitPoll)
	defer tick.Stop()
	for {
		if done, err := look(); done || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return ctx.Err()
		}
	}
}

// awaitDown waits until nothing is left of a lab. Its lock tells, also of one that does
// not answer.
func (p place) awaitDown(ctx context.Context, a *Awaited) error {
	return repeat(ctx, func() (bool, error) {
		locked, err := p.lock(false)
		switch {
		case errors.Is(err, errLocked):
			a.Got = "up"
			return false, nil
		case err == nil:
			locked.Close() // of a lab that is dead, which the next command sweeps
		case !errors.Is(err, fs.ErrNotExist):
			return false, err
		}
		a.Reached, a.Got = true, Down
		return true, nil
	})
}

// awaitReady waits until a lab is there and has started or, with whole, until all of its
// nodes are ready now: after the start some may be down or paused.
func (p place) awaitReady(ctx, waiting context.Context, a *Awaited, whole bool) error {
	return repeat(waiting, func() (bool, error) {
		l, err := open(ctx, p, endTime)
		switch {
		case errors.Is(err, errNoLab):
			a.Got = "not up"
			return false, nil
		case err != nil:
			return false, err
		}
		_ = l.Close() // a client's close does no more than close
		a.Got = l.info.State
		if whole && l.info.State == Ready && l.info.Down+l.info.Paused > 0 {
			a.Got = fmt.Sprintf("of %d nodes %d are down and %d paused", l.info.Nodes, l.info.Down, l.info.Paused)
			return false, nil
		}
		a.Reached = l.info.State == Ready
		return a.Reached, nil
	})
}

// awaitInside has the supervisor wait. It is told how long, so that it can say what it
// saw last.
func (p place) awaitInside(ctx, waiting context.Context, node string, c Condition, a *Awaited) error {
	params := awaitParams{Node: node, Condition: c}
	if deadline, ok := waiting.Deadline(); ok {
		params.Timeout = max(time.Until(deadline), 1)
		var cancel context.CancelFunc
		ctx, cancel = context.WithTimeout(ctx, params.Timeout+lookTime)
		defer cancel()
	}
	l, err := open(ctx, p, endTime)
	if err != nil {
		return err
	}
	defer l.Close()
	*a = Awaited{}
	found, err := call(ctx, l.session, methodAwait, params)
	if err != nil {
		return err
	}
	*a = *found
	return nil
}

type awaitParams struct {
	Node      string // "" is the lab
	Condition Condition
	Timeout   time.Duration // 0: none
}

// await answers methodAwait.
func (s *Supervisor) await(ctx context.Context, _ *control.Request, params awaitParams) (*Awaited, error) {
	var late <-chan time.Time
	if params.Timeout > 0 {
		late = time.After(params.Timeout)
	}
	for {
		begin, next, changing := time.Now(), s.history.next(), s.standing().Applying
		a, err := s.lookFor(ctx, &params)
		changing = changing || s.standing().Applying
		if err != nil && changing { // what is made anew is not there for a while
			a, err = &Awaited{Got: err.Error()}, nil
		}
		if err != nil || a.Reached {
			return a, err
		}
		var again <-chan time.Time
		_, came, event := s.history.from(next)
		switch {
		case params.Condition.Counter != "" || a.Got == nodeMute || changing: // of which no event tells
			// However many nodes have to be asked, they spend a tenth of the time on that.
			again = time.After(max(counterPoll, 10*time.Since(begin)))
			event = nil
		case came > 0: // meanwhile
			continue
		}
		select {
		case <-event:
		case <-again:
		case <-late:
			return a, nil
		case <-ctx.Done():
			return nil, ctx.Err()
		}
	}
}

// counterPoll is the shortest time between two readings of counters that somebody waits for.
const counterPoll = 20 * time.Millisecond

// lookFor looks whether a condition holds.
func (s *Supervisor) lookFor(ctx context.Context, params *awaitParams) (*Awaited, error) {
	c := params.Condition
	switch {
	case c.Workload != "" && params.Node != "":
		return nil, control.Errorf(control.Usage, "workload=%s is of a lab, not of a node", c.Workload)
	case c.Workload != "":
		if s.topology().FindWorkload(c.Workload) == nil {
			return nil, control.Errorf(control.Usage, "lab %s has no workload %q", s.name, c.Workload)
		}
		return s.runs.lookAtWorkload(c.Workload), nil
	}
	var spec *topology.Node
	var err error
	s.look(func(l *core.Lab) { spec, err = l.Spec(params.Node) })
	switch {
	case c.Counter != "":
		nodes, pickErr := s.pick(params.Node)
		if pickErr != nil && err != nil {
			return nil, pickErr
		}
		if pickErr != nil { // it is down
			nodes = []*topology.Node{spec}
		}
		return lookAtCounter(c, s.inspectNodes(ctx, nodes))
	case err != nil:
		return nil, err
	}
	state := s.node(spec.Name).State
	if spec.Kind != topology.Switch {
		state = s.inspectNodes(ctx, []*topology.Node{spec})[0].State
	}
	return &Awaited{Reached: state == c.State, Got: state}, nil
}

// lookAtWorkload returns the state of a workload in the present run or, if none goes on, in the
// last.
func (a *runAPI) lookAtWorkload(name string) *Awaited {
	a.mu.Lock()
	r := a.running
	a.mu.Unlock()
	if r == nil {
		return &Awaited{Got: "no run has begun"}
	}
	if play := r.play.Load(); play != nil {
		if text, failed, over := play.Ended(name); over {
			return &Awaited{Reached: true, Failed: failed, Got: text}
		}
	}
	if isClosed(r.over) {
		return &Awaited{Got: "the last run was interrupted"}
	}
	return &Awaited{Got: "running"}
}

// lookAtCounter holds a counter, added up over nodes, against a bound.
func lookAtCounter(c Condition, nodes []report.Node) (*Awaited, error) {
	sum, found := report.Sum(nodes, c.Counter)
	known := report.CounterNames(nodes)
	switch {
	case len(known) == 0:
		return &Awaited{Got: "no node answers"}, nil
	case !found:
		return nil, control.Errorf(control.Usage, "there is no counter %q, but %s", c.Counter, strings.Join(known, ", "))
	}
	return &Awaited{Reached: c.holds(sum), Got: fmt.Sprintf("%s is %d", c.Counter, sum)}, nil
}
