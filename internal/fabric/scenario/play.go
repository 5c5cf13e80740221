package scenario

import (
	"errors"
	"fmt"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// ErrInterrupted ends a play that was interrupted.
var ErrInterrupted = errors.New("the run was interrupted")

// A Play is one pass through a topology's scenario on a stage. Its methods may be called
// from any goroutine, but not from within a method of the stage.
//
// It is a sequence of phases: begin to serve, play, take the servers down, look at nodes
// and links (inspect.go), and judge. Its loop counts what a phase waits for, and begins
// the next one when there is nothing. The timeline and the workloads own their state.
type Play struct {
	shared
	workloads *workloads
	timeline  *timeline

	result  *report.Run
	left    map[string]provider.Usage // what is left over, by node; nil if nobody asks
	exits   programExits
	unwatch func()
	done    func(*report.Run, error)
}

// shared holds what every part of a play uses. The loop's lock guards all parts.
type shared struct {
	stage    Stage
	topo     *topology.Topology
	loop     *loop
	journal  *journal
	programs *programs
}

// Begin begins to play a topology's scenario, with its seed, on a stage. It calls done
// once, later, with the report. Started, Host and WallSeconds are left to the caller.
// After Interrupt the error is ErrInterrupted, and the report has what was there so far
// and has not passed.
func Begin(stage Stage, topo *topology.Topology, done func(*report.Run, error)) *Play {
	topo = topo.Draw(topo.Seed)
	l := &loop{clock: stage.Clock()}
	j := &journal{stage: stage, loop: l}
	s := shared{stage: stage, topo: topo, loop: l, journal: j, programs: &programs{stage: stage, topo: topo, loop: l, running: map[*program]bool{}}}
	p := &Play{
		shared: s, done: done, exits: programExits{},
		result: &report.Run{Lab: topo.Name, Seed: topo.Seed, Checks: []report.Check{}, Links: []report.Link{}, Nodes: []report.Node{}},
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	p.unwatch = stage.Watch(func(e event.Event) { l.enter(func() { p.observe(e) }) })
	p.workloads = newWorkloads(s)
	p.timeline = newTimeline(s, p.workloads)
	l.next = p.open
	p.workloads.serve()
	l.clock.Go(l.expect(func() {})) // so that there is something to wait for
	return p
}

// InVirtualTime tells the play, right after Begin, that the stage is a simulation. Then
// nothing is forgiven that only a busy machine excuses.
func (p *Play) InVirtualTime() {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	p.result.Simulated = true
}

// goodOrder bounds the time, by the machine, that clients of an interrupted play take to end in good order.
const goodOrder = time.Second

// Interrupt ends a play early. done is called soon, with what was measured until then.
func (p *Play) Interrupt() {
	p.loop.enter(func() {
		if p.loop.interrupted || p.loop.next == nil {
			return
		}
		p.loop.stopAll()
		p.loop.background(p.loop.ofMachine(goodOrder), p.workloads.abort)
		p.loop.interrupted = true // from now on no other timer starts
		p.workloads.stop()
		p.programs.cancel()
		p.result.Interrupted, p.result.Seconds = true, p.loop.now().Seconds()
		p.loop.next = p.takeDown
	})
}

// Ended returns how a workload ended last, in words, and whether it has had an error. over
// is false while it has not ended.
func (p *Play) Ended(name string) (text string, failed, over bool) {
	p.loop.mu.Lock()
	defer p.loop.mu.Unlock()
	w := p.workloads.byName[name]
	if w == nil || w.state != ended {
		return "", false, false
	}
	return w.lastOutcome, w.totals.errors > 0, true
}

// observe takes what happens in the lab.
func (p *Play) observe(e event.Event) {
	if p.loop.next == nil {
		return
	}
	p.journal.record(e)
	switch e.Kind {
	case event.NodeDown:
		p.workloads.nodeDown(e.Node)
	case event.NodeUp:
		p.workloads.nodeUp(e.Node)
	}
}

// open begins the scenario: every server that can be there is.
func (p *Play) open() {
	p.loop.start()
	p.loop.next = p.idle
	p.workloads.scheduleStarts()
	p.timeline.open()
	p.workloads.reportProgress()
}

// idle ends the scenario when nothing goes on or is to come, unless one of the conditions
// that events wait for has come true.
func (p *Play) idle() {
	if p.timeline.conditions.lookAgain() {
		return
	}
	p.result.Seconds = p.loop.now().Seconds()
	p.timeline.reportMissing()
	p.takeDown()
}

// takeDown ends the servers that are left. Measurements from then on show what remains of a
// lab that rests.
func (p *Play) takeDown() {
	p.loop.stopAll()
	p.loop.next = p.awaitRelease
	p.workloads.dismiss()
}

// conclude reports what is wrong with nodes and links, judges, and ends the play.
func (p *Play) conclude() {
	p.reportAway()
	p.reportOverruns()
	if text := spurious(p.topo, p.result); text != "" {
		p.journal.problem("%s", text)
	}
	p.loop.next = nil
	p.unwatch()
	r := p.result
	r.Workloads, r.Snapshots = p.workloads.report(), p.timeline.snapshots
	var err error
	if p.loop.interrupted {
		err = ErrInterrupted
		p.journal.problem("%v", err)
	} else {
		r.Checks = judge(p.topo, r, p.exits)
	}
	r.Events, r.Problems = p.journal.events, p.journal.problems
	r.Passed = passed(p.topo, r)
	p.loop.finish = func() { p.done(r, err) }
}

// reportAway makes problems of nodes that are not ready at the end though nobody has
// switched them off.
func (p *Play) reportAway() {
	for i := range p.result.Nodes {
		n := &p.result.Nodes[i]
		if used, ok := p.left[n.Name]; ok {
			n.InUse = &used
		}
		if n.State != core.NodeIsReady && !p.timeline.away[n.Name] {
			p.journal.problem("node %s is %s", n.Name, n.InWords())
		}
	}
}

// reportOverruns makes problems of links that left their tolerance, which the file does
// not allow.
func (p *Play) reportOverruns() {
	for i := range p.result.Links {
		l := &p.result.Links[i]
		for d := range l.Directions {
			for _, o := range l.Directions[d].Overruns {
				if !o.Allowed {
					text := fmt.Sprintf("overrun of link %s to %s: %s: tolerated %s, got %s", l.Endpoints[d], l.Endpoints[1-d], o.Figure, o.Tolerated, o.Got)
					p.journal.problem("%s: %s: %s", text, o.Reason, o.Remedy)
					p.journal.publish(event.Event{Kind: event.LinkOverrun, Link: l.Endpoints[d], Text: text})
				}
			}
		}
	}
}
