package simulate

import (
	"fmt"
	"net/netip"
	"slices"

	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/internal/fabric/scenario"
	"github.com/ndklab/ndklab/internal/node/workload"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
)

// This file is the workloads of a scenario.Stage.

// Clock implements scenario.Stage.
func (l *lab) Clock() clock.Clock { return l.clock }

// alive is the life of a host, or why nothing can be asked of it.
func (l *lab) alive(name string) (*life, error) {
	if err := l.core.Alive(name); err != nil {
		return nil, err
	}
	if n := l.network.byName[name]; n.life != nil {
		return n.life, nil
	}
	return nil, fmt.Errorf("node %s has no adapter", name)
}

// Serve implements scenario.Stage.
func (l *lab) Serve(name string, spec workload.Spec, at netip.AddrPort, done func(error)) {
	life, err := l.alive(name)
	if err == nil {
		err = life.host.Serve(spec, at)
	}
	l.clock.Go(func() { done(err) })
}

// Run implements scenario.Stage.
func (l *lab) Run(name string, spec workload.Spec, from netip.Addr, to netip.AddrPort, done func(workload.Result, error)) {
	fail := func(err error) { done(workload.Result{}, err) }
	life, err := l.alive(name)
	if err != nil {
		l.clock.Go(func() { fail(err) })
		return
	}
	answer := life.owes(fail)
	answer.client = client{spec.Name, spec.Flow}
	err = life.host.Run(spec, from, to, func(result workload.Result) {
		if l.mayTell() && answer.give() {
			done(result, nil)
		}
	})
	if err != nil && answer.give() {
		l.clock.Go(func() { fail(err) })
	}
}

// Stop implements scenario.Stage.
func (l *lab) Stop(name, of string, flow int) {
	if life, err := l.alive(name); err == nil {
		life.host.Stop(of, flow)
	}
}

// Abort implements scenario.Stage.
func (l *lab) Abort(name, of string, flow int, reason string) {
	life, err := l.alive(name)
	if err == nil {
		life.host.Abort(of, flow, reason)
		return
	}
	n := l.network.byName[name]
	if n == nil || n.life == nil {
		return // Run has called back, or is about to
	}
	// A node that is paused does not answer.
	i := slices.IndexFunc(n.life.owed, func(a *answer) bool { return a.client == client{of, flow} })
	if i < 0 {
		return
	}
	answer := n.life.owed[i]
	fail := answer.fail
	if answer.give() {
		l.clock.Go(func() { fail(err) })
	}
}

// Unserve implements scenario.Stage.
func (l *lab) Unserve(name, of string, flow int, done func(workload.ServerResult, error)) {
	fail := func(err error) { done(workload.ServerResult{}, err) }
	life, err := l.alive(name)
	if err != nil {
		l.clock.Go(func() { fail(err) })
		return
	}
	answer := life.owes(fail)
	err = life.host.Unserve(of, flow, func(found workload.ServerResult) {
		if l.mayTell() && answer.give() {
			done(found, nil)
		}
	})
	if err == nil || !answer.give() {
		return
	}
	if l.network.byName[name].restarts > 0 {
		err = fmt.Errorf("node %s was started again, and what its server had found is lost", name)
	}
	l.clock.Go(func() { fail(err) })
}

// Progress implements scenario.Stage.
func (l *lab) Progress(name string, done func([]workload.Progress, error)) {
	life, err := l.alive(name)
	var all []workload.Progress
	if err == nil {
		all = life.host.Progress()
	}
	l.clock.Go(func() { done(all, err) })
}

// Away implements scenario.Stage. Nobody acts on a simulation before it is played.
func (l *lab) Away() []string { return nil }

// Exec implements scenario.Stage. There are no programs.
func (l *lab) Exec(name string, c scenario.Command, done func(scenario.Exit, error)) (cancel func()) {
	l.clock.Go(func() {
		done(scenario.Exit{}, fmt.Errorf("node %s: %s: a simulation runs no programs", name, c.Args[0]))
	})
	return func() {}
}

// A watcher is told of what happens in the lab.
type watcher struct{ tell func(event.Event) }

// Watch implements scenario.Stage.
func (l *lab) Watch(tell func(event.Event)) (stop func()) {
	w := &watcher{tell}
	l.watchers = append(l.watchers, w)
	return func() {
		w.tell = nil
		l.watchers = slices.DeleteFunc(slices.Clone(l.watchers), func(other *watcher) bool { return other == w })
	}
}

// tell tells all watchers of an event, later.
func (l *lab) tell(e event.Event) {
	e.At = l.clock.Now()
	l.clock.Go(func() {
		for _, w := range l.watchers {
			if w.tell != nil {
				w.tell(e)
			}
		}
	})
	l.Publish(e)
}

// tellQPError tells of a queue pair in error.
func (l *lab) tellQPError(node string, e provider.QPError) {
	if l.mayTell() {
		l.tell(event.OfQPError(node, e))
	}
}

// Publish implements scenario.Stage.
func (l *lab) Publish(e event.Event) {
	if l.follow != nil {
		l.follow(e)
	}
}
