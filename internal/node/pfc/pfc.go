// Package pfc has the adapter of a host obey its switch, which may ask it by PFC frames to pause a class of traffic
// (roce.md 14.4). It asks for no pauses itself.
//
// A Listener reads the frames that come in by a host's interfaces, and says which packets have to wait until further
// notice; the model of a switch (package mmu) is what decides, with ports that never hold a packet. It
// knows no queue pair: whoever sends is told by what it calls.
//
// Start reading at Listen; obedience has what decides, and does no I/O.
package pfc

import (
	"fmt"
	"net/netip"
	"slices"
	"time"

	"github.com/ndklab/ndklab/internal/fabric/mmu"
	"github.com/ndklab/ndklab/topology"
)

// A Config says what an adapter obeys.
type Config struct {
	Priorities []uint32      // that pause
	Classes    mmu.DSCPTable // that packets have at the host's switch
}

// plainRate is that of an interface without one, by which pauses last, in bits per second. It is that of simulations.
const plainRate = 10_000_000_000

// An obedience has what an adapter was asked for.
type obedience struct {
	model      *mmu.Switch[struct{}] // a port for each interface
	priorities []uint32
	dscps      [mmu.Classes]uint64 // bits
}

// newObedience returns what has been asked of so many interfaces: nothing yet.
func newObedience(cfg *Config, interfaces int) (*obedience, error) {
	o := &obedience{priorities: cfg.Priorities}
	for dscp, class := range cfg.Classes {
		if int(class) < mmu.Classes {
			o.dscps[class] |= 1 << dscp
		}
	}
	port := mmu.Port{Rate: plainRate, MaxFrame: 1}
	for _, k := range cfg.Priorities {
		if k >= mmu.Classes {
			return nil, fmt.Errorf("pfc: priority %d, want 0 to %d", k, mmu.Classes-1)
		}
		port.Classes[k] = mmu.Class{Lossless: true, XOFF: 1} // of what never comes
	}
	model, err := mmu.New[struct{}](mmu.Config{Name: "adapter", Size: 1, Ports: slices.Repeat([]mmu.Port{port}, interfaces)})
	if err != nil {
		return nil, err
	}
	o.model = model
	return o, nil
}

// heard takes what came in by an interface behind the Ethernet header. It ignores whatever is no PFC frame.
func (o *obedience) heard(now time.Duration, at int, frame []byte) {
	if f, err := mmu.DecodePFC(frame); err == nil {
		o.model.Paused(now, at, f)
	}
}

// paused returns the DSCPs, as bits, of packets that may not leave by an interface.
func (o *obedience) paused(at int) (dscps uint64) {
	for _, k := range o.priorities {
		if o.model.Pauses(at, int(k)) {
			dscps |= o.dscps[k]
		}
	}
	return dscps
}

// setRate sets the rate of an interface, by which pauses last that begin from now on, in bits per second; 0: it has none.
func (o *obedience) setRate(at int, rate uint64) {
	if rate == 0 {
		rate = plainRate
	}
	o.model.Change(at, rate, [mmu.Classes]mmu.WRED{})
}

// count adds what has been asked of an interface to counters, under mlx5's names.
func (o *obedience) count(now time.Duration, at int, to map[string]uint64) {
	for _, k := range o.priorities {
		c := o.model.Counters(now, at, int(k))
		to[topology.RxPause.Of(k)] += c.RxPause
		to[topology.RxPauseDuration.Of(k)] += uint64(c.RxPauseTime / time.Microsecond)
		to[topology.RxPauseTransition.Of(k)] += c.RxTransitions
	}
}

// An Interface is one that frames come in by.
type Interface struct {
	Name      string
	Addresses []netip.Addr
}
