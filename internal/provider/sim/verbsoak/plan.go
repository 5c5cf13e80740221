package verbsoak

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// A plan has what a seed decides before the run begins.
type plan struct {
	trial.Plan
	hosts    []hostPlan
	timeouts []uint8 // codes of those for acknowledgements that queue pairs have
	states   bool    // queue pairs go through other states than the way to RTS
	scarce   bool    // receives may be missing, and completion queues be small
}

// hostPlan is the part of a plan about one host.
type hostPlan struct {
	mtu    int // of its interface
	buffer int // bytes of the receive buffer
	eager  bool
	srq    bool
}

// faultless reports whether nothing may be lost or sent again.
func (p *plan) faultless() bool {
	return !p.Weather && !p.Cuts && !p.Mistakes && !p.states && !p.scarce
}

func newPlan(r *rand.Rand) plan {
	chance := func(x float64) bool { return r.Float64() < x }
	p := plan{hosts: make([]hostPlan, 2+min(r.IntN(3), r.IntN(3)))}
	p.Plan = trial.Plan{Hosts: len(p.hosts), Actions: 60 + r.IntN(200), Largest: []int{64, 1500, 6000}[r.IntN(3)]}
	if chance(0.85) {
		p.Weather, p.Cuts, p.Mistakes, p.states, p.scarce = chance(0.7), chance(0.3), chance(0.5), chance(0.6), chance(0.5)
	}
	for i := range p.hosts {
		p.hosts[i] = hostPlan{
			mtu: []int{600, 1100, 1500, 4200}[r.IntN(4)], buffer: []int{8 << 10, 64 << 10, 208 << 10}[r.IntN(3)],
			eager: chance(0.5), srq: chance(0.5),
		}
	}
	p.DrawLinks(r, 100, 3*time.Second)
	p.timeouts = []uint8{10, 14, 18}
	if p.SlowestLink() > time.Millisecond { // an answer may take longer than the first of these, retries included
		p.timeouts = p.timeouts[1:]
	}
	return p
}

// String describes the plan, for the journal.
func (p *plan) String() string {
	s := fmt.Sprintf("%v\n  states %v, scarce %v", &p.Plan, p.states, p.scarce)
	for i, h := range p.hosts {
		s += fmt.Sprintf("\n  host %d: %+v", i, h)
	}
	return s
}
