package soak

import "time"

// act schedules what happens until rest: first some connections, then one action
// after the other at random times.
func (r *run) act() {
	for range 1 + r.rand.IntN(3) + len(r.hosts)/2 {
		r.later(time.Millisecond, func() { r.withLife((*life).dial) })
	}
	interval := r.plan.duration / time.Duration(r.plan.actions)
	var next func()
	next = func() {
		if r.ending {
			return
		}
		r.actOnce()
		r.clock.AfterFunc(time.Duration(r.rand.ExpFloat64()*float64(interval)), next)
	}
	r.clock.AfterFunc(2*time.Millisecond, next)
}

// withLife does something with a random host that is up.
func (r *run) withLife(do func(*life)) {
	if l := pick(r, r.hosts).life; l != nil && !r.ending {
		do(l)
	}
}

// withEnd does something with a random end at which requests can be posted.
func (r *run) withEnd(do func(*end)) {
	var fit []*end
	for _, h := range r.hosts {
		if h.life == nil {
			continue
		}
		for _, e := range h.life.ends {
			if e.usable() {
				fit = append(fit, e)
			}
		}
	}
	if e := pick(r, fit); e != nil {
		do(e)
	}
}

func (r *run) actOnce() {
	switch n := r.rand.IntN(100); {
	case n < 60:
		r.withEnd((*end).postSome)
	case n < 78:
		r.withEnd((*end).stock)
	case n < 86:
		r.withLife((*life).dial)
	case n < 88:
		r.withEnd((*end).tearDown)
	case n < 89:
		r.withLife((*life).change)
	case n < 90:
		r.withLife((*life).reregister)
	case n < 91:
		r.withLife((*life).deafen)
	case r.plan.cuts:
		r.strike(n)
	}
}

// change has a consumer write to memory that nobody uses.
func (l *life) change() {
	from := l.run.rand.IntN(len(l.memory.bytes))
	to := min(len(l.memory.bytes), from+1+l.run.rand.IntN(1000))
	if l.memory.free(from, to, true) {
		l.memory.fill(from, to)
	}
}

// strike has something fail. Outages are shorter and longer than what a
// connection survives.
func (r *run) strike(n int) {
	outage := time.Duration(r.rand.Int64N(int64([]time.Duration{10 * time.Millisecond, 500 * time.Millisecond, 6 * time.Second}[r.rand.IntN(3)])))
	switch {
	case n < 96:
		r.fabric.cut(pick(r, r.fabric.links), outage)
	case n < 97: // a partition: about half of all links
		for _, l := range r.fabric.links {
			if r.chance(0.5) {
				r.fabric.cut(l, outage)
			}
		}
	default:
		h := pick(r, r.hosts)
		if h.life == nil {
			return
		}
		if n < 99 {
			h.crash()
		} else {
			h.leave()
		}
		r.clock.AfterFunc(outage/4, h.boot)
	}
}
