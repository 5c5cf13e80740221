package scenario

import (
	"fmt"
	"slices"
	"strconv"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/topology"
)

// conditions are those that events of the timeline wait for. The play knows at once that a
// workload has started or ended. It asks for counters and for what clients have completed.
type conditions struct {
	shared
	workloads *workloads
	met       func(*entry) // called when an entry's condition holds
	waiting   []*entry
	looked    bool // at all of these since nothing has gone on
	polling   bool // for these
}

// pollInterval is the shortest time between two questions.
const pollInterval = 20 * time.Millisecond

// check begins the events whose conditions hold. nodes are those that were asked for their
// counters, if any were.
func (c *conditions) check(nodes []report.Node) {
	for again := true; again; { // one that starts a workload may be what another waits for
		again = false
		for i, e := range c.waiting {
			if !c.holds(e, nodes) {
				continue
			}
			c.waiting = slices.Delete(slices.Clone(c.waiting), i, i+1)
			c.looked = false
			c.met(e)
			again = true
			break
		}
	}
}

// holds reports whether the condition of an entry does.
func (c *conditions) holds(e *entry, nodes []report.Node) bool {
	when := e.event.When
	if when.Counter != "" {
		sum, found := report.Sum(only(nodes, when.Node), when.Counter)
		switch {
		case found:
			e.got = fmt.Sprintf("it was %d", sum)
		case e.got == "":
			e.got = "no node had told"
		}
		return found && when.Bound.Holds(float64(sum))
	}
	w := c.workloads.byName[when.Workload]
	if w == nil {
		e.got = "there was no such workload"
		return false
	}
	messages, _, failed := w.soFar()
	e.got = []string{unstarted: "it had not started", scheduled: "it had not started", running: "it was running", ended: "it was done"}[w.state]
	switch when.State {
	case topology.WorkloadStarted:
		return w.rounds > 0
	case topology.WorkloadDone:
		return w.state == ended
	case topology.WorkloadFailed:
		return failed
	}
	e.got = fmt.Sprintf("it had completed %d", messages)
	return w.rounds > 0 && when.Bound.Holds(float64(messages))
}

// poll asks from time to time for what events wait for, as long as there are such.
func (c *conditions) poll(d time.Duration) {
	if c.polling || !slices.ContainsFunc(c.waiting, (*entry).asks) {
		return
	}
	c.polling = true
	c.loop.background(d, func() {
		began := c.loop.clock.Now()
		c.look(func() {
			c.polling = false
			// However many nodes have to be asked, they spend a tenth of the time on that.
			c.poll(max(pollInterval, 10*(c.loop.clock.Now()-began)))
		})
	})
}

// asks reports whether nodes have to be asked for the entry's condition.
func (e *entry) asks() bool {
	c := e.event.When
	return c.Counter != "" || c.State == "" || c.State == topology.WorkloadFailed
}

// look asks for what events wait for. done is called when it is known.
func (c *conditions) look(done func()) {
	var names []string
	all, ask := false, false
	works := map[*workloadRun]bool{}
	for _, e := range c.waiting {
		switch when := e.event.When; {
		case when.Counter == "" && e.asks() && c.workloads.byName[when.Workload] != nil:
			works[c.workloads.byName[when.Workload]] = true
		case when.Counter == "":
		case when.Node == "":
			all, ask = true, true
		default:
			ask = true
			if !slices.Contains(names, when.Node) {
				names = append(names, when.Node)
			}
		}
	}
	if all {
		names = nil
	}
	left := 1
	var nodes []report.Node
	answered := func() {
		if left--; left > 0 || c.loop.next == nil {
			return
		}
		c.check(nodes)
		done()
	}
	if ask {
		left++
		c.stage.Nodes(names, func(n []report.Node) {
			c.loop.enter(func() {
				nodes = n
				answered()
			})
		})
	}
	c.workloads.askProgress(works, answered)
}

// lookAgain looks for a last time whether a condition holds when nothing else goes on. It
// is false if it has done so and none does.
func (c *conditions) lookAgain() bool {
	if c.looked || len(c.waiting) == 0 {
		return false
	}
	c.looked = true
	c.loop.pending++
	c.look(func() { c.loop.pending-- })
	return c.loop.pending > 0
}

// describeTrigger returns what an event waits for, for people.
func describeTrigger(c *topology.Trigger) string {
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

// bound returns a bound as its file has it.
func bound(b topology.Bound) string {
	if b.Text != "" {
		return b.Text
	}
	return b.Relation + " " + strconv.FormatFloat(b.Value, 'g', -1, 64)
}
