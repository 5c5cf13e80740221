package simulate

import (
	"context"
	"errors"
	"fmt"
	"net/netip"
	"slices"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/transport"
	"github.com/ndklab/ndklab/provider"
	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/topology"
)

// This file runs Go functions in nodes, in virtual time. They are ordinary code on goroutines of its own, which the clock
// must not overtake. So the caller runs the whole simulation where time.Now and all timers are virtual and where
// Options.Settle waits for all goroutines (a bubble of testing/synctest). The goroutine that runs the clock and those
// of programs take turns: what wakes a program ends with Settle, and time goes on when nobody runs any more.

// A Program is a function that runs in a host from each start of it on, until it returns.
type Program struct {
	Node string
	// Server says that nobody waits for the program: its context ends when the run and all other programs are over.
	Server bool
	// Run is called with the node's adapter, opened for the call. ctx ends, with the reason as its cause, when the
	// program is to end. Objects that it leaves open stay open until the end of the simulation.
	Run func(ctx context.Context, adapter *provider.Adapter) error
}

// errServed is the cause by which the context of a server ends in the end.
var errServed = errors.New("all other programs have ended")

// programs are those of a simulation.
type programs struct {
	settle func()
	begun  time.Time

	// mu guards the clock and the network against programs that run at the same instant. The goroutine that runs the
	// clock holds it only in methods of programClock and programPort: no program runs meanwhile.
	mu    sync.Mutex
	clock *clock.Virtual
	kick  chan struct{} // has an element if something new is due

	byNode map[string][]Program
	// The following fields are the clock's.
	active  []*activity // that have not returned, the oldest first
	waiting int         // of active: those that are no servers
	ending  bool        // no program starts any more
	errors  []error
}

// An activity is a program in one life of its node.
type activity struct {
	Program
	ctx    context.Context
	cancel context.CancelCauseFunc
	begun  bool
	killed bool // its node has gone down
}

// newPrograms makes those of a simulation that has a clock. The error names a program's node that is no host with an
// adapter.
func newPrograms(t *topology.Topology, o *Options, c *clock.Virtual) (*programs, error) {
	p := &programs{settle: o.Settle, begun: time.Now(), clock: c, kick: make(chan struct{}, 1), byNode: map[string][]Program{}}
	for _, program := range o.Programs {
		if spec := t.FindNode(program.Node); spec == nil || len(addresses(spec)) == 0 {
			return nil, fmt.Errorf("lab %s has no host %q with an adapter, in which a program could run", t.Name, program.Node)
		}
		p.byNode[program.Node] = append(p.byNode[program.Node], program)
	}
	return p, nil
}

// lock begins what a program does to the clock or the network, at the present instant.
func (p *programs) lock() {
	p.mu.Lock()
	p.clock.Advance(time.Since(p.begun))
}

// unlock ends what lock began. Something new may be due.
func (p *programs) unlock() {
	p.mu.Unlock()
	select {
	case p.kick <- struct{}{}:
	default:
	}
}

// do runs f on a goroutine of its own, and returns when it and all that it has woken wait for something.
func (p *programs) do(f func()) {
	go f()
	p.settle()
}

// run runs the clock and programs until all programs have ended and over reports true. Servers are ended when nothing
// else goes on. If ctx ends, interrupt is called and all programs are ended.
func (p *programs) run(ctx context.Context, over func() bool, interrupt func()) {
	interrupted := false
	for !over() || len(p.active) > 0 {
		switch {
		case ctx.Err() != nil && !interrupted:
			interrupted, p.ending = true, true
			if !over() {
				interrupt()
			}
			p.end(func(*activity) bool { return true }, context.Cause(ctx))
		case over() && p.waiting == 0 && !p.ending:
			p.ending = true
			p.end(func(a *activity) bool { return a.Server }, errServed)
		}
		p.step()
	}
}

// step runs the next event of the clock. Before its time comes, programs may run that wait for an earlier one; then it
// returns if they have something due.
func (p *programs) step() {
	select {
	case <-p.kick:
	default:
	}
	p.mu.Lock() // which programs take next, and so see what was done without it
	at, ok := p.clock.Next()
	p.mu.Unlock()
	var due <-chan time.Time
	if ok {
		left := at - time.Since(p.begun)
		if left <= 0 {
			p.clock.Step()
			return
		}
		due = time.After(left)
	}
	select {
	case <-due:
	case <-p.kick:
	}
	p.settle()
}

// activities makes those of a life that has just begun.
func (p *programs) activities(node string) (list []*activity) {
	if p.ending {
		return nil
	}
	for _, program := range p.byNode[node] {
		a := &activity{Program: program}
		a.ctx, a.cancel = context.WithCancelCause(context.Background())
		list = append(list, a)
		p.active = append(p.active, a)
		if !a.Server {
			p.waiting++
		}
	}
	return list
}

// start starts the programs of a life.
func (p *programs) start(l *life) {
	for _, a := range l.activities {
		a.begun = true
		p.do(func() { p.ended(a, a.call(l.device)) })
	}
}

// ended takes note of what a program has returned.
func (p *programs) ended(a *activity, err error) {
	asked := a.ctx.Err() != nil && (errors.Is(err, a.ctx.Err()) || errors.Is(err, context.Cause(a.ctx)))
	a.cancel(nil)
	p.lock()
	defer p.unlock()
	p.active = slices.DeleteFunc(p.active, func(other *activity) bool { return other == a })
	if !a.Server {
		p.waiting--
	}
	if err != nil && !a.killed && !asked {
		p.errors = append(p.errors, fmt.Errorf("node %s: %w", a.Node, err))
	}
}

// call opens the adapter for a program and runs it.
func (a *activity) call(device *provider.Miniport) error {
	adapter, status := device.OpenAdapter(provider.OpenParameters{Version: provider.InterfaceVersion})
	if status != provider.StatusSuccess {
		return fmt.Errorf("open adapter: %w", status)
	}
	defer adapter.BeginClose(func() {})
	return a.Run(a.ctx, adapter)
}

// kill ends the programs of a life whose node goes down. The adapter fails, so that nothing that they wait for on it
// is missing.
func (p *programs) kill(l *life, why error) {
	for _, a := range l.activities {
		if a.killed = true; !a.begun {
			p.ended(a, nil)
		}
	}
	p.do(l.device.Fail)
	for _, a := range l.activities {
		p.do(func() { a.cancel(why) })
	}
}

// end has the context of some programs end, one after the other.
func (p *programs) end(some func(*activity) bool, why error) {
	for _, a := range slices.Clone(p.active) {
		if some(a) {
			p.do(func() { a.cancel(why) })
		}
	}
}

// A programClock is a life's clock for an adapter that programs use, too.
type programClock struct {
	*lifeClock
	programs *programs
}

// Now implements clock.Clock.
func (c programClock) Now() time.Duration {
	c.programs.lock()
	defer c.programs.mu.Unlock()
	return c.lifeClock.Now()
}

// AfterFunc implements clock.Clock.
func (c programClock) AfterFunc(d time.Duration, f func()) clock.Timer {
	c.programs.lock()
	defer c.programs.unlock()
	return programTimer{c.programs, c.lifeClock.AfterFunc(d, f)}
}

// Go implements clock.Clock. Adapters call back their users by it, who then run.
func (c programClock) Go(f func()) { c.AfterFunc(0, func() { c.programs.do(f) }) }

// A programTimer is a timer of a programClock.
type programTimer struct {
	programs *programs
	under    clock.Timer
}

// Stop implements clock.Timer.
func (t programTimer) Stop() bool {
	t.programs.lock()
	defer t.programs.mu.Unlock()
	return t.under.Stop()
}

// Reset implements clock.Timer.
func (t programTimer) Reset(d time.Duration) bool {
	t.programs.lock()
	defer t.programs.unlock()
	return t.under.Reset(d)
}

// A programPort is a port for an adapter that programs use, too.
type programPort struct {
	*port
	programs *programs
}

// Send implements provider.Carrier.
func (p programPort) Send(flow roce.Flow, packets []roce.Packet) error {
	p.programs.lock()
	defer p.programs.unlock()
	return p.port.Send(flow, packets)
}

// Turns implements transport.Line.
func (p programPort) Turns(local netip.Addr) transport.Turns {
	p.programs.lock()
	defer p.programs.mu.Unlock()
	return programTurn{p.port.turnAt(local), p.programs}
}

// A programTurn is a turn of programs.
type programTurn struct {
	turn     *turn
	programs *programs
}

// Room implements transport.Turns.
func (t programTurn) Room() bool {
	t.programs.lock()
	defer t.programs.mu.Unlock()
	return t.turn.Room()
}

// WhenRoom implements transport.Turns.
func (t programTurn) WhenRoom(f func()) {
	t.programs.lock()
	defer t.programs.unlock()
	t.turn.WhenRoom(f)
}

// Reach implements provider.Carrier.
func (p programPort) Reach(local, remote netip.Addr) provider.Status {
	p.programs.lock()
	defer p.programs.mu.Unlock()
	return p.port.Reach(local, remote)
}

// Counters implements provider.Carrier.
func (p programPort) Counters() map[string]uint64 {
	p.programs.lock()
	defer p.programs.mu.Unlock()
	return p.port.Counters()
}

// Close implements provider.Carrier.
func (p programPort) Close() error {
	p.programs.lock()
	defer p.programs.mu.Unlock()
	return p.port.Close()
}
