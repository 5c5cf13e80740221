package scenario

import (
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// ErrInterrupted ends a play that was interrupted.
var ErrInterrupted = errors.New("the run was interrupted")

// A Play is one pass through a topology's scenario on a stage. Its methods may be called
// from any goroutine, but not from within a method of the stage.
//
// It is a state machine whose inputs are the stage's callbacks and the clock's timers. It
// counts those that it waits for, and when there are none it goes on to what comes next:
// from serving to playing, from playing to taking the servers down, to looking at nodes
// and links, and to the verdict.
type Play struct {
	stage Stage
	clock clock.Clock
	topo  *topology.Topology
	done  func(*report.Run, error)

	mu      sync.Mutex // guards what follows; held while the stage's methods are called
	pending int        // callbacks and timers that are waited for
	then    func()     // what comes when there are none
	finish  func()     // to be called when mu is released; nil most of the time

	zero        time.Duration // the instant of the clock from which the scenario's times count
	begun       bool          // zero is set
	interrupted bool
	timers      timers
	unwatch     func()

	works    []*work
	byName   map[string]*work
	timeline timeline
	running  map[*program]bool // programs
	asking   map[string]bool   // nodes that have still to say how far their clients are
	problems []string
	meant    map[string]bool // nodes that are stopped, killed or paused, by the timeline or, before the play, by somebody
	result   *report.Run
	left     map[string]provider.Usage // what is left over, by node; nil if nobody asks
	evidence evidence
}

// Begin begins to play a topology's scenario, with its seed, on a stage. It calls done once, later, with the report, in which Started, Host and
// WallSeconds are left to the caller. The error is ErrInterrupted; the report has then
// what was there so far, and has not passed.
func Begin(stage Stage, topo *topology.Topology, done func(*report.Run, error)) *Play {
	p := &Play{
		stage: stage, clock: stage.Clock(), topo: topo.Draw(topo.Seed), done: done,
		byName: map[string]*work{}, asking: map[string]bool{}, meant: map[string]bool{}, evidence: evidence{},
		running: map[*program]bool{},
		result:  &report.Run{Lab: topo.Name, Seed: topo.Seed, Checks: []report.Check{}, Links: []report.Link{}, Nodes: []report.Node{}},
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	p.unwatch = stage.Watch(func(e event.Event) { p.enter(func() { p.observe(e) }) })
	for _, node := range stage.Away() {
		p.meant[node] = true
	}
	p.makeWorks()
	p.then = p.open
	for _, w := range p.works {
		if !w.spec.Manual {
			w.serveAll()
		}
	}
	p.clock.Go(p.expect(func() {})) // so that there is something to wait for
	return p
}

// InVirtualTime says that the stage is a simulation, right after Begin: then nothing is
// forgiven that only a busy machine excuses.
func (p *Play) InVirtualTime() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.result.Simulated = true
}

// goodOrder bounds the time that clients of an interrupted play take to end in good order.
const goodOrder = time.Second

// Interrupt ends a play early. done is called soon, with what was measured until then.
func (p *Play) Interrupt() {
	p.enter(func() {
		if p.interrupted || p.then == nil {
			return
		}
		p.stopAll()
		p.aside(goodOrder, func() {
			for _, w := range p.works {
				w.abort(ErrInterrupted.Error())
			}
		})
		p.interrupted = true // from when on no other timer is begun
		for _, w := range p.works {
			w.stopClients()
		}
		for program := range p.running {
			program.cancel()
		}
		p.result.Interrupted, p.result.Seconds = true, p.now().Seconds()
		p.then = p.takeDown
	})
}

// Ended says how a workload has ended last, in words, and whether it has had an error. over
// is false while it has not ended.
func (p *Play) Ended(name string) (text string, failed, over bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	w := p.byName[name]
	if w == nil || w.state != ended {
		return "", false, false
	}
	return w.said, w.tally.errors > 0, true
}

// enter is how everything gets in that happens outside: callbacks and timers.
func (p *Play) enter(f func()) {
	p.mu.Lock()
	f()
	for p.pending == 0 && p.then != nil {
		next := p.then
		next()
	}
	finish := p.finish
	p.finish = nil
	p.mu.Unlock()
	if finish != nil {
		finish()
	}
}

// expect makes a callback that is waited for. f is called with p.mu held.
func (p *Play) expect(f func()) func() {
	callback := p.awaited()
	return func() { callback(f) }
}

// awaited is like expect, for callbacks whose parameters f is to know.
func (p *Play) awaited() func(f func()) {
	p.pending++
	return func(f func()) {
		p.enter(func() {
			p.pending--
			f()
		})
	}
}

// now is how long the scenario has been going on.
func (p *Play) now() time.Duration {
	if !p.begun {
		return 0
	}
	return p.clock.Now() - p.zero
}

// open begins the scenario: every server that can be there is.
func (p *Play) open() {
	p.zero, p.begun = p.clock.Now(), true
	p.then = p.lull
	for _, w := range p.works {
		w.schedule()
	}
	p.openTimeline()
	p.scheduleCounters()
	p.reportProgress()
}

// lull is reached when nothing goes on or is to come, unless one of the conditions that
// events wait for has come true.
func (p *Play) lull() {
	if p.lookAgain() {
		return
	}
	p.result.Seconds = p.now().Seconds()
	p.tellUnmet()
	p.takeDown()
}

// takeDown ends what servers are left. What is measured from then on is what remains of a
// lab that rests.
func (p *Play) takeDown() {
	p.stopAll()
	p.then = p.rest
	for _, w := range p.works {
		w.dismissAll()
	}
}

func (p *Play) problem(format string, args ...any) {
	p.problems = append(p.problems, fmt.Sprintf(format, args...))
}

// publish tells of what the scenario does, and keeps it for the report.
func (p *Play) publish(e event.Event) {
	e.At = p.clock.Now()
	p.stage.Publish(e)
	if e.Kind != event.WorkloadProgress {
		p.happened(e)
	}
}

// happened keeps what has happened for the report.
func (p *Play) happened(e event.Event) {
	at := time.Duration(0)
	if p.begun {
		at = max(0, e.At-p.zero)
	}
	if len(p.result.Events) >= mostEvents {
		return
	}
	p.result.Events = append(p.result.Events, e.InReport(at))
}

// mostEvents bounds a report.
const mostEvents = 10000

// observe takes what happens in the lab.
func (p *Play) observe(e event.Event) {
	if p.then == nil {
		return
	}
	p.happened(e)
	for _, w := range p.works {
		switch e.Kind {
		case event.NodeDown:
			w.nodeDown(e.Node)
		case event.NodeUp:
			w.nodeUp(e.Node)
		}
	}
}
