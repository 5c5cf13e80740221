package soak

import (
	"io"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// A run is one scenario while it is played. Everything happens on one
// goroutine, within events of the clock.
type run struct {
	*trial.Trial
	plan      plan
	hosts     []*host
	instances []*instance
	ends      []*end // by their number
	fed       bool   // no receives need be posted any more
	closing   int    // closes that have not completed
}

func newRun(seed uint64, journal io.Writer) *run {
	r := &run{Trial: trial.New(seed, journal)}
	r.Follow, r.Unfinished = r.follow, r.unfinished
	r.plan = newPlan(r.Rand)
	r.Prepare(&r.plan.Plan)
	return r
}

func (r *run) play() {
	r.Logf("plan: %v", &r.plan)
	for i := range r.plan.hosts {
		h := newHost(r, i)
		r.hosts = append(r.hosts, h)
		for _, a := range h.addresses {
			r.Fabric.Attach(i, a)
		}
		h.boot()
	}
	r.act()
	r.RunFor(r.plan.Duration)
	r.rest()
}

// follow checks, now and then, all memory, also that which nothing should have come to, and polls for consumers that
// always do.
func (r *run) follow() {
	if r.Events%64 == 0 {
		r.checkMemory()
	}
	for _, l := range r.instances {
		l.pollEager()
	}
}

func (r *run) checkMemory() {
	for _, l := range r.instances {
		l.CheckMemory()
	}
}
