package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// This file is the conditions that events wait for. That a workload has started or ended
// the play knows at once. Counters and what clients have completed it has to ask for.

// pollInterval is how often that is asked for which an event waits, at most.
const pollInterval = 20 * time.Millisecond

// changed is called when the state of a workload has.
func (w *work) changed() {
	w.checkWaiting(nil)
	if w.state == ended {
		w.tellLeft()
	}
}

// checkWaiting has the events begin whose conditions hold. nodes are those that were
// asked for their counters, if any were.
func (p *Play) checkWaiting(nodes []report.Node) {
	t := &p.timeline
	for again := true; again; { // one that starts a workload may be what another waits for
		again = false
		for i, e := range t.waiting {
			if !p.holds(e, nodes) {
				continue
			}
			t.waiting = slices.Delete(slices.Clone(t.waiting), i, i+1)
			t.looked = false
			p.cue(e, p.now()+e.event.At)
			again = true
			break
		}
	}
}

// holds reports whether the condition of an entry does.
func (p *Play) holds(e *entry, nodes []report.Node) bool {
	c := e.event.When
	if c.Counter != "" {
		sum, found := report.Sum(only(nodes, c.Node), c.Counter)
		switch {
		case found:
			e.got = fmt.Sprintf("it was %d", sum)
		case e.got == "":
			e.got = "no node had told"
		}
		return found && c.Bound.Holds(float64(sum))
	}
	w := p.byName[c.Workload]
	if w == nil {
		e.got = "there was no such workload"
		return false
	}
	messages, _, failed := w.soFar()
	e.got = []string{resting: "it had not started", due: "it had not started", running: "it was running", ended: "it was done"}[w.state]
	switch c.State {
	case topology.WorkloadStarted:
		return w.rounds > 0
	case topology.WorkloadDone:
		return w.state == ended
	case topology.WorkloadFailed:
		return failed
	}
	e.got = fmt.Sprintf("it had completed %d", messages)
	return w.rounds > 0 && c.Bound.Holds(float64(messages))
}

// poll asks from time to time for what events wait for, as long as there are such.
func (p *Play) poll() { p.pollIn(pollInterval) }

func (p *Play) pollIn(d time.Duration) {
	if p.timeline.polling || !slices.ContainsFunc(p.timeline.waiting, (*entry).asks) {
		return
	}
	p.timeline.polling = true
	p.aside(d, func() {
		began := p.clock.Now()
		p.look(func() {
			p.timeline.polling = false
			// However many nodes have to be asked, they spend a tenth of the time on that.
			p.pollIn(max(pollInterval, 10*(p.clock.Now()-began)))
		})
	})
}

// asks reports whether nodes have to be asked for the entry's condition.
func (e *entry) asks() bool {
	c := e.event.When
	return c.Counter != "" || c.State == "" || c.State == topology.WorkloadFailed
}

// look asks for what events wait for. done is called when it is known.
func (p *Play) look(done func()) {
	var names []string
	all, ask := false, false
	works := map[*work]bool{}
	for _, e := range p.timeline.waiting {
		switch c := e.event.When; {
		case c.Counter == "" && e.asks() && p.byName[c.Workload] != nil:
			works[p.byName[c.Workload]] = true
		case c.Counter == "":
		case c.Node == "":
			all, ask = true, true
		default:
			ask = true
			if !slices.Contains(names, c.Node) {
				names = append(names, c.Node)
			}
		}
	}
	if all {
		names = nil
	}
	left := 1
	var nodes []report.Node
	answered := func() {
		if left--; left > 0 || p.then == nil {
			return
		}
		p.checkWaiting(nodes)
		done()
	}
	if ask {
		left++
		p.stage.Nodes(names, func(n []report.Node) {
			p.enter(func() {
				nodes = n
				answered()
			})
		})
	}
	p.askProgress(works, answered)
}

// lookAgain looks for a last time whether a condition holds when nothing else goes on
// any more. It is false if it has done so and none does.
func (p *Play) lookAgain() bool {
	t := &p.timeline
	if t.looked || len(t.waiting) == 0 {
		return false
	}
	t.looked = true
	p.pending++
	p.look(func() { p.pending-- })
	return p.pending > 0
}

// trigger is what an event waits for, for people.
func trigger(c *topology.Trigger) string {
	switch {
	case c.State != "":
		return fmt.Sprintf("workload %s to be %s", c.Workload, c.State)
	case c.Counter == "":
		return fmt.Sprintf("workload %s to have completed %s messages", c.Workload, bound(c.Bound))
	case c.Node != "":
		return fmt.Sprintf("counter %s of node %s to be %s", c.Counter, c.Node, bound(c.Bound))
	}
	return fmt.Sprintf("counter %s of all nodes to be %s", c.Counter, bound(c.Bound))
}

// bound is a bound as its file has it.
func bound(b topology.Bound) string {
	if b.Text != "" {
		return b.Text
	}
	return b.Relation + " " + strconv.FormatFloat(b.Value, 'g', -1, 64)
}
