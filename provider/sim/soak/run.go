package soak

import (
	"fmt"
	"io"
	"math/rand/v2"
	"net/netip"
	"time"

	"github.com/ndklab/ndklab/provider/clock"
	"github.com/ndklab/ndklab/provider/roce"
	"github.com/ndklab/ndklab/provider/sim"
)

// A run is one scenario while it is played. Everything happens on one
// goroutine, within events of the clock.
type run struct {
	seed    uint64
	rand    *rand.Rand // what is to happen; devices and the fabric have sources of their own
	clock   *clock.Virtual
	plan    plan
	fabric  *fabric
	network *sim.Network
	hosts   []*host
	lives   []*life
	ends    []*end // by their number
	ending  bool   // no new work
	fed     bool   // no receives need be posted any more
	closing int    // closes that have not completed

	touched  []*life // that packets came to in this event
	events   uint64
	digest   digest
	coverage Coverage

	// tamper, unless it is nil, may change what comes to a device, or drop it by
	// returning false, when the ICRC has been verified: to see whether what
	// follows is noticed.
	tamper func(*roce.Received) bool

	journal      io.Writer
	journalError error
}

// maxEvents is more than any scenario takes: one that takes more goes round in
// circles.
const maxEvents = 1_000_000

func newRun(seed uint64, journal io.Writer) *run {
	r := &run{
		seed: seed, rand: rand.New(rand.NewPCG(seed, 1)), clock: clock.NewVirtual(),
		coverage: Coverage{}, journal: journal,
	}
	r.plan = newPlan(r.rand)
	r.fabric = newFabric(r, rand.New(rand.NewPCG(seed, 2)))
	r.network = sim.NewNetwork(r.clock, r.fabric)
	return r
}

func (r *run) play() {
	r.logf("plan: %v", &r.plan)
	for i := range r.plan.hosts {
		h := newHost(r, i)
		r.hosts = append(r.hosts, h)
		r.fabric.attach(h)
		h.boot()
	}
	r.act()
	r.runFor(r.plan.duration)
	r.rest()
}

// step plays the next event and checks what holds after each; false if there is
// none.
func (r *run) step() bool {
	if !r.clock.Step() {
		return false
	}
	r.events++
	if r.events == maxEvents {
		r.fail("an end to activity", "%d events", r.events)
	}
	for _, l := range r.touched {
		l.memory.look()
		l.touched = false
	}
	r.touched = r.touched[:0]
	if r.events%64 == 0 {
		r.lookAll()
	}
	for _, l := range r.lives {
		l.pollEager()
	}
	return true
}

// lookAll checks all memory, also that which nothing should have come to.
func (r *run) lookAll() {
	for _, l := range r.lives {
		l.memory.look()
	}
}

// runFor plays for a time.
func (r *run) runFor(d time.Duration) {
	over := false
	r.clock.AfterFunc(d, func() { over = true })
	for !over {
		r.step()
	}
}

// runUntil plays until done, which has to be so within limit.
func (r *run) runUntil(what string, limit time.Duration, done func() bool) {
	late := false
	timer := r.clock.AfterFunc(limit, func() { late = true })
	for !done() {
		if late {
			r.fail("no deadlock", "%s: not within %v%s", what, limit, r.unfinished())
		}
		r.step()
	}
	timer.Stop()
}

// later has f called within d from now, after a random time.
func (r *run) later(d time.Duration, f func()) {
	r.clock.AfterFunc(time.Duration(r.rand.Int64N(int64(d)+1)), f)
}

// chance is true with probability p.
func (r *run) chance(p float64) bool { return r.rand.Float64() < p }

// pick is a random element; the zero value if there is none.
func pick[T any](r *run, from []T) (one T) {
	if len(from) > 0 {
		one = from[r.rand.IntN(len(from))]
	}
	return one
}

// hostAt is the host with an address.
func (r *run) hostAt(a netip.Addr) *host { return r.hosts[r.fabric.hosts[a]] }

func (r *run) failure(invariant, detail string) *Failure {
	return &Failure{Seed: r.seed, At: r.clock.Now(), Event: r.events, Invariant: invariant, Detail: detail}
}

// fail ends the run.
func (r *run) fail(invariant, format string, args ...any) {
	panic(r.failure(invariant, fmt.Sprintf(format, args...)))
}

// logf writes a line of the journal.
func (r *run) logf(format string, args ...any) {
	if r.journal == nil || r.journalError != nil {
		return
	}
	_, r.journalError = fmt.Fprintf(r.journal, "%v %s\n", r.clock.Now(), fmt.Sprintf(format, args...))
}

func (r *run) report() Report {
	return Report{Digest: uint64(r.digest), Events: r.events, Lasted: r.clock.Now(), Coverage: r.coverage}
}

// A digest is a running hash (FNV-1a by words) of what happened.
type digest uint64

func (d *digest) add(words ...uint64) {
	for _, w := range words {
		*d = (*d ^ digest(w)) * 0x100000001B3
		*d ^= *d >> 29
	}
}
