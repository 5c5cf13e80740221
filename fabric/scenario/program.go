package scenario

import (
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/ndklab/ndklab/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// A program runs in a node: of a workload, of the timeline, or of a check.
type program struct {
	node    string
	cancel  func()
	stopped bool // the timeline has stopped it: how it ends does not matter
}

// exec runs a program in a node. done is called when it has ended, with an error if it
// could not be run.
func (p *Play) exec(node string, c Command, done func(Exit, error)) *program {
	n := &program{node: node, cancel: func() {}}
	if p.interrupted {
		p.clock.Go(p.expect(func() { done(Exit{}, ErrInterrupted) }))
		return n
	}
	p.running[n] = true
	callback := p.awaited()
	n.cancel = p.stage.Exec(node, c, func(e Exit, err error) {
		callback(func() {
			delete(p.running, n)
			done(e, err)
		})
	})
	return n
}

// problem is why a program that was to succeed has not, nil if it has.
func (e *Exit) problem(timeout time.Duration) error {
	switch {
	case e.TimedOut:
		return fmt.Errorf("it did not end within %s%s", topology.FormatDuration(timeout), lastLine(e))
	case e.Status != 0:
		return fmt.Errorf("exit status %d%s", e.Status, lastLine(e))
	}
	return nil
}

// lastLine is the end of what a program has said, to stand behind how it ended.
func lastLine(e *Exit) string {
	for _, text := range []string{e.Errors, e.Output} {
		text = strings.TrimSpace(text)
		if line := strings.TrimSpace(text[strings.LastIndexByte(text, '\n')+1:]); line != "" {
			return ": " + line
		}
	}
	return ""
}

// exits is how the programs of a workload have ended.
type exits struct {
	programs []*program // of this round
	ended    int
	failed   int
	status   int    // the first that is not 0
	known    bool   // one has ended, so that there is a status
	output   string // the last of what they printed
}

// runPrograms starts the workload's program in each of its nodes.
func (w *work) runPrograms() {
	w.under = len(w.spec.Nodes)
	w.exits.programs = nil
	began := w.now()
	for _, node := range w.spec.Nodes {
		var n *program
		c := Command{Args: w.spec.Command, Env: w.environment(node), Timeout: w.spec.Timeout}
		n = w.exec(node, c, func(e Exit, err error) {
			w.tally.longest = max(w.tally.longest, (w.now() - began).Seconds())
			w.exited(n, &e, err)
			w.over()
		})
		w.exits.programs = append(w.exits.programs, n)
	}
}

// exited takes how a program of the workload has ended.
func (w *work) exited(n *program, e *Exit, err error) {
	x := &w.exits
	x.ended++
	if err == nil {
		if !x.known || x.status == 0 && !n.stopped {
			x.status, x.known = e.Status, true
		}
		if e.Output != "" {
			x.output = e.Output
		} else if e.Errors != "" {
			x.output = e.Errors
		}
		err = e.problem(w.spec.Timeout)
	}
	if err == nil || n.stopped || errors.Is(err, ErrInterrupted) {
		return
	}
	x.failed++
	w.tally.errors++
	w.tally.note(fmt.Sprintf("node %s: %v", n.node, err))
}

func (w *work) stopPrograms() {
	for _, n := range w.exits.programs {
		if w.Play.running[n] {
			n.stopped = true
			n.cancel()
		}
	}
}

func (x *exits) result(r *report.Workload) {
	if x.known {
		status := x.status
		r.ExitStatus, r.Output = &status, x.output
	}
}
