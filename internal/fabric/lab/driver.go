package lab

import (
	"context"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/event"
	"github.com/ndklab/ndklab/topology"
)

// A driver has the lab's core decide (package core), and its machines carry out what comes of it.
type driver struct {
	// machines is this machine alone, which here is, unless the lab has several hosts. It is set before the first command.
	machines machines
	here     *machine
	publish  func(event.Event)
	ended    func(*control.Error) // is told of the lab's end
	allUp    func()               // is told that all nodes are ready, before everyone is

	// mu guards what follows. It is held while the core is asked or looked at, and while everyone is told what the core
	// tells, which keeps the order. It is taken before any other lock of the lab, never after one. Actions are carried
	// out without it.
	mu      sync.Mutex
	core    *core.Lab
	started time.Time                     // the core's time 0
	asked   map[uint64]chan<- core.Answer // commands without an answer
	lastAsk uint64
	timer   *time.Timer // of the core's deadline
}

// handle gives the core an event, and has done what comes of it.
func (d *driver) handle(e core.Event) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handleLocked(e)
}

func (d *driver) handleLocked(e core.Event) {
	d.core.Handle(time.Since(d.started), e)
	for {
		number, a, ok := d.core.Next()
		if !ok {
			break
		}
		switch a := a.(type) {
		case core.Notify:
			if a.Kind == event.LabReady {
				d.allUp()
			}
			d.publish(event.Event(a))
		case core.Answer:
			if answer := d.asked[a.ID]; answer != nil {
				answer <- a // which has room
				delete(d.asked, a.ID)
			}
		case core.End:
			d.ended(control.AsError(a.Reason))
		case core.ForgetNode:
			d.machines.forgetNode(a.Node)
		case core.ForgetLink:
			d.machines.forgetLink(a.Link)
		default:
			d.carryOut(number, a)
		}
	}
	d.arm()
}

// arm has the core called when it wants to be. mu is held.
func (d *driver) arm() {
	at, ok := d.core.Deadline()
	switch {
	case !ok && d.timer != nil:
		d.timer.Stop()
	case !ok:
	case d.timer == nil:
		d.timer = time.AfterFunc(at-time.Since(d.started), func() { d.handle(core.Tick{}) })
	default:
		d.timer.Reset(at - time.Since(d.started))
	}
}

// carryOut begins an action. mu is held, so that actions which hang on the lab's topology see the one that they came of.
func (d *driver) carryOut(number int, a core.Action) {
	act := d.machines.action(d.core.Topology(), a)
	go func() {
		done := act()
		done.Number = number
		d.handle(done)
	}()
}

// agentEnded tells the core that the agent of a life has ended, and everyone who waits for that.
func (d *driver) agentEnded(l *life, reason string) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if isClosed(l.down) { // with its host
		return
	}
	d.handleLocked(core.AgentEnded{Of: l.Of, Reason: reason})
	if l.reason = d.core.Node(l.Node).Reason; l.reason == "" {
		l.reason = reason
	}
	close(l.down)
}

// hostLost tells the core that a host is gone, and those who wait for the end of a node there.
func (d *driver) hostLost(e core.HostLost) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.handleLocked(e)
	for _, name := range e.Nodes {
		if l := d.machines.life(name); l != nil && !isClosed(l.down) {
			l.reason = d.core.Node(name).Reason
			close(l.down)
		}
	}
}

// ask has a command done and returns the answer. When ctx ends first, what has not begun is not done, and what has
// begun comes to its end before ask returns.
func (d *driver) ask(ctx context.Context, by core.Source, c core.Command) (core.Answer, error) {
	return d.askOf(ctx, by, func(*core.Lab) (core.Command, error) { return c, nil })
}

// askOf is ask with a command that depends on what there is in the lab.
func (d *driver) askOf(ctx context.Context, by core.Source, command func(*core.Lab) (core.Command, error)) (core.Answer, error) {
	answered := make(chan core.Answer, 1)
	d.mu.Lock()
	c, err := command(d.core)
	if err != nil {
		d.mu.Unlock()
		return core.Answer{}, err
	}
	d.lastAsk++
	id := d.lastAsk
	d.asked[id] = answered
	d.handleLocked(core.Ask{ID: id, By: by, Command: c})
	d.mu.Unlock()
	select {
	case a := <-answered:
		return a, a.Err
	case <-ctx.Done():
	}
	d.handle(core.Cancel{ID: id, Cause: ctx.Err()})
	a := <-answered
	return a, a.Err
}

// look has look see the core.
func (d *driver) look(look func(*core.Lab)) {
	d.mu.Lock()
	defer d.mu.Unlock()
	look(d.core)
}

// topology returns that of the nodes and links that there are by now. It must not be changed.
func (d *driver) topology() (topo *topology.Topology) {
	d.look(func(l *core.Lab) { topo = l.Topology() })
	return topo
}

// standing returns what the lab is at present.
func (d *driver) standing() (standing core.Standing) {
	d.look(func(l *core.Lab) { standing = l.Standing() })
	return standing
}

// checkReady refuses what cannot be asked of a lab that is still starting.
func (d *driver) checkReady() (err error) {
	d.look(func(l *core.Lab) { err = l.CheckReady() })
	return err
}

// node returns how a node fares.
func (d *driver) node(name string) (status core.NodeStatus) {
	d.look(func(l *core.Lab) { status = l.Node(name) })
	return status
}

// alive returns the life of a host or router that is up, else an error that says why it is not.
func (d *driver) alive(name string) (life *life, err error) {
	d.look(func(l *core.Lab) {
		if err = l.Alive(name); err == nil {
			life = d.machines.life(name)
		}
	})
	return life, err
}
