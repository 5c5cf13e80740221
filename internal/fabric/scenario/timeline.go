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

// A timeline is the topology's events as they are played. Of each an entry follows from
// the clock, from a condition (condition.go), or from the end of another entry.
type timeline struct {
	byName  map[string]*entry
	waiting []*entry // for their conditions
	looked  bool     // at all of these since nothing has gone on
	polling bool     // for these
	// busy is how many events are under way, or to come at a known time.
	busy int
	// turns are changes to links, under "", and to each node, which happen one after the
	// other. The first of each is under way.
	turns map[string][]func()
}

// An entry is an event, which may happen several times.
type entry struct {
	event     *topology.Event
	followers []*entry
	due       time.Duration // when it is to happen next, since the run began
	times     int           // how often it has happened
	got       string        // what its condition was found to be last
}

// openTimeline begins the timeline.
func (p *Play) openTimeline() {
	t := &p.timeline
	t.byName, t.turns = map[string]*entry{}, map[string][]func(){}
	entries := make([]*entry, len(p.topo.Timeline))
	for i := range entries {
		e := &entry{event: &p.topo.Timeline[i]}
		entries[i] = e
		if e.event.Name != "" {
			t.byName[e.event.Name] = e
		}
	}
	for _, e := range entries {
		switch before := t.byName[e.event.After]; {
		case e.event.After != "" && before != nil:
			before.followers = append(before.followers, e)
		case e.event.When != nil:
			t.waiting = append(t.waiting, e)
		default:
			p.cue(e, e.event.At)
		}
	}
	p.checkWaiting(nil)
	p.poll()
	p.tellLeft()
}

// cue has an event happen at an instant of the run.
func (p *Play) cue(e *entry, due time.Duration) {
	e.due = due
	p.timeline.busy++
	p.after(due-p.now(), func() {
		p.perform(e.event, func(err error) {
			p.timeline.busy--
			p.performed(e, err)
		})
	})
}

// performed goes on after an event. One that has failed is a problem of the run, and
// those behind it still happen.
func (p *Play) performed(e *entry, err error) {
	if p.interrupted {
		return
	}
	if err != nil {
		p.problem("timeline at %s: %v%s", topology.FormatDuration(e.due.Round(time.Microsecond)), err, place(e.event))
	}
	e.times++
	if e.times < e.event.Repeat {
		p.cue(e, max(e.due+e.event.Every, p.now()))
		return
	}
	for _, f := range e.followers {
		p.cue(f, p.now()+f.event.At)
	}
}

// perform has an event happen. done is called when it has.
func (p *Play) perform(e *topology.Event, done func(error)) {
	switch {
	case e.Workload != "":
		done(p.direct(e))
	case len(e.Command) > 0:
		p.exec(e.Node, Command{Args: e.Command, Env: p.environment(e.Node), Timeout: e.Timeout}, func(exit Exit, err error) {
			if err == nil {
				err = exit.problem(e.Timeout)
			}
			if err != nil {
				done(fmt.Errorf("`%s` in node %s: %w", words.CommandLine(e.Command), e.Node, err))
				return
			}
			p.publish(event.Event{Kind: event.TimelineDone, Node: e.Node, Text: fmt.Sprintf("`%s` in node %s has ended with status 0", words.CommandLine(e.Command), e.Node)})
			done(nil)
		})
	case e.Snapshot != "":
		p.snapshot(e.Snapshot, func() {
			p.publish(event.Event{Kind: event.TimelineDone, Text: fmt.Sprintf("the counters are kept as snapshot %s", e.Snapshot)})
			done(nil)
		})
	case e.Mark != "":
		p.publish(event.Event{Kind: event.Marked, Text: "mark: " + e.Mark})
		done(nil)
	default:
		p.change(e, done)
	}
}

// direct starts or stops a workload.
func (p *Play) direct(e *topology.Event) error {
	w := p.byName[e.Workload]
	switch {
	case w == nil:
		return fmt.Errorf("there is no workload %s", e.Workload)
	case e.Stop:
		w.stopRound()
	case w.state == running:
		return fmt.Errorf("workload %s cannot start: it has not ended since it was started last", e.Workload)
	default:
		p.stop(w.start)
		w.begin()
	}
	return nil
}

// change has the stage change links or a node, when it is that's turn.
func (p *Play) change(e *topology.Event, done func(error)) {
	t := &p.timeline
	key := e.Node
	begin := func() {
		callback := p.awaited()
		p.stage.Change(e, func(err error) {
			callback(func() {
				left := t.turns[key][1:]
				t.turns[key] = left
				if err == nil && e.NodeAction != "" {
					p.meant[e.Node] = slices.Contains([]topology.NodeAction{topology.StopNode, topology.KillNode, topology.PauseNode}, e.NodeAction)
				}
				if err != nil && e.NodeAction != "" {
					err = fmt.Errorf("%s: %w", nodeWords(e), err)
				}
				done(err)
				if len(left) > 0 && !p.interrupted {
					left[0]()
				}
			})
		})
	}
	t.turns[key] = append(t.turns[key], begin)
	if len(t.turns[key]) == 1 {
		begin()
	}
}

// snapshot keeps the counters of all nodes under a name.
func (p *Play) snapshot(name string, done func()) {
	callback := p.awaited()
	p.stage.Nodes(nil, func(nodes []report.Node) {
		callback(func() {
			if p.result.Snapshots == nil {
				p.result.Snapshots = map[string][]report.Node{}
			}
			for i := range nodes {
				nodes[i].PID = 0 // it says nothing any more when the report is read
			}
			p.result.Snapshots[name] = nodes
			done()
		})
	})
}

// scheduleCounters has the counters kept that checks look at, at their times.
func (p *Play) scheduleCounters() {
	seen := map[time.Duration]bool{}
	for i := range p.topo.Checks {
		c := &p.topo.Checks[i]
		if c.Counter == "" || c.Snapshot != "" || c.At == 0 || seen[c.At] {
			continue
		}
		seen[c.At] = true
		p.after(c.At, func() { p.snapshot(snapshotAt(c.At), func() {}) })
	}
}

// snapshotAt is the name of the counters that were taken for checks at an instant.
func snapshotAt(at time.Duration) string { return "at " + topology.FormatDuration(at) }

// tellLeft says, when the last workload has ended, that there is more to come.
func (p *Play) tellLeft() {
	last := time.Duration(0)
	for _, w := range p.works {
		if w.state == running || w.state == due {
			return
		}
	}
	for i := range p.topo.Timeline {
		if e := &p.topo.Timeline[i]; e.When == nil && e.After == "" {
			last = max(last, e.At+time.Duration(max(e.Repeat, 1)-1)*e.Every)
		}
	}
	if last-p.now() > progressInterval {
		p.publish(event.Event{Kind: event.TimelineLeft, Text: fmt.Sprintf("no workload is left: the timeline goes on until %s", topology.FormatDuration(last))})
	}
}

// tellUnmet makes problems of events that should have happened and workloads that should
// have started.
func (p *Play) tellUnmet() {
	for _, e := range p.timeline.waiting {
		if e.event.When.State == topology.WorkloadFailed {
			continue // which is better so
		}
		p.problem("timeline: %s has not happened: it was to wait for %s; in the end %s%s", p.words(e.event), trigger(e.event.When), e.got, place(e.event))
	}
	for _, w := range p.works {
		if w.state == resting {
			p.problem("workload %s has not run: no event of the timeline has started it", w.spec.Name)
		}
	}
}

// place is where the file has an event, to stand behind what is wrong with it.
func place(e *topology.Event) string {
	if e.Place.Line == 0 {
		return ""
	}
	return fmt.Sprintf(" (%s)", e.Place)
}

// nodeWords is what an event does to a node, for people.
func nodeWords(e *topology.Event) string { return fmt.Sprintf("%s of node %s", e.NodeAction, e.Node) }

// words is what an event does, for people.
func (p *Play) words(e *topology.Event) string {
	link := func() string { return p.topo.Links[e.Link].Endpoints[0].String() }
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
		text = nodeWords(e)
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
