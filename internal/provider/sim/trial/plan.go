package trial

import (
	"fmt"
	"math/rand/v2"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim"
)

// A Plan has what a seed decides before the trial begins, whatever uses the adapters.
type Plan struct {
	Hosts    int
	Links    []LinkPlan
	Duration time.Duration
	Actions  int  // of consumers, and faults, in that time
	Largest  int  // bytes of the longest message
	Weather  bool // links lose, corrupt, duplicate and reorder
	Cuts     bool // links, and hosts, fail
	Mistakes bool // some requests must fail
}

// DrawLinks draws the links and, with them, the duration: of up to so many of the longest delay, beside longest where
// links are cut.
func (p *Plan) DrawLinks(r *rand.Rand, delays int, longest time.Duration) {
	p.Links = Wire(r, p.Hosts, p.Weather)
	p.Duration = 20*time.Millisecond + time.Duration(10+r.IntN(delays))*p.SlowestLink()
	if p.Cuts {
		p.Duration += time.Duration(r.Int64N(int64(longest)))
	}
}

// SlowestLink returns the longest delay of a link.
func (p *Plan) SlowestLink() (slowest time.Duration) {
	for _, l := range p.Links {
		slowest = max(slowest, l.Delay)
	}
	return slowest
}

// String describes the plan, for the journal.
func (p *Plan) String() string {
	s := fmt.Sprintf("%d hosts, %v, %d actions, messages up to %d bytes, cuts %v, mistakes %v", p.Hosts, p.Duration, p.Actions, p.Largest, p.Cuts, p.Mistakes)
	for _, l := range p.Links {
		s += "\n  " + l.String()
	}
	return s
}

// Prepare makes the network of a plan.
func (t *Trial) Prepare(p *Plan) {
	t.plan = p
	t.Fabric = NewFabric(t, rand.New(rand.NewPCG(t.Seed, 2)), p.Hosts, p.Links)
	t.Network = sim.NewNetwork(t.Clock, t.Fabric)
}

// Act has actions happen at random times, the first after a delay, until Calm.
func (t *Trial) Act(delay time.Duration, action func()) {
	interval := t.plan.Duration / time.Duration(t.plan.Actions)
	var next func()
	next = func() {
		if t.Ending {
			return
		}
		action()
		t.Clock.AfterFunc(time.Duration(t.Rand.ExpFloat64()*float64(interval)), next)
	}
	t.Clock.AfterFunc(delay, next)
}

// Mistake is true with probability p where the plan has mistakes.
func (t *Trial) Mistake(p float64) bool { return t.plan.Mistakes && !t.Ending && t.Chance(p) }

// Calm ends the faults, and the actions.
func (t *Trial) Calm() {
	t.Logf("the faults are over")
	t.Ending = true
	t.Fabric.Heal()
}

// Drain plays what is still scheduled when everything is closed, which must end within a time.
func (t *Trial) Drain(limit time.Duration) {
	end := t.Clock.Now() + limit
	for t.Step() {
		if t.Clock.Now() > end {
			t.Fail("nothing is left", "something is still scheduled %v after everything was closed", limit)
		}
	}
}
