package scenario

import (
	"errors"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/report"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/topology"
)

// This file has the phases of a play between its scenario and its verdict: they collect
// what checks look at.

// programExits are the ends of the programs of checks, by the check's index in the
// topology. No report has them.
type programExits map[int]programExit

// A programExit describes how the program of a check has ended.
type programExit struct {
	Exit
	err error // why it could not be run
}

// problem returns why a program of a check has not ended as the check expects, regardless
// of what it printed; nil if it has.
func (x *programExit) problem(c *topology.Check) error {
	switch {
	case x.err != nil:
		return x.err
	case !x.TimedOut && x.Status == c.Status:
		return nil
	case !x.TimedOut && x.Status == 0:
		return errors.New("exit status 0")
	}
	return x.Exit.problem(c.Timeout)
}

// The time, by the machine, that objects of programs that have ended may stay, and the time between two looks.
const (
	releaseTime  = 2 * time.Second
	releasePause = 20 * time.Millisecond
)

// checksLeft reports whether a check is about what is left over.
func (p *Play) checksLeft() bool {
	return slices.ContainsFunc(p.topo.Checks, func(c topology.Check) bool { return c.Left })
}

// awaitRelease waits until nothing is left over, if a check is about that. A node's agent
// notes the end of a program when it gets a processor; until then what the program had on
// the adapter seems to be left over. Objects that stay are left over.
func (p *Play) awaitRelease() {
	isProgram := func(w topology.Workload) bool { return w.Operation == topology.Program }
	p.loop.next = p.inspect
	if !p.loop.interrupted && p.checksLeft() && slices.ContainsFunc(p.topo.Workloads, isProgram) {
		p.lookForUse(p.loop.now() + p.loop.ofMachine(releaseTime))
	}
}

// lookForUse waits until no adapter has anything in use, at a time at the latest.
func (p *Play) lookForUse(latest time.Duration) {
	inUse := func(a report.NodeAdapter) bool {
		if a.Adapter == nil {
			return false
		}
		sum, _, _ := remains(&report.Node{InUse: &a.Adapter.InUse}, topology.Leftovers)
		return sum > 0
	}
	p.askAdapters(func(all []report.NodeAdapter) {
		if !p.loop.interrupted && p.loop.now() < latest && slices.ContainsFunc(all, inUse) {
			p.loop.clock.AfterFunc(p.loop.ofMachine(releasePause), p.loop.expect(func() { p.lookForUse(latest) }))
		}
	})
}

func (p *Play) askAdapters(answer func([]report.NodeAdapter)) {
	callback := p.loop.awaited()
	p.stage.Adapters(nil, func(all []report.NodeAdapter) { callback(func() { answer(all) }) })
}

// inspect asks for the state of the lab when it rests.
func (p *Play) inspect() {
	p.loop.next = func() { p.runCheck(0) }
	p.timeline.askCounters(func(all []report.Node) { p.result.Nodes = all })
	links := p.loop.awaited()
	p.stage.Links(func(all []report.Link, err error) {
		links(func() {
			p.result.Links = all
			if err != nil {
				p.journal.problem("%v", err)
			}
		})
	})
	buffers := p.loop.awaited()
	p.stage.Buffers(func(all []report.Buffer, deadlocks []report.Deadlock, series *report.Series) {
		buffers(func() { p.result.Buffers, p.result.Deadlocks, p.result.Series = all, deadlocks, series })
	})
	if p.loop.interrupted { // and nothing is judged
		p.loop.next = p.conclude
		return
	}
	if p.checksLeft() {
		p.askAdapters(func(all []report.NodeAdapter) {
			p.left = map[string]provider.Usage{}
			for _, a := range all {
				if a.Adapter != nil {
					p.left[a.Name] = a.Adapter.InUse
				}
			}
		})
	}
}

// runCheck runs the programs of checks from that index on, one after the other.
func (p *Play) runCheck(i int) {
	for ; i < len(p.topo.Checks); i++ {
		c := &p.topo.Checks[i]
		if len(c.Command) == 0 {
			continue
		}
		p.loop.next = func() { p.runCheck(i + 1) }
		p.programs.run(c.Node, Command{Args: c.Command, Env: p.programs.environment(c.Node, p.topo.Hosts()), Timeout: c.Timeout}, func(e Exit, err error) {
			p.exits[i] = programExit{e, err}
		})
		return
	}
	p.conclude()
}
