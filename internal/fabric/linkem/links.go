package linkem

import (
	"fmt"
	"slices"
	"sync"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
)

// A linkTable is the links that the engine has or has had, and the log that they replay. Its
// methods take a link from one state to the next. It belongs to the loop's thread.
type linkTable struct {
	*epoch
	poller  *poller
	ingress *ingress
	egress  *egress
	byName  map[string]*link
	log     *impair.Log // that links replay; nil: none
	trunks  *trunks
}

// find returns a link, which is in one of the states if there are any.
func (t *linkTable) find(name string, states ...state) (*link, error) {
	k := t.byName[name]
	if k == nil {
		return nil, control.Errorf(control.Usage, "the engine has no link %s", name)
	}
	if len(states) > 0 && !slices.Contains(states, k.state) {
		return nil, control.Errorf(control.Usage, "link %s is %s", name, k.state)
	}
	return k, nil
}

// attach takes open ports as a link's.
func (t *linkTable) attach(a Link, ports [2]*port) error {
	k := t.byName[a.Name]
	if k == nil {
		k = &link{name: a.Name, state: detached}
		for i := range k.lines {
			k.lines[i] = newLine(k, i, impair.New(a.Seed, a.Name, i))
		}
		t.byName[a.Name] = k
	}
	if k.state != detached {
		return control.Errorf(control.Usage, "link %s is %s", a.Name, k.state)
	}
	k.leaveTrunk() // the other end may be elsewhere now
	if a.Trunk != "" {
		if err := t.cross(k, a, ports); err != nil {
			return err
		}
	}
	k.state = attached
	k.ports = ports
	k.replay(t.log)
	for i, n := range k.lines {
		n.set(a.Directions[i], t.fabric(t.now()))
		n.to = ports[1-i]
		n.far = k.peer != nil && n.to == nil
		if ports[i] != nil {
			ports[i].line = n
		}
	}
	return nil
}

// cross makes a link one whose other end is at the host of a trunk.
func (t *linkTable) cross(k *link, a Link, ports [2]*port) error {
	q := t.trunks.byName[a.Trunk]
	switch {
	case q == nil:
		return control.Errorf(control.Usage, "the engine has no trunk to %s", a.Trunk)
	case k.lines[0].wire != nil || a.Joined || (ports[0] == nil) == (ports[1] == nil):
		return control.Errorf(control.Usage, "link %s cannot be between hosts: one end is here, not at a switch with a buffer, and the kernel does not carry it", a.Name)
	case q.links[a.Number] != nil && q.links[a.Number].state != detached: // one that is has left the lab: numbers are given again
		return control.Errorf(control.Usage, "link %s has the number of %s", a.Name, q.links[a.Number].name)
	}
	k.peer, k.number = q, a.Number
	q.links[a.Number] = k
	return nil
}

// leaveTrunk has the link be one within the host.
func (k *link) leaveTrunk() {
	if k.peer != nil && k.peer.links[k.number] == k {
		delete(k.peer.links, k.number)
	}
	k.peer = nil
}

// start takes frames from the link's ports, at first those that arrived since the kernel
// stopped to forward them. It returns the watches, which are needed no longer.
func (t *linkTable) start(name string) (watches [2]*watch, err error) {
	k, err := t.find(name, attached)
	if err != nil {
		return watches, err
	}
	now := t.now()
	k.state = started
	for i, p := range k.ports {
		if p == nil {
			continue
		}
		p.empty = max(p.empty, now-maxHandover)
		if watches[i] = p.other; p.other != nil {
			for t.ingress.receive(p) {
			}
			p.other = nil
		}
		if err := t.poller.add(p); err != nil {
			k.state = attached
			return watches, fmt.Errorf("link %s: %w", name, err)
		}
	}
	return watches, nil
}

// release removes the link's impairments, and closes idle when all packets on their way
// have left. It may be called again for a release that nobody has waited for; idle is nil for one that is over.
func (t *linkTable) release(name string) (idle <-chan struct{}, err error) {
	k, err := t.find(name, started, releasing, released)
	if err != nil || k.state == released {
		return nil, err
	}
	if k.peer != nil {
		return nil, errFar(k)
	}
	if k.lines[0].wire != nil {
		return nil, control.Errorf(control.Usage, "link %s is at a switch with a buffer, which the kernel does not carry", name)
	}
	for _, n := range k.lines {
		n.model.Set(topology.Impairment{}, t.fabric(t.now()))
		n.model.Replay(nil) // decisions that are recorded for later would keep the link from being idle
	}
	k.state = releasing
	return k.whenIdle(), nil
}

// released watches from now on what the kernel forwards.
func (t *linkTable) released(name string, watches [2]*watch) error {
	k, err := t.find(name, releasing)
	if err != nil {
		return err
	}
	k.state = released
	for i, p := range k.ports {
		p.other = watches[i]
	}
	return nil
}

// carry has a link at a switch with a packet buffer carry frames, or lose them.
func (t *linkTable) carry(c carryParams) error {
	k, err := t.find(c.Link, attached, started)
	if err != nil {
		return err
	}
	for _, n := range k.lines {
		if n.wire == nil {
			return control.Errorf(control.Usage, "link %s is at no switch with a buffer", c.Link)
		}
		n.fabric.carry(n, c.Frames)
	}
	return nil
}

// set changes the settings of a direction. A link that is being released is started again, or has been, since nobody waited for
// that. It returns the watches that are needed no longer.
func (t *linkTable) set(s setParams) (watches [2]*watch, err error) {
	k, err := t.find(s.Link)
	if err != nil {
		return watches, err
	}
	if s.Direction != 0 && s.Direction != 1 {
		return watches, control.Errorf(control.Usage, "link %s has no direction %d", s.Link, s.Direction)
	}
	if err := s.Settings.Check(); err != nil {
		return watches, control.Errorf(control.Usage, "link %s: %v", s.Link, err)
	}
	if k.state == released {
		for i, p := range k.ports {
			watches[i], p.other = p.other, nil
		}
	}
	if k.state == releasing || k.state == released { // a request to release that still waits fails
		k.state = started
		k.replay(t.log)
	}
	k.lines[s.Direction].set(s.Settings, t.fabric(t.now()))
	return watches, nil
}

// begin begins another period of a link's statistics, and its models anew.
func (t *linkTable) begin(k *link) error {
	return k.begin(t.fabric(t.now()), t.ingress.recorder != nil || t.log != nil)
}

// detach takes the link from the loop.
func (t *linkTable) detach(name string) (*link, error) {
	k, err := t.find(name, attached, started, releasing, released)
	if err != nil {
		return nil, err
	}
	t.drain(k)
	for _, p := range k.open() {
		if err := t.poller.remove(p); err != nil {
			return nil, fmt.Errorf("link %s: %w", name, err)
		}
		count := p.countOverruns
		if k.state == released || k.state == attached && p.other != nil {
			count = p.forgetOverruns
		}
		if err := count(); err != nil {
			return nil, fmt.Errorf("link %s: %w", name, err)
		}
	}
	k.state = detached
	return k, nil
}

// drain empties the link's lines. If it was released, what arrived until now
// and the kernel did not forward is forwarded first.
func (t *linkTable) drain(k *link) {
	for i, p := range k.ports {
		n := k.lines[i]
		if n.wire != nil {
			n.fabric.carry(n, false)
			n.to = nil
			continue
		}
		for k.state == released && t.ingress.receive(p) {
		}
		t.egress.flush(n, k.state == released)
	}
}

// replay has all links replay a log.
func (t *linkTable) replay(log *impair.Log) error {
	if t.log != nil {
		return control.Errorf(control.Usage, "the engine is replaying already")
	}
	t.log = log
	for _, k := range t.byName {
		k.replay(log)
	}
	return nil
}

// takeWaiting takes what has arrived at the ports of a link, and reports whether the link is
// attached still.
func (t *linkTable) takeWaiting(name string) bool {
	k, err := t.find(name, attached)
	if err != nil {
		return false
	}
	for _, p := range k.open() {
		for n := 0; n < takeBatches && t.ingress.receive(p); n++ {
		}
		// If it fails, so does the next count.
		_ = p.forgetOverruns()
	}
	return true
}

// closersAtOnce is the number of ports that are closed at once when the engine ends. Each
// takes one of the kernel's RCU grace periods, of some ms, which all that begin
// before it share (net/packet/af_packet.c, packet_release). A process that is killed
// closes one after the other.
const closersAtOnce = 256

// close closes the ports of all links. The loop has ended.
func (t *linkTable) close() {
	var closers sync.WaitGroup
	turn := make(chan struct{}, closersAtOnce)
	for _, k := range t.byName {
		if k.state == detached {
			continue
		}
		for _, p := range k.open() {
			turn <- struct{}{}
			closers.Go(func() {
				p.close()
				<-turn
			})
		}
	}
	closers.Wait()
}
