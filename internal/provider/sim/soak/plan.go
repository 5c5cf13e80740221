package soak

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/provider"
)

// A plan has what a seed decides before the run begins.
type plan struct {
	trial.Plan
	hosts []hostPlan
	unit  int // bytes of memory of which regions are multiples, a multiple of a page
}

// hostPlan is the part of a plan about one host. Each of its devices is like the
// one before.
type hostPlan struct {
	v4, v6    bool
	mtu       int    // of its interface
	frameSize uint32 // *NetworkDirectRoCEFrameSize
	info      provider.AdapterInfo
	pend      bool
	goBackN   bool    // as a foreign device: between two others only what is missing is sent again
	guid      uint64  // 0: each device has another
	nearWrap  float64 // how often a random number is close to the wrap of sequence numbers
	forgetful bool    // each device draws the queue pair numbers of the one before
	eager     bool    // the consumer polls after each event, not when it is notified
	srq       bool
}

func newPlan(r *rand.Rand) plan {
	chance := func(p float64) bool { return r.Float64() < p }
	p := plan{
		hosts: make([]hostPlan, 2+min(r.IntN(7), r.IntN(7))),
		Plan:  trial.Plan{Actions: 40 + r.IntN(160)},
		unit:  provider.PageSize << r.IntN(2),
	}
	p.Hosts = len(p.hosts)
	p.Weather, p.Cuts, p.Mistakes = chance(0.8), chance(0.6), chance(0.5)
	p.Largest = min([]int{64, 1500, 6000, 12000}[r.IntN(4)], p.unit)
	both := chance(0.3)
	six := chance(0.5)
	for i := range p.hosts {
		h := &p.hosts[i]
		h.v4, h.v6 = both || !six, both || six
		h.mtu = []int{600, 1100, 1500, 4200, 9000}[r.IntN(5)]
		h.frameSize = []uint32{0, 256, 512, 1024, 4096}[r.IntN(5)]
		h.pend = chance(0.3)
		h.goBackN = chance(0.25)
		if h.forgetful = chance(0.5); h.forgetful || chance(0.4) {
			h.guid = uint64(i + 1)
		}
		if !h.forgetful { // or old packets to an old number could have a sequence number that is expected again
			h.nearWrap = []float64{0, 0.5, 1}[r.IntN(3)]
		}
		h.eager = chance(0.4)
		h.srq = chance(0.4)
		h.info = provider.DefaultAdapterInfo()
		h.info.MaxInboundReadLimit = []uint32{0, 1, 2, 16}[min(3, r.IntN(8))]
		h.info.MaxOutboundReadLimit = []uint32{0, 1, 2, 16}[min(3, r.IntN(8))]
		for _, flag := range []provider.AdapterFlags{
			provider.AdapterReadSinkNotRequired, provider.AdapterReadLocalInvalidate, provider.AdapterLoopbackConnections,
		} {
			if chance(0.3) {
				h.info.AdapterFlags &^= flag
			}
		}
	}
	// In a time in which some thirty round trips pass there is a chance of
	// everything being under way at once.
	p.DrawLinks(r, 200, 5*time.Second)
	return p
}

// String describes the plan, for the journal.
func (p *plan) String() string {
	s := p.Plan.String()
	for i, h := range p.hosts {
		s += fmt.Sprintf("\n  host %d: MTU %d, frames %d, read limits %d in %d out, flags %#x, pend %v, go back N %v, eager %v, SRQ %v",
			i, h.mtu, h.frameSize, h.info.MaxInboundReadLimit, h.info.MaxOutboundReadLimit, h.info.AdapterFlags, h.pend, h.goBackN, h.eager, h.srq)
	}
	return s
}
