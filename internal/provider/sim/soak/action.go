package soak

import (
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
)

// act schedules what happens until rest: first some connections, then one action
// after the other at random times.
func (r *run) act() {
	for range 1 + r.Rand.IntN(3) + len(r.hosts)/2 {
		r.Later(time.Millisecond, func() { r.withInstance((*instance).dial) })
	}
	r.Act(2*time.Millisecond, r.actOnce)
}

// withInstance does something with a random host that is up.
func (r *run) withInstance(do func(*instance)) {
	if l := trial.Pick(r.Rand, r.hosts).instance; l != nil && !r.Ending {
		do(l)
	}
}

// withEnd does something with a random end at which requests can be posted.
func (r *run) withEnd(do func(*end)) {
	var fit []*end
	for _, h := range r.hosts {
		if h.instance == nil {
			continue
		}
		for _, e := range h.instance.ends {
			if e.usable() {
				fit = append(fit, e)
			}
		}
	}
	if e := trial.Pick(r.Rand, fit); e != nil {
		do(e)
	}
}

func (r *run) actOnce() {
	switch n := r.Rand.IntN(100); {
	case n < 60:
		r.withEnd((*end).postSome)
	case n < 78:
		r.withEnd((*end).postReceivesAhead)
	case n < 86:
		r.withInstance((*instance).dial)
	case n < 88:
		r.withEnd((*end).tearDown)
	case n < 89:
		r.withInstance((*instance).change)
	case n < 90:
		r.withInstance((*instance).reregister)
	case n < 91:
		r.withInstance((*instance).stopListening)
	case r.plan.Cuts:
		r.injectFault(n)
	}
}

// change has a consumer write to memory that nobody uses.
func (l *instance) change() {
	from := l.run.Rand.IntN(len(l.memory.Bytes))
	to := min(len(l.memory.Bytes), from+1+l.run.Rand.IntN(1000))
	if l.memory.Free(from, to, true) {
		l.memory.Fill(from, to)
	}
}

// injectFault has something fail. Outages are shorter and longer than what a
// connection survives.
func (r *run) injectFault(n int) {
	outage := time.Duration(r.Rand.Int64N(int64([]time.Duration{10 * time.Millisecond, 500 * time.Millisecond, 6 * time.Second}[r.Rand.IntN(3)])))
	switch {
	case n < 96:
		r.Fabric.Cut(trial.Pick(r.Rand, r.Fabric.Links), outage)
	case n < 97: // a partition: about half of all links
		for _, l := range r.Fabric.Links {
			if r.Chance(0.5) {
				r.Fabric.Cut(l, outage)
			}
		}
	default:
		h := trial.Pick(r.Rand, r.hosts)
		if h.instance == nil {
			return
		}
		if n < 99 {
			h.crash()
		} else {
			h.leave()
		}
		r.Clock.AfterFunc(outage/4, h.boot)
	}
}
