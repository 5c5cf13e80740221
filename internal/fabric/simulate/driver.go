package simulate

import (
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
)

// This file carries out in virtual time what the lab's core decides. Nothing of it takes time.

// handle gives the core an event, and carries out what comes of it.
func (l *lab) handle(e core.Event) {
	l.events = append(l.events, e)
	for {
		number, a, ok := l.core.Next()
		switch {
		case !ok && len(l.events) == 0:
			if l.switched {
				l.switched = false
				l.network.changed()
			}
			l.arm()
			return
		case !ok:
			next := l.events[0]
			l.events = l.events[1:]
			l.core.Handle(l.clock.Now(), next)
			continue
		}
		switch a := a.(type) {
		case core.Notify:
			if a.Kind == event.LabReady {
				continue // nobody follows the lab before
			}
			l.tell(event.Event(a))
		case core.Answer:
			done := l.asked[a.ID]
			delete(l.asked, a.ID)
			done(a.Err)
		case core.End: // which the answer to Build says
		default:
			err := l.carryOut(a)
			l.events = append(l.events, core.Done{Number: number, Err: err})
		}
	}
}

// arm has the core called when it wants to be.
func (l *lab) arm() {
	at, ok := l.core.Deadline()
	switch {
	case !ok && l.timer != nil:
		l.timer.Stop()
	case !ok:
	case l.timer == nil:
		l.timer = l.clock.AfterFunc(at-l.clock.Now(), func() { l.handle(core.Tick{}) })
	default:
		l.timer.Reset(max(0, at-l.clock.Now()))
	}
}

// ask gives the core a command, and calls back with what comes of it.
func (l *lab) ask(c core.Command, done func(error)) {
	l.lastAsk++
	l.asked[l.lastAsk] = done
	l.handle(core.Ask{ID: l.lastAsk, By: core.ByRun, Command: c})
}

// Change implements scenario.Stage.
func (l *lab) Change(e *topology.Event, done func(error)) {
	if e.Storm != nil {
		err := l.network.storm(e.Node, e.Storm)
		l.clock.Go(func() { done(err) })
		return
	}
	l.ask(core.CommandOf(e), func(err error) { l.clock.Go(func() { done(err) }) })
}

// carryOut does an action.
func (l *lab) carryOut(a core.Action) error {
	switch a := a.(type) {
	case core.StartAgent:
		l.setRoutes(a.Node, a.Routes)
		return l.network.byName[a.Node].start(a.Restarts)
	case core.SetRoutes:
		l.setRoutes(a.Node, a.Routes)
	case core.KillAgent:
		l.end(a.Of)
	case core.SignalAgent:
		l.end(a.Of)
	case core.PauseAgent:
		l.network.byName[a.Node].pause()
	case core.ResumeAgent:
		l.network.byName[a.Node].resume()
	case core.Impair:
		l.impair(a.Link, a.Asked)
	case core.SetImpairment:
		l.network.linkOf(a.Link).wires[a.Direction].Set(a.To)
		l.network.linkOf(a.Link).tellRates()
	case core.ReleaseLink:
		l.impair(a.Link, [2]topology.Impairment{})
	case core.Connect:
		l.connect(a.Link, true)
	case core.Disconnect:
		l.connect(a.Link, false)
	case core.TakeApart:
		l.connect(a.Link, false)
	}
	return nil // there are neither interfaces, nor files and programs, and a spanning tree is there at once
}

// end ends a node as a crash does.
func (l *lab) end(of core.Of) {
	l.network.byName[of.Node].end()
	l.events = append(l.events, core.AgentEnded{Of: of, Reason: "its agent was killed by SIGKILL"})
}

// setRoutes has packets that leave a node from now on take these routes.
func (l *lab) setRoutes(name string, routes []topology.Route) {
	l.network.byName[name].routes = routes
	l.switched = true
}

// impair has a link do something to packets.
func (l *lab) impair(spec *topology.Link, to [2]topology.Impairment) {
	for d, w := range l.network.linkOf(spec).wires {
		if !w.Settings().Equal(to[d]) {
			w.Set(to[d])
		}
	}
	l.network.linkOf(spec).tellRates()
}

// connect has a link carry packets, or not.
func (l *lab) connect(spec *topology.Link, on bool) {
	k := l.network.linkOf(spec)
	l.switched = l.switched || k.on != on
	k.on = on
	k.wires[0].Carry(on)
	k.wires[1].Carry(on)
}
