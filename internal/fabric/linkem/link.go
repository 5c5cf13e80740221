package linkem

import (
	"errors"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/control"
	"github.com/ndklab/ndklab/internal/fabric/frame"
	"github.com/ndklab/ndklab/internal/fabric/gauge"
	"github.com/ndklab/ndklab/internal/fabric/impair"
	"github.com/ndklab/ndklab/topology"
	"golang.org/x/sys/unix"
)

// A link is two lines and, unless it is detached, the two ports they join. It
// belongs to the loop's thread.
type link struct {
	name  string
	state state
	ports [2]*port
	lines [2]*line // [0] from ports[0] to ports[1], [1] back
	taps  []*listener
	idle  chan struct{} // closed, and nil, once no packet is on its way; nil unless somebody waits for that
}

// A state is where a link is in the sequence of package linkem's documentation.
type state string

const (
	detached  state = "detached"
	attached  state = "attached"
	started   state = "started"
	releasing state = "being released"
	released  state = "released"
)

// A port is one interface of an attached link.
type port struct {
	name  string
	fd    int
	line  *line         // which takes what arrives here
	empty time.Duration // an instant by which all that had arrived was taken
	other *watch        // of the other interface, while the link changes hands
}

// Sizes to ask for, bytes: bursts of tens of milliseconds. Without privilege
// the kernel grants less.
const (
	receiveBuffer = 32 << 20
	sendBuffer    = 8 << 20
)

// openPort opens an interface and, if other is the name of one, watches that.
// It is slow and therefore not for the loop's thread, as is close: the kernel
// waits until no processor can be delivering to a socket that is closed.
func openPort(name, other string) (*port, error) {
	p := &port{name: name, fd: -1}
	if err := p.open(other); err != nil {
		p.close()
		return nil, err
	}
	return p, nil
}

func (p *port) open(other string) (err error) {
	if other != "" { // first, so that the watch misses nothing of what the port sees
		if p.other, err = openWatch(other); err != nil {
			return err
		}
	}
	if p.fd, err = frame.Open(p.name, false, receiveBuffer); err != nil {
		return err
	}
	// Past the qdisc and the taps: faster, and a watch does not see these frames.
	if err := unix.SetsockoptInt(p.fd, unix.SOL_PACKET, unix.PACKET_QDISC_BYPASS, 1); err != nil {
		return fmt.Errorf("packet socket on %s: PACKET_QDISC_BYPASS: %w", p.name, err)
	}
	if unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_SNDBUFFORCE, sendBuffer) == nil {
		return nil
	}
	if err := unix.SetsockoptInt(p.fd, unix.SOL_SOCKET, unix.SO_SNDBUF, sendBuffer); err != nil {
		return fmt.Errorf("packet socket on %s: SO_SNDBUF: %w", p.name, err)
	}
	return nil
}

func (p *port) close() {
	if p.fd >= 0 {
		unix.Close(p.fd)
	}
	if p.other != nil {
		p.other.close()
	}
}

// closersAtOnce is the number of ports that are closed at once when the engine ends. Each
// takes one of the kernel's RCU grace periods, of some ms, which all that begin
// before it share (net/packet/af_packet.c, packet_release). A process that is killed
// closes one after the other.
const closersAtOnce = 256

// closePorts closes the ports of all links. The loop has ended.
func (l *loop) closePorts() {
	var closers sync.WaitGroup
	turn := make(chan struct{}, closersAtOnce)
	for _, k := range l.links {
		if k.state == detached {
			continue
		}
		for _, p := range k.ports {
			turn <- struct{}{}
			closers.Go(func() {
				p.close()
				<-turn
			})
		}
	}
	closers.Wait()
}

// running reports whether the interface could send at all.
func (p *port) running() bool {
	request, err := unix.NewIfreq(p.name)
	if err != nil {
		return false
	}
	if err := unix.IoctlIfreq(p.fd, unix.SIOCGIFFLAGS, request); err != nil {
		return false
	}
	const need = unix.IFF_UP | unix.IFF_RUNNING
	return request.Uint16()&need == need
}

// emptied is called when one of the link's lines has become empty.
func (k *link) emptied() {
	if k.idle != nil && k.lines[0].queue.empty() && k.lines[1].queue.empty() {
		close(k.idle)
		k.idle = nil
	}
}

// wait is closed as soon as no packet is on its way.
func (k *link) wait() <-chan struct{} {
	if k.idle == nil {
		k.idle = make(chan struct{})
	}
	idle := k.idle
	k.emptied()
	return idle
}

// require fails unless the link exists and is in one of the states.
func (l *loop) require(name string, states ...state) (*link, error) {
	k := l.links[name]
	if k == nil {
		return nil, control.Errorf(control.Usage, "the engine has no link %s", name)
	}
	for _, s := range states {
		if k.state == s {
			return k, nil
		}
	}
	return nil, control.Errorf(control.Usage, "link %s is %s", name, k.state)
}

// attach takes open ports as a link's.
func (l *loop) attach(a Link, ports [2]*port) error {
	k := l.links[a.Name]
	if k == nil {
		k = &link{name: a.Name, state: detached}
		for i := range k.lines {
			k.lines[i] = newLine(k, i, impair.New(a.Seed, a.Name, i))
		}
		l.links[a.Name] = k
	}
	if k.state != detached {
		return control.Errorf(control.Usage, "link %s is %s", a.Name, k.state)
	}
	k.state = attached
	k.ports = ports
	if l.log != nil {
		k.replay(l.log)
	}
	for i, n := range k.lines {
		n.model.Set(a.Directions[i], l.now())
		n.to = ports[1-i]
		ports[i].line = n
	}
	return nil
}

// start has the loop take frames from the link's ports: first, those that
// arrived since the kernel stopped to forward them. The watches are done with.
func (l *loop) start(name string) (watches [2]*watch, err error) {
	k, err := l.require(name, attached)
	if err != nil {
		return watches, err
	}
	now := l.now()
	k.state = started
	for i, p := range k.ports {
		p.empty = max(p.empty, now-maxHandover)
		if watches[i] = p.other; p.other != nil {
			p.other.update()
			for l.receive(p) {
			}
			p.other = nil
		}
		if err := l.watch(p.fd); err != nil {
			k.state = attached
			return watches, fmt.Errorf("link %s: %w", name, err)
		}
		l.ports[int32(p.fd)] = p
	}
	return watches, nil
}

// release removes the link's impairments; idle is closed when all packets on
// their way have left. It may be asked again for a release that was not waited for.
func (l *loop) release(name string) (idle <-chan struct{}, err error) {
	k, err := l.require(name, started, releasing)
	if err != nil {
		return nil, err
	}
	for _, n := range k.lines {
		n.model.Set(topology.Impairment{}, l.now())
		n.model.Replay(nil) // decisions that are recorded for later would keep the link from being idle
	}
	k.state = releasing
	return k.wait(), nil
}

// released has the kernel's forwarding watched from now on.
func (l *loop) released(name string, watches [2]*watch) error {
	k, err := l.require(name, releasing)
	if err != nil {
		return err
	}
	k.state = released
	for i, p := range k.ports {
		p.other = watches[i]
	}
	return nil
}

func (l *loop) set(s setting) error {
	k := l.links[s.Link]
	if k == nil {
		return control.Errorf(control.Usage, "the engine has no link %s", s.Link)
	}
	if s.Direction != 0 && s.Direction != 1 {
		return control.Errorf(control.Usage, "link %s has no direction %d", s.Link, s.Direction)
	}
	if k.state == released {
		return control.Errorf(control.Usage, "link %s is %s", s.Link, k.state)
	}
	if err := s.Settings.Check(); err != nil {
		return control.Errorf(control.Usage, "link %s: %v", s.Link, err)
	}
	if k.state == releasing { // whoever waits for that, if anybody still does, learns that it is not
		k.state = started
		if l.log != nil {
			k.replay(l.log)
		}
	}
	k.lines[s.Direction].model.Set(s.Settings, l.now())
	return nil
}

// detach takes the link from the loop.
func (l *loop) detach(name string) (*link, error) {
	k, err := l.require(name, attached, started, releasing, released)
	if err != nil {
		return nil, err
	}
	l.drain(k)
	for _, p := range k.ports {
		if l.ports[int32(p.fd)] == p {
			delete(l.ports, int32(p.fd))
			if err := unix.EpollCtl(l.poll, unix.EPOLL_CTL_DEL, p.fd, nil); err != nil {
				return nil, fmt.Errorf("link %s: epoll: %w", name, err)
			}
		}
		if err := p.countOverruns(); err != nil {
			return nil, fmt.Errorf("link %s: %w", name, err)
		}
	}
	k.state = detached
	return k, nil
}

// drain empties the link's lines. If it was released, what arrived until now
// and the kernel did not forward is forwarded first.
func (l *loop) drain(k *link) {
	for i, p := range k.ports {
		for k.state == released && l.receive(p) {
		}
		l.flush(k.lines[i], k.state == released)
	}
}

// flush ends the line: it sends what is due if asked to, and drops the rest.
func (l *loop) flush(n *line, send bool) {
	for left := -1; send && !n.queue.empty() && left != len(n.queue.upcoming()); {
		left = len(n.queue.upcoming())
		l.send(n)
	}
	n.queue.merge(math.MaxInt64)
	rest := n.queue.upcoming()
	for _, r := range rest {
		n.gauge.Counts.LostDown += uint64(r.count)
	}
	l.finish(n, len(rest))
}

// countOverruns adds what the kernel had no room for to the line's account.
func (p *port) countOverruns() error {
	n, err := frame.Overruns(p.fd)
	if err != nil {
		return fmt.Errorf("interface %s: %w", p.name, err)
	}
	p.line.gauge.Counts.Packets += n
	p.line.gauge.Counts.LostOverrun += n
	return nil
}

// measure returns the figures of the link so far.
func (k *link) measure() ([2]gauge.Measured, error) { return k.figures((*line).measure) }

// measureSince returns the figures of the link since begin.
func (k *link) measureSince() ([2]gauge.Measured, error) { return k.figures((*line).measureSince) }

func (k *link) figures(of func(*line) gauge.Measured) (m [2]gauge.Measured, err error) {
	for i, n := range k.lines {
		if k.state != detached {
			err = errors.Join(err, k.ports[i].countOverruns())
		}
		m[i] = of(n)
	}
	return m, err
}

// begin begins another term of the link's figures, and its model anew. logged says that
// its decisions are in a log.
func (k *link) begin(now time.Duration, logged bool) error {
	var err error
	for i, n := range k.lines {
		if k.state != detached {
			err = errors.Join(err, k.ports[i].countOverruns())
		}
		n.gauge.Begin(n.model, now, logged)
	}
	return err
}
