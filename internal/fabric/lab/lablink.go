package lab

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/core"
	"github.com/ndklab/ndklab/internal/fabric/lab/link"
	"github.com/ndklab/ndklab/topology"
)

// A labLink is a link as it is on this machine: its interfaces, whether the kernel or an engine hands its packets on,
// and what the kernel has counted of them. The core knows what is asked of it.
type labLink struct {
	*linkDriver
	gone chan struct{} // closed when the link is in the lab no more
	host string        // that the far end is at; "": both ends are here
	far  [2]bool       // which of the ends that is

	// acting is held while something is done with the link or its taps; it guards what follows. The core has one action
	// of a link carried out at a time, which taps know nothing of.
	acting    sync.Mutex
	spec      *topology.Link // as the last action has it
	made      [2]bool        // the interface is there, or may be
	open      [2]bool        // the port is up that it has at a switch
	up        bool           // both middles are
	fresh     bool           // the interfaces have counted nothing
	engaged   bool           // the carrier has the link
	connected bool           // it is to carry packets
	taps      []*linkTap     // of captures

	// mu guards what follows, which is written with acting held, too, but for seen.
	mu      sync.Mutex
	joined  bool             // the kernel hands packets from middle to middle
	earlier [2]link.Counters // the kernel's while it had joined the link, in earlier terms
	lossy   [2]bool          // netem has been asked for loss
	base    [2]link.Counters // the kernel's counters when its present term began
	seen    [2]link.Counters // the kernel's counters when they were last read for a report
}

// name is the link's in the engine and in messages: an endpoint names its link.
func (l *labLink) name() string { return l.spec.Endpoints[0].String() }

// carrier returns what impairs the link whenever it is impaired.
func (l *labLink) carrier() carrier { return l.carrierFor(l.spec) }

// makeEnds makes interfaces of the link.
func (l *labLink) makeEnds(a core.MakeEnds) error {
	number, ends := l.spec.Number, l.ends(l.spec)
	for end, far := range l.far {
		a.Ends[end] = a.Ends[end] && !far
	}
	for end, wanted := range a.Ends {
		if !wanted {
			continue
		}
		if l.made[end] { // the kernel takes its time to remove what was in a node, by its own doing
			if err := l.network.RemoveEnd(number, end); err != nil {
				return err
			}
		}
		l.made[end], l.open[end] = true, false
	}
	l.up, l.fresh = false, a.Ends[0] != l.far[0] && a.Ends[1] != l.far[1]
	var err error
	switch a.Ends {
	case [2]bool{true, true}:
		err = l.network.Make(number, l.spec.MTU, ends)
	case [2]bool{true, false}:
		err = l.network.MakeEnd(number, 0, l.spec.MTU, ends)
	case [2]bool{false, true}:
		err = l.network.MakeEnd(number, 1, l.spec.MTU, ends)
	}
	for end, wanted := range a.Ends {
		if !wanted {
			continue
		}
		l.nodes.madeInterface(l.spec.Endpoints[end].Node)
		if err == nil {
			err = addNetem(l.spec, end)
		}
	}
	if err == nil && l.fresh && a.Up {
		err = l.setUp()
	}
	if err == nil {
		return nil
	}
	for end, wanted := range a.Ends {
		if wanted {
			err = errors.Join(err, l.network.RemoveEnd(number, end)) // what was not made is no error
		}
	}
	return err
}

// removeEnd removes an interface: the far end loses the carrier. The core does not know that a plain link between hosts has
// engines, and has them not taken apart if the link was down.
func (l *labLink) removeEnd(end int) error {
	if l.host != "" && l.engaged {
		if err := l.carrier().abandon(l); err != nil {
			return err
		}
		l.engaged = false
	}
	if l.far[end] {
		return nil
	}
	if err := l.network.RemoveEnd(l.spec.Number, end); err != nil {
		return err
	}
	l.made[end], l.up = false, false
	return nil
}

func (l *labLink) setUp() error {
	if l.up {
		return nil
	}
	if err := l.network.Up(l.spec.Number); err != nil {
		return err
	}
	l.up = true
	return nil
}

// impair has the link's carrier take it over.
func (l *labLink) impair(asked [2]topology.Impairment) error {
	if l.engaged {
		for d, to := range asked {
			if err := l.carrier().set(l, d, to); err != nil {
				return err
			}
		}
		return nil
	}
	if err := l.carrier().attach(l, asked); err != nil {
		return err
	}
	l.engaged, l.fresh = true, false
	return nil
}

// relieve has the link's carrier give it back. late says that packets were on their way for too long.
func (l *labLink) relieve() (late bool, err error) {
	if !l.engaged {
		return false, nil
	}
	if l.host != "" { // its engine is what joins the hosts
		return false, l.impair([2]topology.Impairment{})
	}
	err = l.carrier().detach(l)
	if errors.Is(err, context.DeadlineExceeded) {
		return true, nil
	}
	l.engaged = err != nil
	return false, err
}

// connect has the link carry packets. Ports at switches are set up last: sooner, a spanning tree would begin to look for
// loops, and see none.
func (l *labLink) connect() error {
	if err := l.setUp(); err != nil {
		return err
	}
	if l.host != "" && !l.engaged {
		if err := l.impair([2]topology.Impairment{}); err != nil {
			return err
		}
	}
	if !l.joined && (!l.engaged || l.carrier().needsJoin()) {
		if err := l.join(); err != nil {
			return err
		}
	}
	for end, e := range l.spec.Endpoints {
		if l.open[end] || l.far[end] || l.switchOf(e.Node) == nil {
			continue
		}
		if err := l.network.OpenPort(l.spec.Number, end); err != nil {
			return err
		}
		l.open[end] = true
	}
	if err := l.settle(); err != nil {
		return err
	}
	if err := l.carry(true); err != nil {
		return err
	}
	l.connected = true
	return nil
}

// disconnect takes the carrier of the link away.
func (l *labLink) disconnect() error {
	// The kernel would log what it has for an interface that is down.
	if err := l.part(); err != nil {
		return err
	}
	if err := errors.Join(l.carry(false), l.network.Down(l.spec.Number)); err != nil {
		return err
	}
	l.up, l.connected = false, false
	return nil
}

// takeApart ends what the kernel and the carrier do with the link, of which an end may
// have vanished. Packets on their way are lost.
func (l *labLink) takeApart() error {
	if err := l.part(); err != nil {
		return err
	}
	if l.engaged {
		if err := l.carrier().abandon(l); err != nil {
			return err
		}
		l.engaged = false
	}
	return l.disconnect()
}

// Times in which the kernel notices that interfaces are up: between two looks, and in all.
const (
	settlePoll = time.Millisecond
	settleTime = 5 * time.Second
)

// settle waits until the link, both of whose ends are up, carries packets.
func (l *labLink) settle() error {
	ctx, cancel := context.WithTimeout(context.Background(), settleTime)
	defer cancel()
	tick := time.NewTicker(settlePoll)
	defer tick.Stop()
	for {
		if settled, err := l.network.Settled(l.spec.Number); settled || err != nil {
			return err
		}
		select {
		case <-tick.C:
		case <-ctx.Done():
			return fmt.Errorf("no carrier: %w", ctx.Err())
		}
	}
}

// join begins a term of the kernel with the link.
func (l *labLink) join() error {
	var counters [2]link.Counters
	if !l.fresh {
		var err error
		if counters, err = l.network.CountersOf(l.spec.Number); err != nil {
			return err
		}
	}
	if err := l.network.Join(l.spec.Number); err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	l.base, l.seen = counters, counters
	l.joined, l.fresh = true, false
	return nil
}

// part ends the kernel's term with the link, if there is one.
func (l *labLink) part() error {
	if !l.joined {
		return nil
	}
	if err := l.network.Part(l.spec.Number); err != nil {
		return err
	}
	counters, err := l.network.CountersOf(l.spec.Number)
	if err != nil {
		return err
	}
	l.mu.Lock()
	defer l.mu.Unlock()
	for d, now := range counters {
		now = now.Latest(l.seen[d]) // which may have vanished
		l.earlier[d] = l.earlier[d].Add(now.Sub(l.base[d]))
	}
	l.joined = false
	return nil
}

// isJoined reports whether the kernel hands packets on.
func (l *labLink) isJoined() bool {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.joined
}

// byKernel returns what the kernel has counted in the times when it joined the link. kernel
// holds its counters now.
func (l *labLink) byKernel(kernel [2]link.Counters) carried {
	l.mu.Lock()
	defer l.mu.Unlock()
	all := carried{Counters: l.earlier, Lossy: l.lossy}
	for d := range all.Counters {
		if l.joined {
			l.seen[d] = l.seen[d].Latest(kernel[d]) // which is gone with a node
			all.Counters[d] = all.Counters[d].Add(l.seen[d].Sub(l.base[d]))
		}
	}
	return all
}
