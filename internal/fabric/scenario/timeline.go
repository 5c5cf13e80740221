package scenario

import (
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/internal/fabric/report/words"
	"github.com/ndklab/ndklab/topology"
)

// A timeline is the topology's events as they are played. Each entry follows from the
// clock, from a condition (condition.go), or from the end of another entry.
type timeline struct {
	shared
	workloads  *workloads
	conditions conditions

	busy int // events that are under way, or to come at a known time
	// queues are changes to links, under "", and to each node. The first of each is under
	// way, and the others follow one after the other.
	queues    map[string][]func()
	away      map[string]bool // nodes that are switched off or paused, by the timeline or, before the play, by somebody
	snapshots map[string][]report.Node
}

// An entry is an event, which may happen several times.
type entry struct {
	event     *topology.Event
	followers []*entry
	due       time.Duration // when it is to happen next, since the run began
	times     int           // how often it has happened
	got       string        // what its condition was found to be last
}

func newTimeline(s shared, w *workloads) *timeline {
	t := &timeline{shared: s, workloads: w, queues: map[string][]func(){}, away: map[string]bool{}}
	t.conditions = conditions{shared: s, workloads: w, met: func(e *entry) { t.schedule(e, s.loop.now()+e.event.At) }}
	for _, node := range s.stage.Away() {
		t.away[node] = true
	}
	w.busy = func() bool { return t.busy > 0 }
	w.changed = func(w *workloadRun) {
		t.conditions.check(nil)
		if w.state == ended {
			t.reportRest()
		}
	}
	return t
}

// open begins the timeline.
func (t *timeline) open() {
	byName := map[string]*entry{}
	entries := make([]*entry, len(t.topo.Timeline))
	for i := range entries {
		e := &entry{event: &t.topo.Timeline[i]}
		entries[i] = e
		if e.event.Name != "" {
			byName[e.event.Name] = e
		}
	}
	for _, e := range entries {
		switch before := byName[e.event.After]; {
		case e.event.After != "" && before != nil:
			before.followers = append(before.followers, e)
		case e.event.When != nil:
			t.conditions.waiting = append(t.conditions.waiting, e)
		default:
			t.schedule(e, e.event.At)
		}
	}
	t.conditions.check(nil)
	t.conditions.poll(pollInterval)
	t.reportRest()
	t.scheduleCounters()
}

// schedule has an event happen at an instant of the run.
func (t *timeline) schedule(e *entry, due time.Duration) {
	e.due = due
	t.busy++
	t.loop.after(due-t.loop.now(), func() {
		t.perform(e.event, func(err error) {
			t.busy--
			t.performed(e, err)
		})
	})
}

// performed goes on after an event. One that has failed is a problem of the run, and
// those behind it still happen.
func (t *timeline) performed(e *entry, err error) {
	if t.loop.interrupted {
		return
	}
	if err != nil {
		t.journal.problem("timeline at %s: %v%s", topology.FormatDuration(e.due.Round(time.Microsecond)), err, place(e.event))
	}
	e.times++
	if e.times < e.event.Repeat {
		t.schedule(e, max(e.due+e.event.Every, t.loop.now()))
		return
	}
	for _, f := range e.followers {
		t.schedule(f, t.loop.now()+f.event.At)
	}
}

// perform has an event happen. done is called when it has.
func (t *timeline) perform(e *topology.Event, done func(error)) {
	switch {
	case e.Workload != "":
		done(t.direct(e))
	case len(e.Command) > 0:
		t.execute(e, done)
	case e.Snapshot != "":
		t.snapshot(e.Snapshot, func() {
			t.journal.publish(event.Event{Kind: event.TimelineDone, Text: fmt.Sprintf("the counters are kept as snapshot %s", e.Snapshot)})
			done(nil)
		})
	case e.Mark != "":
		t.journal.publish(event.Event{Kind: event.Marked, Text: "mark: " + e.Mark})
		done(nil)
	default:
		t.change(e, done)
	}
}

// direct starts or stops a workload.
func (t *timeline) direct(e *topology.Event) error {
	w := t.workloads.byName[e.Workload]
	switch {
	case w == nil:
		return fmt.Errorf("there is no workload %s", e.Workload)
	case e.Stop:
		w.stopRound()
	case w.state == running:
		return fmt.Errorf("workload %s cannot start: it has not ended since it was started last", e.Workload)
	default:
		t.loop.stop(w.start)
		w.begin()
	}
	return nil
}

// execute runs an event's program.
func (t *timeline) execute(e *topology.Event, done func(error)) {
	what := fmt.Sprintf("`%s` in node %s", words.CommandLine(e.Command), e.Node)
	c := Command{Args: e.Command, Env: t.programs.environment(e.Node, t.topo.Hosts()), Timeout: e.Timeout}
	t.programs.run(e.Node, c, func(exit Exit, err error) {
		if err == nil {
			err = exit.problem(e.Timeout)
		}
		if err != nil {
			done(fmt.Errorf("%s: %w", what, err))
			return
		}
		t.journal.publish(event.Event{Kind: event.TimelineDone, Node: e.Node, Text: what + " has ended with status 0"})
		done(nil)
	})
}

// change has the stage change links or a node, when the changes before it are done.
func (t *timeline) change(e *topology.Event, done func(error)) {
	key := e.Node
	begin := func() {
		callback := t.loop.awaited()
		t.stage.Change(e, func(err error) {
			callback(func() {
				left := t.queues[key][1:]
				t.queues[key] = left
				if err == nil && e.NodeAction != "" {
					t.away[e.Node] = slices.Contains([]topology.NodeAction{topology.StopNode, topology.KillNode, topology.PauseNode}, e.NodeAction)
				}
				if err != nil && e.NodeAction != "" {
					err = fmt.Errorf("%s: %w", describeAction(e), err)
				}
				done(err)
				if len(left) > 0 && !t.loop.interrupted {
					left[0]()
				}
			})
		})
	}
	t.queues[key] = append(t.queues[key], begin)
	if len(t.queues[key]) == 1 {
		begin()
	}
}

// askCounters asks for the counters of all nodes. answer is called with the loop's lock
// held.
func (t *timeline) askCounters(answer func([]report.Node)) {
	callback := t.loop.awaited()
	t.stage.Nodes(nil, func(nodes []report.Node) {
		callback(func() {
			for i := range nodes {
				nodes[i].PID = 0 // it says nothing any more when the report is read
			}
			answer(nodes)
		})
	})
}

// snapshot keeps the counters of all nodes under a name.
func (t *timeline) snapshot(name string, done func()) {
	t.askCounters(func(nodes []report.Node) {
		if t.snapshots == nil {
			t.snapshots = map[string][]report.Node{}
		}
		t.snapshots[name] = nodes
		done()
	})
}

// scheduleCounters has the counters kept that checks look at, at their times.
func (t *timeline) scheduleCounters() {
	seen := map[time.Duration]bool{}
	for i := range t.topo.Checks {
		c := &t.topo.Checks[i]
		if c.Counter == "" || c.Snapshot != "" || c.At == 0 || seen[c.At] {
			continue
		}
		seen[c.At] = true
		t.loop.after(c.At, func() { t.snapshot(snapshotAt(c.At), func() {}) })
	}
}

// snapshotAt returns the name of the counters that are kept for checks at an instant.
func snapshotAt(at time.Duration) string { return "at " + topology.FormatDuration(at) }

// reportRest publishes, when the last workload has ended, that there is more to come.
func (t *timeline) reportRest() {
	last := time.Duration(0)
	for _, w := range t.workloads.all {
		if w.state == running || w.state == scheduled {
			return
		}
	}
	for i := range t.topo.Timeline {
		if e := &t.topo.Timeline[i]; e.When == nil && e.After == "" {
			last = max(last, e.At+time.Duration(max(e.Repeat, 1)-1)*e.Every)
		}
	}
	if last-t.loop.now() > t.loop.ofMachine(progressInterval) {
		t.journal.publish(event.Event{Kind: event.TimelineLeft, Text: fmt.Sprintf("no workload is left: the timeline goes on until %s", topology.FormatDuration(last))})
	}
}

// reportMissing makes problems of events that should have happened and workloads that
// should have started.
func (t *timeline) reportMissing() {
	for _, e := range t.conditions.waiting {
		if e.event.When.State == topology.WorkloadFailed {
			continue // which is better so
		}
		t.journal.problem("timeline: %s has not happened: it was to wait for %s; in the end %s%s", describe(t.topo, e.event), describeTrigger(e.event.When), e.got, place(e.event))
	}
	for _, w := range t.workloads.all {
		if w.state == unstarted {
			t.journal.problem("workload %s has not run: no event of the timeline has started it", w.spec.Name)
		}
	}
}

// place returns where the file has an event, to stand behind what is wrong with it.
func place(e *topology.Event) string {
	if e.Place.Line == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", e.Place)
}

// describeAction returns what an event does to a node, for people.
func describeAction(e *topology.Event) string {
	return fmt.Sprintf("%s of node %s", e.NodeAction, e.Node)
}

// describe returns what an event does, for people.
func describe(t *topology.Topology, e *topology.Event) string {
	link := func() string { return t.Links[e.Link].Endpoints[0].String() }
	var text string
	switch {
	case e.Workload != "" && e.Stop:
		text = "stopping workload " + e.Workload
	case e.Workload != "":
		text = "starting workload " + e.Workload
	case len(e.Command) > 0:
		text = fmt.Sprintf("`%s` in node %s", words.CommandLine(e.Command), e.Node)
	case e.Snapshot != "":
		text = "snapshot " + e.Snapshot
	case e.Mark != "":
		text = fmt.Sprintf("mark %q", e.Mark)
	case e.NodeAction != "":
		text = describeAction(e)
	case e.Storm != nil:
		text = fmt.Sprintf("storm of pauses of priority %d by node %s, for %s", e.Storm.Priority, e.Node, topology.FormatDuration(e.Storm.For))
	case len(e.Partition) > 0:
		var sets []string
		for _, set := range e.Partition {
			sets = append(sets, strings.Join(set, ","))
		}
		text = "partition " + strings.Join(sets, " ")
	case e.Heal:
		text = "heal"
	case e.Down:
		text = "link " + link() + " down"
	case e.Up:
		text = "link " + link() + " up"
	case e.Reset:
		text = "reset of link " + link()
	default:
		text = fmt.Sprintf("link %s: %s", link(), e.Set)
	}
	if e.Name != "" {
		return fmt.Sprintf("event %s (%s)", e.Name, text)
	}
	return text
}
