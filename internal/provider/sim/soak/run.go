package soak

import (
	"io"
	"math/rand/v2"
	"net/netip"

	"github.com/ndklab/ndklab/internal/provider/roce"
	"github.com/ndklab/ndklab/internal/provider/sim"
	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// A run is one scenario while it is played. Everything happens on one
// goroutine, within events of the clock.
type run struct {
	*trial.Trial
	plan      plan
	fabric    *trial.Fabric
	network   *sim.Network
	hosts     []*host
	instances []*instance
	ends      []*end // by their number
	ending    bool   // no new work
	fed       bool   // no receives need be posted any more
	closing   int    // closes that have not completed

	touched []*instance // that packets came to in this event

	// tamper, unless it is nil, may change what comes to a device, or drop it by
	// returning false, when the ICRC has been verified: to see whether what
	// follows is noticed.
	tamper func(*roce.Received) bool
}

func newRun(seed uint64, journal io.Writer) *run {
	r := &run{Trial: trial.New(seed, journal)}
	r.Follow, r.Unfinished = r.checkAfterEvent, r.unfinished
	r.plan = newPlan(r.Rand)
	r.fabric = trial.NewFabric(r.Trial, rand.New(rand.NewPCG(seed, 2)), len(r.plan.hosts), r.plan.links)
	r.network = sim.NewNetwork(r.Clock, r.fabric)
	return r
}

func (r *run) play() {
	r.Logf("plan: %v", &r.plan)
	for i := range r.plan.hosts {
		h := newHost(r, i)
		r.hosts = append(r.hosts, h)
		for _, a := range h.addresses {
			r.fabric.Attach(i, a)
		}
		h.boot()
	}
	r.act()
	r.RunFor(r.plan.duration)
	r.rest()
}

// checkAfterEvent checks what holds after each event.
func (r *run) checkAfterEvent() {
	for _, l := range r.touched {
		l.memory.check()
		l.touched = false
	}
	r.touched = r.touched[:0]
	if r.Events%64 == 0 {
		r.checkMemory()
	}
	for _, l := range r.instances {
		l.pollEager()
	}
}

// checkMemory checks all memory, also that which nothing should have come to.
func (r *run) checkMemory() {
	for _, l := range r.instances {
		l.memory.check()
	}
}

// hostAt returns the host with an address.
func (r *run) hostAt(a netip.Addr) *host { return r.hosts[r.fabric.HostAt(a)] }
