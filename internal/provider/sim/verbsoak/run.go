package verbsoak

import (
	"io"
	"time"

	"github.com/ndklab/ndklab/internal/provider/sim/trial"
	"github.com/ndklab/ndklab/internal/provider/verbs"
)

// A run is one scenario while it is played. Everything happens on one goroutine, within events of the clock.
type run struct {
	*trial.Trial
	plan     plan
	hosts    []*host
	ends     []*end // by their number
	lastID   uint64
	requests map[uint64]*request // under way
	receives map[uint64]*receive
	flight   map[packetKey]fragment
	strays   []*request    // not complete, or with a failure, that may arrive
	lifetime time.Duration // of a packet, at most
	fed      bool          // no receives need be posted any more
}

func newRun(seed uint64, journal io.Writer) *run {
	r := &run{
		Trial: trial.New(seed, journal), requests: map[uint64]*request{}, receives: map[uint64]*receive{}, flight: map[packetKey]fragment{},
	}
	r.Follow, r.Unfinished = r.follow, r.unfinished
	r.plan = newPlan(r.Rand)
	r.Prepare(&r.plan.Plan)
	r.lifetime = 50 * time.Millisecond // for what waits for a line
	for _, l := range r.plan.Links {
		r.lifetime += 5*l.Delay + min(trial.LongestLife, 50*l.Delay)
	}
	return r
}

func (r *run) play() {
	r.Logf("plan: %v", &r.plan)
	for i := range r.plan.hosts {
		h := newHost(r, i)
		r.hosts = append(r.hosts, h)
		h.start()
	}
	r.act()
	r.RunFor(r.plan.Duration)
	r.rest()
}

// act has actions happen at random times until the rest.
func (r *run) act() {
	for range 1 + r.Rand.IntN(3) {
		r.connect(verbs.RC)
	}
	for range r.Rand.IntN(3) {
		r.connect(verbs.UC)
	}
	for _, h := range r.hosts {
		for range r.Rand.IntN(3) {
			h.datagrams()
		}
	}
	r.Act(3*time.Millisecond, r.actOnce)
}

// some returns a random end that is not destroyed and of which is holds; nil if there is none.
func (r *run) some(is func(*end) bool) *end {
	var fit []*end
	for _, e := range r.ends {
		if !e.gone && is(e) {
			fit = append(fit, e)
		}
	}
	return trial.Pick(r.Rand, fit)
}

func (r *run) actOnce() {
	h := trial.Pick(r.Rand, r.hosts)
	n := r.Rand.IntN(100)
	switch {
	case n < 70:
		if e := r.some((*end).usable); e != nil {
			e.postSome()
		}
	case n < 84:
		if e := r.some(func(e *end) bool {
			return e.state >= verbs.Init && !e.cause && e.receives.end == e || e.receives.srq != nil
		}); e != nil {
			e.receives.post(1 + r.Rand.IntN(4))
		}
	case n < 86:
		if !r.plan.scarce || r.Chance(0.5) {
			trial.Pick(r.Rand, h.queues).resize()
		}
	case n < 87:
		h.checkDeregister()
	case n < 88 && r.plan.Mistakes:
		h.fleeting.change()
	case n < 90 && len(h.srqs) > 0:
		s := h.srqs[trial.Pick(r.Rand, []verbs.QPType{verbs.RC, verbs.UD})]
		if s.setLimit(); r.Chance(0.3) {
			s.resize()
		}
	case n < 92 && r.plan.Cuts:
		r.Fabric.Cut(trial.Pick(r.Rand, r.Fabric.Links), time.Duration(r.Rand.Int64N(int64([]time.Duration{10 * time.Millisecond, time.Second, 20 * time.Second}[r.Rand.IntN(3)]))))
	case r.plan.states:
		r.changeState(n)
	}
}

// changeState takes an end to another state, or away, or has there be more.
func (r *run) changeState(n int) {
	e := r.some(func(e *end) bool { return !e.busy })
	switch {
	case n < 93 || e == nil:
		if r.Chance(0.5) {
			r.connect(trial.Pick(r.Rand, []verbs.QPType{verbs.RC, verbs.UC}))
		} else {
			trial.Pick(r.Rand, r.hosts).datagrams()
		}
	case n < 95:
		e.drain()
	case n < 96:
		e.toError()
	case n < 99:
		e.reconnect()
	default:
		e.destroy()
	}
}

// follow checks, now and then, all memory, also that which nothing should have come to, and polls for programs that always
// do.
func (r *run) follow() {
	for _, h := range r.hosts {
		if r.Events%64 == 0 {
			h.CheckMemory()
		}
		if h.plan.eager && h.context != nil {
			for _, q := range h.queues {
				q.poll()
			}
		}
	}
}
